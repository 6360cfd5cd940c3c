"""What a choice says of proof, where arms share only some prompts and some texts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.tuner.machine import Machine, arm, cells
from tuner.plan import WorkloadPlan
from tuner.select import choose_depth
from tuner.speed import SpeedComparison, compare_speeds
from tuner.summary import ArmSummary, summarise

if TYPE_CHECKING:
    from tuner.types import Observation

PROMPTS = 4
CELLS = cells((WorkloadPlan(name="a", prompts=PROMPTS),), repetitions=2)
NOT_PROVEN = re.compile(r"(?:leads|trails) depth \d by \d+% \(not proven: ([\d.]+)x to ([\d.]+)x\)")

PROMPT = st.tuples(st.booleans(), st.sampled_from("xy"), st.sampled_from((0.8, 1.0, 1.02, 1.25)))
"""Whether it was measured, which text it made, and how fast it was."""
ARM = st.lists(PROMPT, min_size=PROMPTS, max_size=PROMPTS)


def measured(depth: int, prompts: list[tuple[bool, str, float]]) -> list[Observation]:
    return [
        replace(one, digest=f"{one.prompt}{text}", decode_s=one.decode_s / speed)
        for one in Machine(row_cost=0.3).run(arm(depth), CELLS)
        for taken, text, speed in (prompts[one.prompt],)
        if taken
    ]


PLAIN = (True, "x", 1.0)
OTHER = (True, "y", 1.0)
ODD = [(True, "x", 1.0), (True, "x", 1.0), (True, "y", 1.0), (True, "y", 1.0)]


@settings(deadline=None)
@given(st.lists(ARM, min_size=2, max_size=4), st.none() | st.integers(0, 3))
@example([[PLAIN] * 4, [OTHER] * 4, ODD], None)
def test_no_arm_is_chosen_that_another_is_proven_to_beat(
    prompts: list[list[tuple[bool, str, float]]], incumbent: int | None
) -> None:
    told = [one for depth, each in enumerate(prompts) for one in measured(depth, each)]
    rows = summarise(told)
    decision = choose_depth(rows, None if incumbent is None else arm(incumbent))
    for low, high in NOT_PROVEN.findall(decision.reason):
        assert float(low) <= 1.0 <= float(high)
    beaten = {a.arm for a in rows for b in rows if a != b and _proven(b, a)}
    assert decision.arm not in beaten or beaten == {row.arm for row in rows}


def _proven(a: ArmSummary, b: ArmSummary) -> bool:
    verdict = compare_speeds(a, b)
    return isinstance(verdict, SpeedComparison) and verdict.faster
