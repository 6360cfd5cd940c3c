from __future__ import annotations

import math
import random

import pytest

from tuner.drift import (
    LEARNING_REQUESTS,
    Cusum,
    Detector,
    Direction,
    Pace,
    StepWatch,
    alarm_index,
    cusum,
)


def noise(seed: int, count: int, sd: float = 1.0, mean: float = 0.0) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - noise, no secret
    return [rng.gauss(mean, sd) for _ in range(count)]


def learnt(values: list[float], variance: float = 0.1) -> Detector:
    state = Detector()
    for value in values:
        state = state.push(value, variance)
    return state


def watched(seconds: list[float], reference: float | None = None) -> StepWatch:
    state = StepWatch(reference=reference)
    for step_s in seconds:
        state = state.push(step_s)
    return state


def test_values_around_zero_never_alarm_and_the_sums_stay_at_zero() -> None:
    assert alarm_index([0.3, -0.3] * 500, Cusum()) is None
    assert cusum([0.3, -0.3], Cusum())[-1] == Cusum()


def test_a_rise_and_a_fall_are_told_apart() -> None:
    assert cusum([2.0] * 7, Cusum())[-1].alarm is Direction.UP
    assert cusum([-2.0] * 7, Cusum())[-1].alarm is Direction.DOWN
    assert cusum([2.0], Cusum())[-1].alarm is Direction.NONE


def test_a_reset_keeps_the_parameters_only() -> None:
    assert cusum([2.0] * 7, Cusum(kappa=0.25, h=5))[-1].reset() == Cusum(kappa=0.25, h=5)


def test_a_detector_learns_what_is_normal_between_requests() -> None:
    """Values with sd 0.5 of which sampling explains 0.1: the rest is tau^2."""
    state = learnt(noise(1, 400, 0.5, 2.0), variance=0.1)
    assert state.mean == pytest.approx(2.0, abs=0.08)
    assert state.tau2 == pytest.approx(0.15, abs=0.04)
    assert state.alarm is Direction.NONE


def test_no_alarm_before_30_requests_whatever_they_show() -> None:
    values = [5.0 * (-1) ** i for i in range(LEARNING_REQUESTS)]
    assert learnt(values).cusum == Cusum()


@pytest.mark.parametrize(("shift", "direction"), [(-1.5, Direction.DOWN), (1.5, Direction.UP)])
def test_a_shift_after_learning_is_found_within_a_few_requests(
    shift: float, direction: Direction
) -> None:
    state = learnt(noise(2, 100, 0.5))
    count = 0
    while state.alarm is Direction.NONE:
        state = state.push(shift, 0.1)
        count += 1
    assert state.alarm is direction
    assert 2 <= count <= 5


def test_without_the_variance_between_requests_ordinary_ones_would_alarm() -> None:
    values = noise(3, 300, 0.5)
    assert learnt(values, variance=0.01).alarm is Direction.NONE
    naive = [v / math.sqrt(0.01) for v in values]
    assert alarm_index(naive, Cusum()) is not None


def test_one_odd_request_hardly_moves_the_reference() -> None:
    calm = learnt(noise(4, 60, 0.3))
    odd = calm.push(50.0, 0.1)
    assert abs(odd.mean - calm.mean) < 0.05
    assert odd.tau2 < calm.tau2 + 0.1


def test_a_shift_under_suspicion_teaches_nothing() -> None:
    """Else a slow drift would become what is normal before it is found."""
    calm = learnt(noise(5, 100, 0.3))
    near = calm
    while near.cusum.up <= near.cusum.h / 2:
        near = near.push(1.0, 0.1)
    after = near.push(1.0, 0.1)
    assert after.mean == near.mean
    assert after.requests == near.requests
    assert after.cusum.up > near.cusum.up


def test_what_is_remembered_is_bounded() -> None:
    assert learnt([0.0] * 600).requests == 500


def test_eviction_is_named_after_two_requests_and_never_after_one() -> None:
    steady = [0.04 * math.exp(x) for x in noise(6, 100, 0.02)]
    state = watched(steady)
    assert state.pace is Pace.STEADY
    once = state.push(0.04 * 1.7)
    assert once.pace is Pace.STEADY
    twice = once.push(0.04 * 1.7)
    assert twice.pace is Pace.EVICTED
    assert twice.ratio == pytest.approx(1.7, rel=0.08)


def test_noise_before_an_eviction_does_not_hide_how_slow_it_is() -> None:
    """The mean of the whole run would say 1.45; one slow request alone says nothing yet."""
    state = watched([0.04] * 60).push(0.04 * 1.06)
    once = state.push(0.04 * 1.7)
    assert once.ratio == pytest.approx(math.sqrt(1.06 * 1.7), rel=0.01)
    assert once.push(0.04 * 1.7).ratio == pytest.approx(1.7, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_of_1_4_times_the_usual_is_named_an_eviction(seed: int) -> None:
    state = watched([0.04 * math.exp(x) for x in noise(seed, 100, 0.02)])
    for x in noise(seed + 100, 4, 0.02):
        state = state.push(0.04 * 1.4 * math.exp(x))
        if state.pace is not Pace.STEADY:
            break
    assert state.pace is Pace.EVICTED


def test_a_calibrated_step_time_is_a_reference_from_the_first_request() -> None:
    state = watched([0.04 * 1.7] * 3, reference=math.log(0.04))
    assert state.pace is Pace.EVICTED


def test_without_any_reference_the_first_requests_are_one() -> None:
    state = watched([0.04] * LEARNING_REQUESTS)
    assert state.cusum == Cusum()
    assert state.mean == pytest.approx(math.log(0.04))
    assert state.ratio == 1.0


@pytest.mark.parametrize(("factor", "pace"), [(1.15, Pace.SLOWER), (0.8, Pace.FASTER)])
def test_a_slow_drift_of_the_step_time_is_no_eviction(factor: float, pace: Pace) -> None:
    state = watched([0.04 * math.exp(x) for x in noise(7, 60, 0.02)])
    for _ in range(12):
        state = state.push(0.04 * factor)
        if state.pace is not Pace.STEADY:
            break
    assert state.pace is pace


@pytest.mark.parametrize(
    ("shift", "delays"),
    [
        (-0.5, (29, 42, 24)),
        (-1.0, (11, 9, 13)),
        (-2.0, (5, 4, 6)),
        (1.0, (32, 26, 32)),
        (0.0, ()),
    ],
)
def test_delays_of_recorded_sequences(shift: float, delays: tuple[int, ...]) -> None:
    """Vectors: 100 calm requests, then a shift in standard deviations, for three seeds."""
    found: list[int] = []
    for seed in (11, 12, 13):
        state = learnt(noise(seed, 100), variance=0.5)
        assert state.alarm is Direction.NONE
        for count, value in enumerate(noise(seed + 100, 300, mean=shift), start=1):
            state = state.push(value, 0.5)
            if state.alarm is not Direction.NONE:
                found.append(count)
                break
    assert tuple(found) == delays
