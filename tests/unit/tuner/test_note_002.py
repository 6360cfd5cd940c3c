"""Note 002 from end to end: memory predicts, the search measures, the choice says why.

The card has 16368 MiB, two slots, the engine's default margin of 1 GiB; speeds are the
note's table "The depth sweep", residency what its log signature says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.unit.tuner.machine import arms
from tests.unit.tuner.test_memory import CARD, MIB, NOTE_002, PLANNING
from tests.unit.tuner.test_studies import NOTE_002 as TABLE
from tests.unit.tuner.test_studies import note_002
from tuner.advisor import Advice, Device, Lever, advise, rejected
from tuner.design import ModelBased, WorkloadPlan
from tuner.eviction import LAYER_COST_H200
from tuner.memory import Evicts, Fits, assumed
from tuner.plan import Ask, Elimination, History, Stop
from tuner.select import choose
from tuner.types import Act, Arm

DEPTHS: Final = (2, 3, 4, 5)
ARMS: Final = arms(*DEPTHS, profile="qwen3.6-27b")
WORKLOADS: Final = tuple(WorkloadPlan(name=name, prompts=1) for name in TABLE[2])


def advice(arm: Arm) -> Advice:
    return advise(
        PLANNING,
        replace(NOTE_002, depth=arm.depth),
        assumed(PLANNING),
        Device(free_bytes=CARD, headroom_bytes=256 * MIB),
        layer_cost=LAYER_COST_H200,
    )


@pytest.mark.parametrize("told", [True, False], ids=["memory predicted", "only logs"])
def test_depth_2_is_chosen_and_the_deeper_ones_do_not_fit(told: bool) -> None:  # noqa: FBT001 - a case
    fitting = [one.depth for one in ARMS if isinstance(advice(one).stays, Fits)]
    assert fitting == [2]
    deepest = max(fitting) if told else None
    design = ModelBased(
        arms=ARMS, workloads=WORKLOADS, repetitions=1, deepest=deepest, short_steps=0
    )
    history, started = History(), list[int]()
    while isinstance(answer := design.ask(history), Ask):
        started.append(answer.arm.depth)
        history = history.tell(*note_002(answer.arm.depth))
    assert isinstance(answer, Stop)
    assert started == ([2] if told else [2, 3])
    assert {r.arm.depth: r.verdict for r in answer.rejected} == dict.fromkeys(
        (3, 4, 5), Elimination.DOES_NOT_FIT
    )
    decision = choose(history, deepest=deepest)
    assert (decision.act, decision.arm) == (Act.CHOOSE, ARMS[0])
    assert decision.predicted is not None
    assert decision.predicted.mid == pytest.approx(51.2, abs=0.05), "the note's mean"
    assert "pay" not in decision.reason


@pytest.mark.parametrize("arm", ARMS[1:], ids=str)
def test_every_deeper_arm_is_rejected_with_the_lever_that_would_make_it_fit(arm: Arm) -> None:
    said = advice(arm)
    verdict = rejected(arm, said)
    assert verdict is not None
    assert verdict.verdict is Elimination.DOES_NOT_FIT
    assert isinstance(said.stays, Evicts)
    assert said.options[0].lever is Lever.MARGIN
    assert said.options[0].enough == (arm.depth < 5), "at depth 5 it takes a slot"
    assert "on the CPU (from seven evicted cells of a 27B model on one H200 host)" in said.reason
    assert "pay" not in verdict.reason


def test_the_note_lost_less_than_the_predicted_slowdown_of_its_fewest_layers_allows() -> None:
    """TUNER 3.3: 95.0 ms at depth 3 against 55.7 expected resident, 1.70 times."""
    said = advice(ARMS[1])
    assert said.slowdown is not None
    assert not said.slowdown.counted
    assert said.slowdown.factor.low < 95.0 / 55.7 < said.slowdown.factor.high
