from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from functools import partial
from statistics import NormalDist

import pytest
from pydantic import TypeAdapter

from tests.unit.tuner.machine import arm
from tuner.handover import handed_over, left_behind, recent_restarts
from tuner.moment import (
    DAY_S,
    DOUBTS,
    Alert,
    Growth,
    Keep,
    Mode,
    Moment,
    PolicyState,
    Remeasure,
    Restart,
    Rules,
    SetDepth,
    SwitchModel,
)
from tuner.outlook import Prospect
from tuner.policy import decide, effect, horizon_s, intend
from tuner.replay import decisions, first_difference
from tuner.rivals import Rival
from tuner.stale import Field, staleness
from tuner.types import Act, Arm, Interval, Unknown
from tuner.worth import switch_decision

RULES = Rules(mode=Mode.IDLE)


def prospect(which: Arm, gain: float, sd: float = 0.02) -> Prospect:
    tps = 45 * math.exp(gain)
    return Prospect(
        arm=which, gain=gain, sd=sd, tps=Interval(low=0.9 * tps, mid=tps, high=1.1 * tps)
    )


def moment(
    *others: Prospect, at_s: float = 0.0, running: Arm | None = None, **more: object
) -> Moment:
    now = running or arm(2)
    base = Moment(
        at_s=at_s,
        running=now,
        prospects=(prospect(now, 0.0, 0.0), *others),
        tokens_per_s=20.0,
        switch_cost_s=75.0,
        idle_s=1800.0,
    )
    return replace(base, **more)  # type: ignore[arg-type]


BETTER = prospect(arm(3), 0.2)


def after(seconds: float, rules: Rules = RULES) -> PolicyState:
    """The state after a first switch from depth 1 and this long without another one."""
    state, _ = decide(rules, PolicyState(), moment(prospect(arm(2), 0.2), running=arm(1)))
    for now in range(0, int(seconds), 1800):
        state, _ = decide(rules, state, moment(at_s=float(now)))
    return decide(rules, state, moment(at_s=seconds))[0]


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


def test_without_traffic_no_gain_earns_a_switch_back() -> None:
    for cost_s in (0.0, 60.0):
        verdict = switch_decision(
            tps_now=50.0, tps_new=90.0, sd_log=0.0, horizon_tokens=0.0, cost_s=cost_s
        )
        assert (verdict.x_req, verdict.switch) == (None, False)


def test_with_little_traffic_the_cost_over_the_horizon_is_what_is_required() -> None:
    verdict = switch_decision(
        tps_now=50.0, tps_new=60.0, sd_log=0.01, horizon_tokens=20_000, cost_s=80.0
    )
    assert verdict.x_req == pytest.approx(-math.log(1 - 80 * 50 / 20_000))
    assert not verdict.switch


def test_where_nothing_was_measured_nobody_is_told_that_nothing_else_fits() -> None:
    _, unknown = decide(RULES, PolicyState(), moment(prospects=()))
    assert (unknown.act, unknown.arm) == (Act.KEEP, arm(2))
    assert unknown.reason.endswith("nothing that was measured tells what another depth gives")
    _, alone = decide(RULES, PolicyState(), moment())
    assert alone.reason.endswith("no other arm is permitted and known to fit")


def test_a_clear_gain_sets_the_depth_and_says_how_sure() -> None:
    state, decision = decide(RULES, PolicyState(), moment(BETTER))
    assert decision.act is Act.SWITCH
    assert (decision.arm, decision.previous) == (arm(3), arm(2))
    assert decision.predicted == BETTER.tps
    assert (
        decision.reason == "m@3 pays: gain +22.1%; 5.0% is required, and the chance of that is 100%"
    )
    assert decision.evidence[0] == "m@2: 45.0 tok/s, gain +0.000 +- 0.000 in log tok/s"
    assert effect(decision) == SetDepth(arm=arm(3))
    assert state.restarts == (0.0,)
    assert state.previous == arm(2)


def test_a_refusal_names_p_and_what_was_required() -> None:
    _, decision = decide(RULES, PolicyState(), moment(prospect(arm(3), 0.05)))
    assert decision.act is Act.KEEP
    assert decision.reason == (
        "keep m@2: m@3 does not pay enough: gain +5.1%; 5.0% is required,"
        " and the chance of that is 52%"
    )
    assert effect(decision) == Keep()
    _, idle = decide(RULES, PolicyState(), moment(BETTER, tokens_per_s=0.0))
    assert "no gain earns the switch back in time" in idle.reason


def test_of_two_arms_that_pay_the_faster_one_is_taken() -> None:
    both = (prospect(arm(1), 0.12), prospect(arm(3), 0.3, 0.2), prospect(arm(0), 0.11))
    _, decision = decide(RULES, PolicyState(), moment(*both))
    assert decision.arm == arm(1)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"requests": 1}, "somebody is being served"),
        ({"idle_s": 10.0}, "the card has been idle for 10 s only"),
        ({"other_restarts": 6}, "6 restarts were used within a day"),
    ],
)
def test_what_stands_in_the_way_is_said(more: dict[str, object], why: str) -> None:
    blocked = moment(BETTER, **more)  # type: ignore[arg-type]
    state, decision = decide(RULES, PolicyState(), blocked)
    assert decision.act is Act.KEEP
    assert decision.reason.startswith(f"keep m@2: would switch to m@3 but {why}: m@3 pays")
    assert state.restarts == ()


def test_a_silence_of_just_the_length_that_is_asked_for_is_enough() -> None:
    _, decision = decide(RULES, PolicyState(), moment(BETTER, idle_s=RULES.idle_s))
    assert decision.act is Act.SWITCH


def test_off_does_nothing_and_observe_only_says() -> None:
    _, off = decide(replace(RULES, mode=Mode.OFF), PolicyState(), moment(BETTER))
    assert off.reason == "keep m@2: mode is off"
    _, observe = decide(replace(RULES, mode=Mode.OBSERVE), PolicyState(), moment(BETTER))
    assert observe.act is Act.KEEP
    assert "would switch to m@3 but the mode is observe" in observe.reason


def test_the_dwell_time_is_waited_for() -> None:
    early, late = (moment(BETTER, at_s=t) for t in (1799.0, 1800.0))
    _, held = decide(RULES, after(1000), early)
    assert "1 s are left of the dwell time" in held.reason
    assert decide(RULES, after(1000), late)[1].act is Act.SWITCH


def test_each_return_to_the_arm_before_waits_four_times_longer() -> None:
    back = prospect(arm(1), 0.2)
    _, held = decide(RULES, after(7000), moment(back, at_s=7000.0))
    assert "200 s are left of the dwell time" in held.reason
    state, first = decide(RULES, after(7200), moment(back, at_s=7200.0))
    assert first.act is Act.SWITCH
    assert (state.returns, state.previous) == (1, arm(2))
    again = moment(prospect(arm(2), 0.2), at_s=7200 + 3000.0, running=arm(1))
    _, second = decide(RULES, state, again)
    assert "25800 s are left of the dwell time" in second.reason


def test_another_arm_does_not_wait_longer_and_forgets_the_returns() -> None:
    state = replace(after(7200), returns=3)
    moved, decision = decide(RULES, state, moment(BETTER, at_s=7200.0))
    assert decision.act is Act.SWITCH
    assert moved.returns == 0


def test_a_return_is_forgiven_per_quiet_day() -> None:
    state = replace(after(3000), returns=2)
    for hour in range(1, 30):
        state, _ = decide(RULES, state, moment(at_s=3000 + 3600.0 * hour))
    state = replace(state, restarts=(state.clock_s - DAY_S + 1.0,))
    two_hours = moment(prospect(arm(1), 0.2), at_s=3000 + 3600.0 * 30)
    assert decide(RULES, state, two_hours)[1].act is Act.SWITCH


def test_restarts_are_counted_over_a_rolling_day() -> None:
    rules = replace(RULES, restarts_per_day=1)
    state = after(1000, rules)
    for hour in range(1, 24):
        state, decision = decide(rules, state, moment(BETTER, at_s=3600.0 * hour))
        assert "1 restarts were used within a day" in decision.reason
    assert decide(rules, state, moment(BETTER, at_s=DAY_S))[1].act is Act.SWITCH


def test_a_depth_that_an_operator_set_stays_whatever_pays() -> None:
    for shown in (
        moment(BETTER),
        moment(BETTER, rivals=(RIVAL,)),
        moment(BETTER, stale=("driver was 1 and is 2",)),
        moment(BETTER, broken="nothing is accepted"),
    ):
        alerted = PolicyState(alerted=(arm(2),))
        _, pinned = decide(RULES, alerted, replace(shown, pinned=True))
        assert pinned.act is Act.KEEP
        assert pinned.reason == "keep m@2: an operator has set it"


RIVAL = Rival(
    pool="p",
    arm=arm(1, "other"),
    gain=0.3,
    sd=0.03,
    counts="tok/s",
    tps=Interval(low=55.0, mid=60.0, high=65.0),
    now_tps=45.0,
    tokens_per_s=20.0,
    held=None,
    reason="R2 speed: other@1 is the fastest of 2",
    evidence=("other@1: 60.0 tok/s", "m@2: 45.0 tok/s"),
)


def test_a_better_model_of_the_pool_is_switched_to_with_the_pools_own_sentence() -> None:
    state, switched = decide(RULES, PolicyState(), moment(rivals=(RIVAL,)))
    assert effect(switched) == SwitchModel(arm=arm(1, "other"), pool="p")
    assert (switched.act, switched.subject, switched.previous) == (Act.SWITCH, "p", arm(2))
    assert (switched.predicted, switched.evidence) == (RIVAL.tps, RIVAL.evidence)
    assert switched.reason == (
        "other@1 is better for p: gain +35.0% in tok/s; 5.0% is required,"
        " and the chance of that is 100%; "
        "R2 speed: other@1 is the fastest of 2"
    )
    assert (state.previous, state.restarts) == (arm(2), (0.0,))


def test_observe_only_says_that_another_model_would_be_served() -> None:
    rules = replace(RULES, mode=Mode.OBSERVE)
    _, intent = intend(rules, PolicyState(), moment(rivals=(RIVAL,)))
    assert intent.decision.act is Act.KEEP
    assert intent.decision.reason.startswith(
        "keep m@2: would switch to other@1 but the mode is observe: other@1 is better for p: gain"
    )
    assert intent.waits_for == "the mode is observe"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gain": 0.04}, "gain +4.1% in tok/s; 5.0% is required, and the chance of that is 38%"),
        ({"gain": 0.08, "sd": 0.05}, "the chance of that is 73%"),
        ({"tokens_per_s": 0.0}, "nobody asks for p by its name"),
        ({"tokens_per_s": 0.05}, "no gain earns the switch back in time"),
        ({"gain": None, "tokens_per_s": 1.0}, "the switch costs 11.7% of the time"),
    ],
)
def test_a_model_that_does_not_pay_is_named_with_the_reason(
    change: dict[str, float | None], why: str
) -> None:
    other = replace(RIVAL, **change)  # type: ignore[arg-type]
    _, decision = decide(RULES, PolicyState(), moment(rivals=(other,)))
    assert decision.act is Act.KEEP
    assert decision.reason.startswith("keep m@2: other@1 would be better for p, but not enough: ")
    assert why in decision.reason


def test_what_a_rule_asks_for_costs_at_most_a_share_of_the_time() -> None:
    asked = replace(RIVAL, gain=None)
    _, decision = decide(RULES, PolicyState(), moment(rivals=(asked,)))
    assert decision.arm == RIVAL.arm
    assert "the switch costs 0.6% of the time that its requests take (at most 5%)" in (
        decision.reason
    )


def test_a_model_that_is_held_waits_and_lets_a_better_depth_go_first() -> None:
    held = replace(RIVAL, held="m was asked for by its own name 20 s ago")
    _, intent = intend(RULES, PolicyState(), moment(rivals=(held,)))
    assert (intent.decision.act, intent.waits_for) == (Act.KEEP, held.held)
    _, decision = decide(RULES, PolicyState(), moment(BETTER, rivals=(held,)))
    assert decision.arm == BETTER.arm


def test_the_way_back_to_a_model_takes_the_longer_dwell_at_any_depth() -> None:
    state, _ = decide(RULES, PolicyState(), moment(rivals=(RIVAL,)))
    there = handed_over(state, PolicyState(clock_s=50.0, restarts=(40.0,)), 0.0)
    assert there.restarts == (-10.0, 0.0)
    assert (there.previous, left_behind(state).restarts) == (arm(2), ())
    back = replace(RIVAL, arm=arm(3))
    here = partial(moment, running=arm(1, "other"), rivals=(back,))
    there, early = decide(RULES, there, here(at_s=1801.0))
    assert "s are left of the dwell time" in early.reason
    there, _ = decide(RULES, there, here(at_s=5000.0))
    assert decide(RULES, there, here(at_s=7200.0))[1].arm == arm(3)
    third = replace(RIVAL, arm=arm(1, "third"))
    assert decide(RULES, there, here(at_s=5001.0, rivals=(third,)))[1].arm == third.arm


def test_restarts_of_a_model_that_does_not_serve_are_forgotten_after_a_day() -> None:
    state = PolicyState(clock_s=100.0, seen_s=1000.0, restarts=(10.0, 90.0))
    assert recent_restarts(state, 1000.0) == 2
    assert recent_restarts(state, 500.0) == 2
    assert recent_restarts(state, 1000.0 + DAY_S - 50.0) == 1
    assert recent_restarts(state, 1000.0 + DAY_S) == 0


def test_a_member_that_was_never_measured_is_measured_in_a_long_silence() -> None:
    never = (arm(0, "other"),)
    _, decision = decide(RULES, PolicyState(), moment(unmeasured=never))
    assert (decision.act, decision.subject, decision.arm) == (Act.MEASURE, "other", never[0])
    assert decision.reason == ("other was never measured, so nothing says if it would be better")
    for more, why in (
        ({"idle_s": 600.0}, "the card has been idle for 600 s only"),
        ({"requests": 1}, "somebody is being served"),
        ({"unmeasurable": "the edge is at 71 C"}, "the edge is at 71 C"),
        ({"other_restarts": 6}, "6 restarts were used within a day"),
    ):
        _, kept = decide(RULES, PolicyState(), moment(unmeasured=never, **more))
        assert kept.reason.startswith(f"keep m@2: would measure other but {why}: other was never")
    _, depth = decide(RULES, PolicyState(), moment(BETTER, unmeasured=never))
    assert depth.arm == BETTER.arm


def test_a_broken_head_is_an_alert_once_and_then_depth_0() -> None:
    plain = prospect(arm(0), 0.4)
    broken = partial(moment, plain, broken="0 of 900 were accepted")
    state, alert = decide(RULES, PolicyState(), broken())
    assert effect(alert) == Alert(message="the draft head of m@2 is broken: 0 of 900 were accepted")
    assert alert.act is Act.REJECT
    state, decision = decide(RULES, state, broken(at_s=60.0))
    assert effect(decision) == SetDepth(arm=arm(0))
    assert decision.reason == ("depth 0 until the draft head works again: 0 of 900 were accepted")
    nowhere = moment(broken="0 of 900 were accepted", at_s=60.0)
    assert decide(RULES, replace(state, restarts=()), nowhere)[1].act is Act.KEEP


def test_what_is_stale_is_measured_again_until_there_is_a_new_calibration() -> None:
    stale = staleness({"power_cap_w": 225}, {"power_cap_w": 150})
    first, decision = decide(RULES, PolicyState(), moment(BETTER, stale=stale))
    assert effect(decision) == Remeasure(
        arm=arm(2),
        reason="what is stored no longer holds: power_cap_w was 225 and is 150",
    )
    assert first.measured_s == 0.0
    _, held = decide(RULES, first, moment(BETTER, at_s=60.0, stale=stale))
    assert "would measure but 1740 s are left of the dwell time" in held.reason


def test_a_cap_that_is_set_back_makes_the_results_hold_again() -> None:
    stale = staleness({"power_cap_w": 225}, {"power_cap_w": 150})
    state, held = decide(RULES, PolicyState(), moment(BETTER, stale=stale, requests=1))
    assert "would measure" in held.reason
    assert decide(RULES, state, moment(BETTER, at_s=60.0))[1].act is Act.SWITCH


def test_what_cannot_be_measured_now_waits_and_says_why() -> None:
    asked = moment(stale=("driver was 1 and is 2",), unmeasurable="the edge is at 71 C")
    state, intent = intend(RULES, PolicyState(), asked)
    assert intent.waits_for == "the edge is at 71 C"
    assert intent.wish is not None
    assert (intent.wish.act, intent.wish.arm) == (Act.MEASURE, arm(2))
    assert state.restarts == ()


GROWTH = Growth(says="512 MiB in 10 min, full in 42 min", full_in_s=2520.0)


def test_memory_that_grows_asks_for_a_restart_of_the_same_arm() -> None:
    state, decision = decide(RULES, after(60.0), moment(at_s=90.0, growth=GROWTH))
    assert effect(decision) == Restart(arm=arm(2))
    assert decision.reason == (
        "restart of m@2 before its memory spills: 512 MiB in 10 min, full in 42 min"
    )
    assert state.previous == arm(1), "a restart is no switch to come back from"
    assert state.restarts[-1] == state.clock_s


@pytest.mark.parametrize(
    ("more", "full_in_s", "waits_for"),
    [
        ({"requests": 1}, 60.0, "somebody is being served"),
        ({"idle_s": 5.0}, 2520.0, "the card has been idle for 5 s only"),
        ({"idle_s": 5.0}, None, "the card has been idle for 5 s only"),
        ({"idle_s": 5.0}, 60.0, None),
        ({"other_restarts": 6}, 60.0, "6 restarts were used within a day"),
    ],
)
def test_a_restart_never_disturbs_and_hurries_where_memory_is_nearly_full(
    more: dict[str, object], full_in_s: float | None, waits_for: str | None
) -> None:
    asked = replace(moment(growth=replace(GROWTH, full_in_s=full_in_s)), **more)  # type: ignore[arg-type]
    _, intent = intend(RULES, PolicyState(), asked)
    assert intent.waits_for == waits_for
    assert intent.wish is not None
    assert intent.wish.arm == arm(2)
    assert (intent.decision.act is Act.SWITCH) is (waits_for is None)
    _, observed = intend(Rules(mode=Mode.OBSERVE), PolicyState(), asked)
    assert observed.decision.reason.startswith("keep m@2: would restart but the mode is observe")


def test_an_eviction_in_flight_is_remembered_and_measured_when_idle() -> None:
    doubt = ("a step of m@2 takes 1.80x of its reference",)
    state, held = decide(RULES, PolicyState(), moment(doubts=doubt, requests=1))
    assert "would measure but somebody is being served" in held.reason
    _, decision = decide(RULES, state, moment(at_s=60.0))
    assert decision.act is Act.MEASURE


def test_doubts_do_not_pile_up_while_nothing_is_measured() -> None:
    state = PolicyState()
    doubts = [f"a step of m@2 takes 1.8{life}x of its reference" for life in range(DOUBTS + 2)]
    for doubt in (*doubts, doubts[-1]):
        state, _ = decide(RULES, state, moment(doubts=(doubt,), requests=1))
    assert state.doubts == tuple(doubts[:DOUBTS])


def test_a_measurement_waits_for_a_longer_silence_than_a_switch() -> None:
    stale = moment(BETTER, stale=("driver was 1 and is 2",), idle_s=600.0)
    _, held = decide(RULES, PolicyState(), stale)
    assert "would measure but the card has been idle for 600 s only" in held.reason


def test_what_is_worth_knowing_is_measured_and_not_too_often() -> None:
    unsure = prospect(arm(3), 0.06, 0.06)
    ask = partial(moment, unsure, tokens_per_s=30.0)
    state, decision = decide(RULES, PolicyState(), ask(measure_cost_s=120.0))
    assert decision.act is Act.MEASURE
    assert decision.arm == arm(3)
    assert decision.reason.startswith("too close to call and worth a measurement: m@3 gain +6.2%")
    for cost in (None, 1e6):
        assert decide(RULES, PolicyState(), ask(measure_cost_s=cost))[1].act is Act.KEEP
    _, again = decide(RULES, state, ask(measure_cost_s=120.0, at_s=2000.0))
    assert again.act is Act.KEEP
    hopeless = moment(prospect(arm(3), -0.07, 0.06), measure_cost_s=1.0)
    assert decide(RULES, PolicyState(), hopeless)[1].act is Act.KEEP


def test_the_value_of_knowing_is_the_mean_gain_above_what_is_required() -> None:
    normal = NormalDist()
    u = (0.06 - math.log(1.05)) / 0.06
    busy_s = 30.0 * 8 * 3600 / 45
    value_s = busy_s * 0.06 * (normal.pdf(u) + u * normal.cdf(u))
    for cost_s, act in ((value_s - 0.1, Act.MEASURE), (value_s + 0.1, Act.KEEP)):
        seen = moment(prospect(arm(3), 0.06, 0.06), tokens_per_s=30.0, measure_cost_s=cost_s)
        assert decide(RULES, PolicyState(), seen)[1].act is act


def test_the_horizon_is_how_long_things_last() -> None:
    assert horizon_s(RULES, PolicyState()) == 8 * 3600
    assert horizon_s(RULES, PolicyState(watched_s=9 * DAY_S)) == DAY_S
    assert horizon_s(RULES, PolicyState(watched_s=DAY_S, changes=15)) == 7200
    assert horizon_s(RULES, PolicyState(watched_s=DAY_S, changes=500)) == 1800


def test_where_things_change_often_a_switch_must_earn_its_cost_back_sooner() -> None:
    restless = PolicyState(watched_s=DAY_S, changes=100)
    seen = moment(prospect(arm(3), 0.2), switch_cost_s=150.0)
    _, held = decide(RULES, restless, seen)
    required = -math.log(1 - 150 * 45 / (20 * 1800))
    assert held.act is Act.KEEP
    assert f"; {math.expm1(required):.1%} is required" in held.reason
    assert decide(RULES, PolicyState(watched_s=DAY_S), seen)[1].act is Act.SWITCH


def test_changes_are_counted_once_per_dwell_and_old_ones_count_half() -> None:
    state, _ = decide(RULES, PolicyState(), moment(drifted=True))
    state, _ = decide(RULES, state, moment(drifted=True, at_s=1799.0))
    assert state.changes == 1
    state, _ = decide(RULES, state, moment(drifted=True, at_s=1800.0))
    assert state.changes == 2
    old = replace(state, watched_s=RULES.remember_s)
    later, _ = decide(RULES, old, moment(at_s=1900.0))
    assert (later.changes, later.watched_s) == (1.0, (RULES.remember_s + 100) / 2)


def test_a_clock_set_back_or_a_suspended_machine_does_no_harm() -> None:
    state = after(1000)
    back, held = decide(RULES, state, moment(BETTER, at_s=-5000.0))
    assert back.clock_s == state.clock_s
    assert "800 s are left of the dwell time" in held.reason
    jumped, _ = decide(RULES, back, moment(at_s=1e9))
    assert jumped.clock_s == back.clock_s + RULES.longest_step_s


def test_moments_and_states_survive_json_and_a_recorded_decision_is_repeated() -> None:
    moments = [moment(BETTER, at_s=600.0 * i, drifted=i % 3 == 0) for i in range(9)]
    policy = partial(decide, RULES)
    made = decisions(policy, PolicyState(), moments)
    stored = [json.dumps(dataclasses.asdict(m)) for m in moments]
    read = [TypeAdapter(Moment).validate_json(text) for text in stored]
    assert read == moments
    assert first_difference(policy, PolicyState(), zip(read, made, strict=True)) is None
    strict = partial(decide, replace(RULES, least_gain=0.3))
    found = first_difference(strict, PolicyState(), zip(read, made, strict=True))
    assert found is not None
    assert found[0] == 0
    state = after(1000)
    text = json.dumps(dataclasses.asdict(state))
    assert TypeAdapter(PolicyState).validate_json(text) == state


def test_what_changed_between_two_fingerprints_is_named() -> None:
    before: dict[str, Field] = {"binary": "a", "cap_w": 225, "context": 4096, "gone": 1}
    now: dict[str, Field] = {"binary": "a", "cap_w": 150, "context": None, "new": True}
    before["driver"], now["driver"] = Unknown("not readable"), "6.2"
    assert staleness(before, now) == (
        "cap_w was 225 and is 150",
        "context was 4096 and is gone",
        "gone was 1 and is gone",
        "new is True and was not set",
    )
    assert staleness({"draft": None}, {"draft": "head.gguf"}) == (
        "draft is head.gguf and was not set",
    )
    assert staleness(before, before) == ()
