"""Single steps can be timed in every engine: the way is one and the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.short_steps import StepClock
from tests.contract.harness import KINDS, Kind, serving
from tests.contract.requests import MTP, PROMPT
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]


@pytest.mark.parametrize("depth", [0, 2])
async def test_steps_with_every_number_of_rows_are_had(
    kind: Kind, tmp_path: Path, depth: int
) -> None:
    arm = Arm(profile="tiny", drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth)
    flags = (*MTP, str(depth)) if depth else ()
    async with serving(kind, *flags, home=tmp_path) as (_, client):
        clock = StepClock(client=client, arm=arm, start_id="s", fingerprint="f", seed=1)
        steps = [step async for step in clock.steps([PROMPT, "def main():"], 4)]

    for rows in range(depth + 1):
        assert [step.rows for step in steps].count(rows) == 4
    filled = [step.context_tokens for step in steps]
    assert filled == sorted(set(filled))
    assert all(step.step_s > 0 for step in steps)
