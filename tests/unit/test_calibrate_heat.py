"""What the card did while a repetition ran: recorded with it, and a reason to repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.errors import CalibrationError
from mtpd.gpu.window import Around
from tests.unit.calibrating import SHORT, Told
from tests.unit.control.held import scripted
from tests.unit.control.made import arm
from tuner.summary import summarise

if TYPE_CHECKING:
    from pathlib import Path

COOL = Around(edge_start_c=41.0, edge_end_c=66.0, power_mean_w=148.0, power_cap_w=150.0)
HOT = Around(edge_start_c=80.0, slowed="heat or current throttled 9 of 30 samples")


class Card:
    """Tells the state of one repetition after the other; the last one stays."""

    def __init__(self, *states: Around) -> None:
        self._left = list(states)
        self.asked: list[tuple[float, float]] = []

    def __call__(self, begin_s: float, end_s: float) -> Around:
        self.asked.append((begin_s, end_s))
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


async def test_the_state_of_the_card_goes_with_its_repetition(tmp_path: Path) -> None:
    told = Told()
    told.around = card = Card(COOL)
    async with scripted(tmp_path) as device:
        history = await told.run(device, arm(depth=1))
    assert [one.around for one in told.repetitions] == [COOL] * len(history.observations)
    assert all(one.excluded is None for one in history.observations)
    assert all(begin_s <= end_s for begin_s, end_s in card.asked)


async def test_a_repetition_that_heat_slowed_is_left_out_and_repeated_once(
    tmp_path: Path,
) -> None:
    told = Told()
    told.around = Card(COOL, HOT, COOL)
    async with scripted(tmp_path) as device:
        history = await told.run(device, arm(depth=1), plans=SHORT, repetitions=2)
    excluded = [one.excluded for one in history.observations]
    reason = "throttled: heat or current throttled 9 of 30 samples"
    assert excluded == [None, reason, None, None, None]
    cells = [(one.prompt, one.repetition) for one in history.observations]
    assert cells == [(0, 0), (0, 1), (0, 1), (1, 0), (1, 1)]
    (row,) = summarise(history.observations)
    assert [(one.reason, one.count) for one in row.excluded] == [(reason, 1)]
    assert [one.observation.excluded for one in told.repetitions] == excluded


async def test_a_card_that_stays_hot_ends_the_calibration_and_nothing_of_it_counts(
    tmp_path: Path,
) -> None:
    told = Told()
    told.around = Card(HOT)
    async with scripted(tmp_path) as device:
        with pytest.raises(CalibrationError, match="slowed twice in a row: heat or current"):
            await told.run(device, arm(depth=1))
    assert [bool(one.observation.excluded) for one in told.repetitions] == [True, True]
