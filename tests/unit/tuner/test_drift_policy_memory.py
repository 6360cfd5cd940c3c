from __future__ import annotations

import pytest

from tuner.drift import Cusum, Direction, alarm_index, cusum
from tuner.memory import QWEN35_27B, feasible
from tuner.policy import switch_decision


def test_values_around_zero_never_alarm_and_the_sums_stay_at_zero() -> None:
    assert alarm_index([0.3, -0.3] * 500, Cusum()) is None
    assert cusum([0.3, -0.3], Cusum())[-1] == Cusum()


def test_a_rise_and_a_fall_are_told_apart() -> None:
    assert cusum([2.0] * 7, Cusum())[-1].alarm is Direction.UP
    assert cusum([-2.0] * 7, Cusum())[-1].alarm is Direction.DOWN
    assert cusum([2.0], Cusum())[-1].alarm is Direction.NONE


def test_a_certain_gain_switches_and_a_certain_loss_does_not() -> None:
    for new, expected in ((60.0, True), (40.0, False)):
        verdict = switch_decision(
            tps_now=50.0, tps_new=new, sd_log=0.0, horizon_tokens=1e6, cost_s=60.0
        )
        assert verdict.switch is expected
        assert verdict.p == float(expected)


def test_5_percent_is_required_even_of_a_free_switch() -> None:
    verdict = switch_decision(
        tps_now=50.0, tps_new=52.0, sd_log=0.0, horizon_tokens=1e6, cost_s=0.0
    )
    assert not verdict.switch


@pytest.mark.parametrize("slots", [1, 2])
def test_if_a_depth_does_not_fit_no_deeper_one_does(slots: int) -> None:
    rows = feasible(
        (5, 3, 0, 1),
        geometry=QWEN35_27B,
        slots=slots,
        rest_mib=14000.0,
        drafter_mib=500.0,
        free_mib=15200.0,
    )
    assert [r.depth for r in rows] == [0, 1, 3, 5]
    fits = [r.fits for r in rows]
    assert fits == sorted(fits, reverse=True)
    assert True in fits
    assert rows[0].need_mib == 14000.0 + slots * 149.625
    assert rows[1].left_mib == pytest.approx(15200 - 14500 - slots * 2 * 149.625)


def test_exactly_full_memory_fits() -> None:
    (row,) = feasible(
        (0,), geometry=QWEN35_27B, slots=2, rest_mib=100.0, drafter_mib=0.0, free_mib=399.25
    )
    assert row.fits
