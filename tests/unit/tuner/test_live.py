from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from tests.unit.tuner.machine import arm
from tests.unit.tuner.traffic import ALPHAS, LONG, SHORT, aggregate, fed, fresh, request
from tuner.acceptance import DEFAULT_PHI, expected_tokens
from tuner.baseline import Baseline
from tuner.carry import recalibrated, restarted
from tuner.drift import Cusum, Detector, Direction, Pace
from tuner.level import Level, deviation, logit, sigmoid
from tuner.live import (
    CLASS_SD,
    COMMON_SD,
    KEPT,
    TAU2_START,
    Alarm,
    ClassLive,
    Live,
    broken_head,
    push,
)
from tuner.request import Exclusion
from tuner.tally import Tally
from tuner.types import Unknown

LOW = (0.75, 0.55, 0.4)


def believed(live: Live, depth: int = 3) -> tuple[float, ...]:
    return tuple(sigmoid(eta) for eta in live.etas(live.find(SHORT), depth))


def tally(live: Live, depth: int) -> Tally:
    found = live.find(SHORT).tally(arm(depth))
    assert found is not None
    return found


def test_a_state_that_has_seen_nothing_believes_the_calibration() -> None:
    assert believed(fresh()) == pytest.approx(ALPHAS)
    assert fresh().find(LONG) == ClassLive(klass=LONG)
    assert fresh().share(fresh().find(LONG)) == 0.0


def test_beyond_the_calibration_the_last_ratio_goes_on_within_reason() -> None:
    base = Baseline(alphas=(0.9, 0.81), steps=400)
    assert base.alpha(2) == pytest.approx(0.729)
    assert Baseline(alphas=(0.8,), steps=400).alpha(1) == pytest.approx(0.72)
    assert Baseline(alphas=(0.8, 0.9), steps=400).alpha(2) == pytest.approx(0.9)
    assert Baseline(alphas=(0.9, 0.1), steps=400).alpha(2) == pytest.approx(0.07)
    assert Baseline(alphas=(0.0, 0.0), steps=400).alpha(2) == pytest.approx(0.0, abs=0.01)
    assert Baseline(alphas=(1.0,), steps=400).alpha(0) == 0.995
    assert base.level(2).var > base.level(0).var
    assert base.level(1).var == pytest.approx(0.01 + 1.5 / (400 * 0.9 * 0.81 * 0.19))
    assert Baseline(alphas=(0.9, 0.81), steps=4000).level(0).var < base.level(0).var


def test_a_class_has_its_own_baseline_or_that_of_all_others() -> None:
    own, other = Baseline(klass=LONG, alphas=LOW, steps=9), Baseline(alphas=ALPHAS, steps=9)
    live = replace(fresh(), baselines=(own, other))
    assert live.baseline(LONG) is own
    assert live.baseline(SHORT) is other
    assert replace(fresh(), baselines=(own,)).baseline(SHORT) is own


def test_lower_acceptance_is_learnt_and_carried_to_positions_that_are_not_seen() -> None:
    live, _ = fed(fresh(), *[request(1, LOW)] * 60)
    first, second, third = believed(live)
    assert first == pytest.approx(0.75, abs=0.02)
    assert second < 0.7
    assert third < 0.6


def test_a_shift_of_all_classes_is_believed_of_a_class_that_is_not_being_seen() -> None:
    both = [request(2), request(2, klass=LONG)] * 40
    live, _ = fed(fresh(), *both, *[request(2, LOW)] * 60)
    (unseen,) = [c for c in live.classes if c.klass == LONG]
    assert sigmoid(live.etas(unseen, 1)[0]) < 0.84


def test_a_class_that_alone_is_lower_is_believed_to_be_so_alone() -> None:
    mixed = [request(2), request(2, LOW, LONG)] * 150
    live, _ = fed(fresh(), *mixed)
    short, long = (live.etas(live.find(k), 2) for k in (SHORT, LONG))
    assert [sigmoid(e) for e in short] == pytest.approx(ALPHAS[:2], abs=0.03)
    assert [sigmoid(e) for e in long] == pytest.approx(LOW[:2], abs=0.03)


def test_aggregate_counters_move_the_belief_and_leave_the_positions_unknown() -> None:
    live, _ = fed(fresh(), *[aggregate(request(3, LOW))] * 60)
    assert expected_tokens(believed(live)) == pytest.approx(expected_tokens(LOW), abs=0.1)
    seen = tally(live, 3)
    assert seen.tokens_per_step == pytest.approx(expected_tokens(LOW), abs=0.01)
    assert seen.acceptance(ALPHAS, 400) == Unknown("the positions were not counted")


def test_drift_in_all_classes_is_one_alarm_that_names_them_all() -> None:
    calm = [request(2), request(2, klass=LONG)] * 40
    live, none = fed(fresh(), *calm)
    assert none == ()
    _, alarms = fed(live, *[request(2, LOW), request(2, LOW, LONG)] * 6)
    assert alarms[0] == Alarm(arm=arm(2), klass=None, acceptance=Direction.DOWN)
    assert str(alarms[0]) == "acceptance has fallen in all classes"


def test_an_alarm_keeps_a_fifth_of_what_was_known() -> None:
    live, _ = fed(fresh(), *[request(2), request(2, klass=LONG)] * 40)
    before = live.common.weight
    while True:
        live, alarms = push(live, request(2, LOW))
        if alarms:
            break
        before = live.common.weight
    assert live.common.weight < 0.25 * before
    assert live.pooled.down == 0.0
    assert {c.klass: c.detector.requests for c in live.classes} == {SHORT: 0, LONG: 40}


def test_the_first_request_is_shared_out_by_precision() -> None:
    """By hand: common first, then the class, then the position takes of what is left."""
    live, _ = fed(fresh(), request(1, LOW))
    seen = deviation([logit(0.9)], (200,), (150,), DEFAULT_PHI)
    assert seen is not None
    common, offset = Level(1 / COMMON_SD**2), Level(1 / CLASS_SD**2)
    between = seen.variance + TAU2_START
    first = seen.shift * common.var / (common.var + between + offset.var)
    assert live.common.mean == pytest.approx(first)
    left = seen.shift - first
    second = left * offset.var / (offset.var + between + live.common.var)
    known = live.find(SHORT)
    assert known.offset.mean == pytest.approx(second)
    p = sigmoid(logit(0.9) + first + second)
    variance = DEFAULT_PHI / (200 * p * (1 - p)) + TAU2_START + live.common.var + known.offset.var
    prior = fresh().baselines[0].level(0)
    third = (150 - 200 * p) / (200 * p * (1 - p)) * prior.var / (prior.var + variance)
    assert known.positions[0].mean == pytest.approx(third)


def test_a_class_alarm_keeps_a_fifth_of_what_was_known_of_the_class() -> None:
    live, _ = fed(fresh(), *[request(2), request(2, klass=LONG)] * 60)
    before = live.find(LONG)
    alarms: tuple[Alarm, ...] = ()
    while not any(a.klass == LONG for a in alarms):
        before = live.find(LONG)
        live, alarms = fed(live, *[request(2)] * 9, request(2, (0.82, 0.7), LONG))
    after = live.find(LONG)
    assert after.offset.weight < 0.25 * before.offset.weight
    assert all(
        b.weight < 0.25 * a.weight for a, b in zip(before.positions, after.positions, strict=True)
    )
    assert after.detector.requests == 0


def test_positions_that_are_not_being_seen_are_not_forgotten() -> None:
    live, _ = fed(fresh(), *[request(3, (0.9, 0.8, 0.4))] * 60, *[request(1)] * 5)
    assert len(live.find(SHORT).positions) == 3
    assert believed(live)[2] < 0.5


def test_drift_in_one_class_names_the_class() -> None:
    """A rare class: what is common to all hardly sees it."""
    live, _ = fed(fresh(), *[request(2), request(2, klass=LONG)] * 60)
    fallen = [*[request(2)] * 9, request(2, (0.82, 0.7), LONG)] * 40
    _, alarms = fed(live, *fallen)
    assert [(a.klass, a.acceptance) for a in alarms] == [(LONG, Direction.DOWN)]
    assert str(alarms[0]) == "acceptance has fallen in class long/mixed/greedy"


def test_an_eviction_in_flight_voids_what_is_stored_and_is_one_alarm() -> None:
    live, _ = fed(fresh(), *[request(2)] * 50)
    _, alarms = fed(live, *[request(2, slow=1.8)] * 40)
    assert [a.pace for a in alarms] == [Pace.EVICTED]
    assert alarms[0].voids
    assert str(alarms[0]) == (
        "a step of m@2 takes 1.80x of its reference in class short/mixed/greedy"
    )


def test_an_engine_start_is_watched_against_the_calibration_again() -> None:
    live, _ = fed(fresh(), *[request(2)] * 60)
    assert tally(live, 2).watch.requests == 60
    again = restarted(live)
    assert tally(again, 2).watch.requests == 0
    assert tally(again, 2).watch.reference is not None
    assert again.common == live.common
    bare, _ = fed(fresh(calibrated=False), request(2))
    assert tally(restarted(bare), 2).watch.reference is None


def test_a_new_calibration_voids_the_times_and_keeps_what_is_known_of_the_text() -> None:
    live, _ = fed(fresh(), *[request(2, LOW)] * 60)
    times = ((arm(2), 0.08),)
    capped = recalibrated(live, live.baselines, times)
    assert believed(capped) == pytest.approx(believed(live))
    assert capped.step_s == times
    assert capped.find(SHORT).tallies == ()
    assert capped.share(capped.find(SHORT)) == live.share(live.find(SHORT))
    _, alarms = fed(capped, *[replace(request(2, LOW), decode_s=200 * 0.08)] * 10)
    assert alarms == ()
    other = recalibrated(live, live.baselines, times, keep=KEPT)
    assert other.common.weight == pytest.approx(KEPT * live.common.weight)
    before, after = live.find(SHORT), other.find(SHORT)
    assert after.offset.weight == pytest.approx(KEPT * before.offset.weight)
    assert after.positions[0].weight == pytest.approx(KEPT * before.positions[0].weight)
    assert before.detector.requests > 0
    assert after.detector == Detector()
    suspicious = replace(live, pooled=Cusum(up=7.0))
    assert recalibrated(suspicious, live.baselines, times).pooled == Cusum()
    assert ALPHAS[0] > believed(other)[0] > believed(live)[0] - 0.01


def test_what_does_not_count_is_counted_by_reason() -> None:
    odd = [
        replace(request(2), cancelled=True),
        replace(request(2), cancelled=True),
        replace(request(2), accepted=None),
        request(2, (1.0, 1.0)),
    ]
    live, _ = fed(fresh(), *odd)
    assert dict(live.excluded) == {
        Exclusion.CANCELLED: 2,
        Exclusion.UNCOUNTED: 1,
        Exclusion.DEGENERATE: 1,
    }
    assert live.requests == 0
    assert live.classes == ()


def test_at_depth_0_nothing_is_learnt_of_acceptance_and_what_is_known_fades() -> None:
    live, _ = fed(fresh(), *[request(1, LOW)] * 60)
    later, _ = fed(live, *[request(0)] * 300)
    assert later.common.weight < 0.2 * live.common.weight
    assert later.share(later.find(SHORT)) > 0
    assert tally(later, 0).acceptance(ALPHAS, 400) == Unknown("nothing was drafted")


def test_a_broken_head_is_said_after_enough_steps_and_a_weak_one_is_not() -> None:
    broken = request(2, (0.0, 0.0))
    few, _ = fed(fresh(), broken)
    assert broken_head(few, arm(2)) is None
    many, _ = fed(fresh(), *[broken] * 4)
    assert broken_head(many, arm(2)) == "0 draft tokens were accepted in 796 steps"
    weak, _ = fed(fresh(), *[request(2, (0.1, 0.1))] * 4)
    assert broken_head(weak, arm(2)) is None
    assert broken_head(many, arm(0)) is None


def test_another_profile_is_refused() -> None:
    with pytest.raises(ValueError, match=r"other@2 \(mtp\) does not belong to m \(mtp\)"):
        push(fresh(), replace(request(2), arm=arm(2, "other")))


def test_a_state_survives_json() -> None:
    live, _ = fed(fresh(), *[request(2), request(1, LOW, LONG), request(0)] * 20)
    text = json.dumps(dataclasses.asdict(live))
    assert TypeAdapter(Live).validate_json(text) == live


def test_a_tally_shows_intervals_step_time_and_context() -> None:
    live, _ = fed(fresh(), *[request(2)] * 50)
    seen = tally(live, 2)
    intervals = seen.acceptance(ALPHAS, 400)
    assert isinstance(intervals, tuple)
    assert len(intervals) == 2
    assert all(i.low < i.mid < i.high for i in intervals)
    assert [i.mid for i in intervals] == pytest.approx(ALPHAS[:2], abs=0.005)
    few = replace(seen, reached=(30.0, 20.0), hits=(20.0, 5.0)).acceptance(ALPHAS, 400)
    assert isinstance(few, tuple)
    first, second = 1 + (135 * 0.8 + 5) / 1.5, 1 + (135 * 0.2 + 15) / 1.5
    assert few[1].mid == pytest.approx(first / (first + second))
    assert seen.context_tokens == pytest.approx(1000)
    assert Tally(arm=arm(1)).tokens_per_step == Unknown("nothing was counted")


def test_a_request_that_shared_the_card_tells_no_step_time() -> None:
    shared = replace(request(2, slow=3.0), alone=False, context_tokens=None)
    live, alarms = fed(fresh(), *[shared] * 5)
    seen = tally(live, 2)
    assert alarms == ()
    assert seen.watch.requests == 0
    assert seen.mean_log_step == Unknown("no request ran alone")
    assert seen.context_tokens == Unknown("no request told it")


def test_old_requests_count_half_after_200_newer_ones() -> None:
    live, _ = fed(fresh(), request(2), *[request(2)] * 200)
    share = tally(live, 2).requests
    assert share == pytest.approx((1 - 0.5 ** (201 / 200)) / (1 - 0.5 ** (1 / 200)))


def test_positions_that_a_clamped_engine_does_not_label_stay_apart() -> None:
    clamped = replace(request(2), arm=arm(3))
    live, _ = fed(fresh(), clamped, request(3))
    assert len(tally(live, 3).hits) == 3
    again, _ = fed(live, clamped)
    assert len(tally(again, 3).hits) == 3


def test_what_falls_in_one_class_while_the_others_stay_is_told_of_that_class() -> None:
    live, _ = fed(fresh(), *[request(2), request(2, klass=LONG)] * 60)
    live, alarms = fed(live, *[request(2), request(2, LOW, LONG)] * 6)
    assert alarms
    assert {str(one) for one in alarms} == {"acceptance has fallen in class long/mixed/greedy"}
    _, alarms = fed(live, *[request(2, LOW), request(2, LOW, LONG)] * 6)
    assert "acceptance has fallen in class long/mixed/greedy" not in {str(one) for one in alarms}
    assert alarms
