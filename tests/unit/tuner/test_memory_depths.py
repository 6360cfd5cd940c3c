from __future__ import annotations

import pytest

from tuner.memory import QWEN35_27B, feasible


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
