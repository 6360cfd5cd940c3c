from __future__ import annotations

import dataclasses
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tests.unit.tuner.traffic import LONG, SHORT, costs, fresh
from tuner.drift import Cusum, Detector, Direction, StepWatch
from tuner.level import Level, deviation, sigmoid
from tuner.live import push
from tuner.outlook import outlook
from tuner.request import Exclusion, Request, Usable, usable


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Anything an engine may report, possible or not."""
    depth = draw(st.integers(0, 3))
    steps = draw(st.integers(0, 400))
    hits: list[int] = []
    left = steps
    for _ in range(depth):
        left = draw(st.integers(0, left))
        hits.append(left)
    honest = draw(st.booleans())
    accepted = sum(hits) if honest else draw(st.none() | st.integers(-3, 2000))
    return Request(
        arm=arm(depth),
        klass=draw(st.sampled_from([SHORT, LONG])),
        tokens=1 + steps + sum(hits) if honest else draw(st.integers(0, 2000)),
        decode_s=draw(st.floats(0.0) | st.floats(1.0, 100.0)),
        accepted=accepted,
        drafted=draw(st.none() | st.just(steps * depth) | st.integers(0, 2000)),
        steps=draw(st.none() | st.just(steps)),
        per_position=draw(st.none() | st.just(tuple(hits))),
        context_tokens=draw(st.none() | st.integers(0, 100_000)),
        alone=draw(st.booleans()),
        cancelled=draw(st.integers(0, 9)) == 0,
    )


lives = st.lists(requests(), max_size=20)


@given(requests())
def test_what_is_identified_adds_up(one: Request) -> None:
    seen = usable(one)
    if isinstance(seen, Usable):
        assert seen.decode_steps > 0
        assert seen.tokens_per_step >= 1
        chain = (*seen.reached[:1], *seen.hits)
        assert list(chain) == sorted(chain, reverse=True)
        assert seen.reached[1:] == seen.hits[:-1]
    else:
        assert isinstance(seen, Exclusion)


@given(lives)
def test_every_request_counts_once_or_is_excluded_once(given_: list[Request]) -> None:
    live = fresh()
    for one in given_:
        live, _ = push(live, one)
    assert live.requests + sum(n for _, n in live.excluded) == len(given_)
    assert json.loads(json.dumps(dataclasses.asdict(live)))["requests"] == live.requests


@given(lives)
def test_beliefs_and_prospects_stay_finite_and_the_running_arm_gains_nothing(
    given_: list[Request],
) -> None:
    live = fresh()
    for one in given_:
        live, _ = push(live, one)
    for known in live.classes:
        assert all(0 < sigmoid(eta) < 1 for eta in live.etas(known, 3))
    for found in outlook(live, costs(0, 1, 2, 3), arm(1)):
        assert math.isfinite(found.gain)
        assert math.isfinite(found.sd)
        assert 0 < found.tps.low <= found.tps.mid <= found.tps.high
        if found.arm == arm(1):
            assert (found.gain, found.sd) == (0.0, 0.0)


@given(lives)
def test_the_same_requests_teach_the_same(given_: list[Request]) -> None:
    first, second = fresh(), fresh()
    for one in given_:
        (first, _), (second, _) = push(first, one), push(second, one)
    assert first == second


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 5)), max_size=30))
def test_a_level_never_gets_less_sure_by_learning_and_stays_within_what_it_saw(
    seen: list[tuple[float, float]],
) -> None:
    level = Level(1.0)
    for value, variance in seen:
        after = level.learn(value, variance)
        assert after.var < level.var
        level = after
    bounds = [0.0, *(v for v, _ in seen)]
    assert min(bounds) - 1e-9 <= level.mean <= max(bounds) + 1e-9


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=4), st.integers(1, 400), st.data())
def test_more_hits_never_show_a_lower_acceptance(
    etas: list[float], steps: int, data: st.DataObject
) -> None:
    hits = data.draw(st.integers(0, steps - 1))
    low = deviation(etas[:1], (steps,), (hits,), 1.0)
    high = deviation(etas[:1], (steps,), (hits + 1,), 1.0)
    assert low is not None
    assert high is not None
    assert low.shift <= high.shift + 1e-9 or low.shift >= 1.9


@given(st.lists(st.floats(-50, 50), max_size=80))
def test_sums_are_never_negative_and_an_alarm_has_a_direction(values: list[float]) -> None:
    state = Cusum()
    for z in values:
        state = state.push(z)
        assert min(state.up, state.down) >= 0
        assert (state.alarm is Direction.NONE) == (max(state.up, state.down) <= state.h)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.001, 2)), max_size=60))
def test_a_detector_never_learns_a_negative_variance(seen: list[tuple[float, float]]) -> None:
    state = Detector()
    for value, variance in seen:
        state = state.push(value, variance)
        assert state.tau2 >= 0
        assert math.isfinite(state.mean)


@given(st.lists(st.floats(1e-4, 10), max_size=60), st.none() | st.floats(-5, 0))
def test_a_step_watch_takes_any_positive_time(times: list[float], reference: float | None) -> None:
    state = StepWatch(reference=reference)
    for step_s in times:
        state = state.push(step_s)
        assert state.ratio > 0
        assert math.isfinite(state.mean)
