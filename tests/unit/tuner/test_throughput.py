from __future__ import annotations

import pytest

from tuner.throughput import (
    forecast_ratios,
    optimistic,
    p_beats,
    predict_tps,
    upper_bound_tps,
)
from tuner.types import Interval


def test_certainty_needs_no_distribution() -> None:
    assert p_beats(1.0, 0.0, 0.9, 0.0) == 1.0
    assert p_beats(0.91, 0.0, 0.9, 0.0) == 0.0


def test_bounds_at_the_measured_depth_are_the_prediction() -> None:
    assert upper_bound_tps((0.9, 0.7), 0.03, 0.4, 2) == predict_tps((0.9, 0.7), 0.03, 0.4)
    assert upper_bound_tps((), 0.03, 0.4, 1) == pytest.approx(2 / (0.03 * 1.4))
    assert optimistic((), 2) == (1.0, 1.0)


def test_a_forecast_of_an_interval_is_an_interval_around_it() -> None:
    alphas = [Interval(low=0.8, mid=0.9, high=0.95), Interval(low=0.6, mid=0.7, high=0.8)]
    depth_0, _, depth_2 = forecast_ratios(alphas, 0.5)
    assert (depth_0.ratio.low, depth_0.ratio.mid, depth_0.ratio.high) == (1.0, 1.0, 1.0)
    assert depth_2.ratio.low == pytest.approx((1 + 0.8 + 0.48) / 2)
    assert depth_2.ratio.high == pytest.approx((1 + 0.95 + 0.76) / 2)
