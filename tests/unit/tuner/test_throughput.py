from __future__ import annotations

import pytest

from tuner.acceptance import PositionCounts
from tuner.cost import CostFit, RowCost
from tuner.throughput import (
    StepRatio,
    WorkloadPoint,
    forecast_ratios,
    optimistic,
    p_beats,
    predict_depth,
    predict_tps,
    step_ratio,
    upper_bound_tps,
)
from tuner.types import Interval

FIT = CostFit(t0_s=0.03, c=0.4, c_se=None, residuals=())
COUNTS = PositionCounts(steps=200, accepted=(180, 135))
POINT = WorkloadPoint(counts=COUNTS, step_s=0.054)


def predict(depth: int, *points: WorkloadPoint) -> float:
    step = step_ratio(FIT, 2, depth, nearest=1)
    return predict_depth(points or (POINT,), depth, step).tps.mid


def test_shallower_depths_use_the_prefix_of_the_counts() -> None:
    assert predict(0) == pytest.approx(1 / 0.03)
    assert predict(1) == pytest.approx(1.9 / (0.03 * 1.4))
    assert predict(2) == pytest.approx(2.575 / (0.03 * 1.8))


def test_deeper_depths_continue_the_fall_of_the_acceptance_and_are_bounded() -> None:
    step = step_ratio(FIT, 2, 3, nearest=1)
    forecast = predict_depth((POINT,), 3, step)
    falling = 0.75 * (0.75 / 0.9)
    assert forecast.tps.mid == pytest.approx((2.575 + 0.675 * falling) / (0.03 * 2.2))
    assert forecast.bound_tps == pytest.approx((2.575 + 0.675 * 0.81) / (0.03 * 2.2))
    assert forecast.tps.low < forecast.tps.mid < forecast.tps.high


def test_an_acceptance_that_rises_is_not_expected_to_rise_further() -> None:
    rising = WorkloadPoint(counts=PositionCounts(steps=100, accepted=(60, 48)), step_s=0.054)
    step = step_ratio(FIT, 2, 3, nearest=1)
    forecast = predict_depth((rising,), 3, step)
    assert forecast.tps.mid == pytest.approx((1 + 0.6 + 0.48 + 0.48 * 0.8) / (0.03 * 2.2))


def test_workloads_are_predicted_one_by_one_and_averaged() -> None:
    slow = WorkloadPoint(counts=PositionCounts(steps=100, accepted=(50, 10)), step_s=0.054)
    assert predict(1, POINT, slow) == pytest.approx((predict(1) + predict(1, slow)) / 2)


def test_a_chain_that_was_never_accepted_stays_at_one_token() -> None:
    dead = WorkloadPoint(counts=PositionCounts(steps=100, accepted=(0, 0)), step_s=0.054)
    assert predict(3, dead) == pytest.approx(1 / (0.03 * 2.2))


def test_depth_1_alone_predicts_depth_2() -> None:
    shallow = WorkloadPoint(counts=PositionCounts(steps=100, accepted=(90,)), step_s=0.042)
    step = step_ratio(FIT, 1, 2, nearest=1)
    assert predict_depth((shallow,), 2, step).tps.mid == pytest.approx(
        (1 + 0.9 + 0.9 * 0.81) / (0.03 * 1.8)
    )


def test_a_row_cost_from_elsewhere_is_less_certain_than_a_fit() -> None:
    borrowed = RowCost(c=0.4, sd=0.12, source="study 000")
    near, far = (step_ratio(borrowed, 2, depth, nearest=1) for depth in (1, 0))
    assert near.ratio == step_ratio(FIT, 2, 1, nearest=1).ratio
    assert step_ratio(FIT, 2, 1, nearest=1).sd_log < near.sd_log < far.sd_log


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


def test_a_step_ratio_of_one_changes_nothing() -> None:
    forecast = predict_depth((POINT,), 2, StepRatio(ratio=1.0, sd_log=0.0))
    assert forecast.tps.mid == pytest.approx(2.575 / 0.054)
    assert forecast.bound_tps == forecast.tps.mid
