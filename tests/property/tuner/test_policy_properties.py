from __future__ import annotations

import itertools
import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tuner.moment import DAY_S, Growth, Mode, Moment, PolicyState, Rules, SetDepth
from tuner.outlook import Prospect
from tuner.policy import decide, effect, horizon_s
from tuner.rivals import Rival
from tuner.types import Act, Arm, Decision, Interval
from tuner.worth import switch_decision

RULES = Rules(mode=Mode.IDLE)
DEPTHS = (0, 1, 2, 3)

gains = st.floats(-0.6, 0.6)
sds = st.floats(0.001, 0.2)


def prospect(depth: int, gain: float, sd: float) -> Prospect:
    tps = 45 * math.exp(gain)
    return Prospect(
        arm=arm(depth), gain=gain, sd=sd, tps=Interval(low=0.8 * tps, mid=tps, high=1.2 * tps)
    )


@st.composite
def looks(draw: st.DrawFn) -> Moment:
    """A moment without its time and its running arm."""
    return Moment(
        at_s=0.0,
        running=arm(2),
        prospects=tuple(prospect(k, draw(gains), draw(sds)) for k in DEPTHS),
        tokens_per_s=draw(st.floats(0.0, 40.0)),
        switch_cost_s=draw(st.floats(0.0, 300.0)),
        measure_cost_s=draw(st.none() | st.floats(0.0, 1000.0)),
        stale=draw(st.sampled_from([(), (), (), ("cap_w was 225 and is 150",)])),
        calibration=draw(st.sampled_from(["a", "a", "b"])),
        drifted=draw(st.booleans()),
        broken=draw(st.sampled_from([None, None, None, "nothing is accepted"])),
        requests=draw(st.sampled_from([0, 0, 0, 2])),
        idle_s=draw(st.sampled_from([0.0, 600.0, 1800.0])),
        other_restarts=draw(st.integers(0, 2)),
        growth=draw(st.sampled_from([None, None, None, Growth(says="64 MiB in 10 min")])),
        pinned=draw(st.sampled_from([False, False, False, True])),
    )


def walk(steps: list[float], moments: list[Moment]) -> list[tuple[Moment, Decision]]:
    """Let the policy live through the moments; what it asks for is done at once."""
    state, now, running = PolicyState(), 0.0, arm(2)
    out: list[tuple[Moment, Decision]] = []
    for step, look in zip(steps, moments, strict=False):
        now += step
        own = tuple(replace(p, gain=0.0, sd=0.0) if p.arm == running else p for p in look.prospects)
        seen = replace(look, at_s=now, running=running, prospects=own)
        state, decision = decide(RULES, state, seen)
        asked = effect(decision)
        if isinstance(asked, SetDepth):
            running = asked.arm
        out.append((seen, decision))
    return out


def restarts(lived: list[tuple[Moment, Decision]]) -> list[float]:
    return [m.at_s for m, d in lived if d.act in {Act.SWITCH, Act.MEASURE}]


forward = st.lists(st.floats(0.0, 40_000.0), min_size=1, max_size=30)
anyhow = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
lives = st.lists(looks(), min_size=1, max_size=30)


@given(forward, lives)
def test_two_restarts_are_never_within_the_dwell_time_but_to_give_memory_back(
    steps: list[float], moments: list[Moment]
) -> None:
    done = [(m, d) for m, d in walk(steps, moments) if d.act in {Act.SWITCH, Act.MEASURE}]
    for (before, _), (after, decision) in itertools.pairwise(done):
        grows = decision.arm == decision.previous and after.growth is not None
        assert grows or after.at_s - before.at_s >= RULES.dwell_s


@given(anyhow, lives)
def test_what_an_operator_has_set_is_only_ever_restarted(
    steps: list[float], moments: list[Moment]
) -> None:
    for seen, decision in walk(steps, moments):
        if seen.pinned and decision.act in {Act.SWITCH, Act.MEASURE}:
            assert decision.act is Act.SWITCH
            assert decision.arm == seen.running
            assert seen.growth is not None


@given(forward, lives)
def test_no_rolling_day_has_more_restarts_than_allowed(
    steps: list[float], moments: list[Moment]
) -> None:
    times = restarts(walk(steps, moments))
    for first in times:
        assert sum(first <= t < first + DAY_S for t in times) <= RULES.restarts_per_day


@given(anyhow, lives)
def test_nothing_is_done_while_somebody_waits_whatever_the_clock_says(
    steps: list[float], moments: list[Moment]
) -> None:
    for seen, decision in walk(steps, moments):
        if decision.act in {Act.SWITCH, Act.MEASURE}:
            assert seen.requests == 0
            measured = decision.act is Act.MEASURE
            assert seen.idle_s >= (RULES.measure_idle_s if measured else RULES.idle_s)


@given(anyhow, lives)
def test_the_policys_own_clock_never_runs_back_or_jumps(
    steps: list[float], moments: list[Moment]
) -> None:
    state, now = PolicyState(), 0.0
    for step, look in zip(steps, moments, strict=False):
        now += step
        after, _ = decide(RULES, state, replace(look, at_s=now))
        assert 0 <= after.clock_s - state.clock_s <= RULES.longest_step_s
        state = after


@given(forward, lives)
def test_every_switch_that_was_not_for_a_broken_head_satisfies_the_rule(
    steps: list[float], moments: list[Moment]
) -> None:
    state, now, running = PolicyState(), 0.0, arm(2)
    for step, look in zip(steps, moments, strict=False):
        now += step
        seen = replace(look, at_s=now, running=running)
        state, decision = decide(RULES, state, seen)
        if decision.act is not Act.SWITCH or decision.arm is None or seen.broken:
            continue
        if decision.arm == seen.running:
            assert seen.growth is not None
            continue
        chosen = next(p for p in seen.prospects if p.arm == decision.arm)
        verdict = switch_decision(
            tps_now=chosen.tps.mid * math.exp(-chosen.gain),
            tps_new=chosen.tps.mid,
            sd_log=chosen.sd,
            horizon_tokens=seen.tokens_per_s * horizon_s(RULES, state),
            cost_s=seen.switch_cost_s,
            min_gain=RULES.least_gain,
            p_req=RULES.sure,
        )
        assert verdict.p >= RULES.sure
        assert verdict.x_req is not None
        assert verdict.x_req >= math.log1p(RULES.least_gain)
        running = decision.arm


@given(anyhow, lives)
def test_the_same_life_is_decided_in_the_same_way(
    steps: list[float], moments: list[Moment]
) -> None:
    assert walk(steps, moments) == walk(steps, moments)


@given(st.lists(st.tuples(st.floats(-0.049, 0.048), sds), min_size=4, max_size=4), forward)
def test_equal_arms_are_never_switched(
    evidence: list[tuple[float, float]], steps: list[float]
) -> None:
    """No posterior mean reaches the least gain: more patience changes nothing."""
    state, now = PolicyState(), 0.0
    look = Moment(
        at_s=0.0,
        running=arm(2),
        prospects=tuple(
            prospect(k, 0.0 if k == 2 else g, sd)
            for k, (g, sd) in zip(DEPTHS, evidence, strict=True)
        ),
        tokens_per_s=30.0,
        switch_cost_s=60.0,
        idle_s=600.0,
    )
    for step in steps:
        now += step
        state, decision = decide(RULES, state, replace(look, at_s=now))
        assert decision.act is Act.KEEP
        assert "the chance of that is " in decision.reason


@given(looks(), st.sampled_from([Mode.OFF, Mode.OBSERVE]))
def test_modes_off_and_observe_never_act(look: Moment, mode: Mode) -> None:
    _, decision = decide(replace(RULES, mode=mode), PolicyState(), look)
    assert decision.act in {Act.KEEP, Act.REJECT}


def rival(gain: float | None, sd: float, *, tokens_per_s: float, held: str | None) -> Rival:
    return Rival(
        pool="p",
        arm=Arm(profile="other"),
        gain=gain,
        sd=sd,
        counts="tok/s",
        tps=Interval(low=40.0, mid=45.0, high=50.0),
        now_tps=45.0,
        tokens_per_s=tokens_per_s,
        held=held,
        reason="R2 speed: it is the fastest",
    )


rivals = st.builds(
    rival,
    st.none() | gains,
    sds,
    tokens_per_s=st.floats(0.0, 40.0),
    held=st.sampled_from([None, None, "m was asked for by its own name 3 s ago"]),
)


@given(looks(), rivals)
def test_another_model_is_only_served_where_nothing_holds_it_and_its_requests_pay(
    look: Moment, other: Rival
) -> None:
    _, decision = decide(RULES, PolicyState(), replace(look, rivals=(other,)))
    if decision.arm != other.arm:
        return
    assert decision.act is Act.SWITCH
    assert decision.subject == "p"
    assert other.held is None
    assert not look.pinned
    assert look.requests == 0
    assert look.idle_s >= RULES.idle_s
    assert other.tokens_per_s > 0
    if other.gain is not None:
        assert other.gain > math.log1p(RULES.least_gain)


@given(looks(), st.floats(-0.6, 0.048), sds, st.floats(0.0, 40.0))
def test_a_model_that_is_not_better_by_the_least_gain_is_never_switched_to(
    look: Moment, gain: float, sd: float, tokens_per_s: float
) -> None:
    other = rival(gain, sd, tokens_per_s=tokens_per_s, held=None)
    _, decision = decide(RULES, PolicyState(), replace(look, rivals=(other,)))
    assert decision.arm != other.arm


@given(looks())
def test_a_measurement_of_what_was_never_measured_waits_like_any_other(look: Moment) -> None:
    never = Arm(profile="other")
    _, decision = decide(RULES, PolicyState(), replace(look, unmeasured=(never,)))
    if decision.arm != never:
        return
    assert decision.act is Act.MEASURE
    assert decision.subject == "other"
    assert look.requests == 0
    assert look.idle_s >= RULES.measure_idle_s
