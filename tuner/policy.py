"""Whether to keep, switch, measure again or call for help, moment by moment.

``decide`` is pure: rules, state and moment in, next state and decision out; the caller owns
the clock, the engine and the effects (``effect`` names them). Every refusal says the
probability that was reached and the gain that was required.

A switch needs: a gain that exceeds, with probability ``sure``, both ``least_gain`` and what
earns the cost back within the horizon; ``dwell_s`` since the last one, four times as long for
each return to the arm before; restarts left today; and nobody waiting. The horizon is how
long things have stayed as they are, learnt from how often drift was detected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.moment import (
    DAY_S,
    DOUBTS,
    Alert,
    Effect,
    Intent,
    Keep,
    Mode,
    Moment,
    PolicyState,
    Remeasure,
    Restart,
    Rules,
    SetDepth,
    SwitchModel,
    Wish,
)
from tuner.rivals import weigh
from tuner.special import normal_cdf
from tuner.types import Act, Arm, Decision
from tuner.worth import switch_decision, told

if TYPE_CHECKING:
    from tuner.moment import Growth
    from tuner.outlook import Prospect
    from tuner.worth import SwitchVerdict

__all__ = [
    "decide",
    "effect",
    "horizon_s",
    "intend",
]

_NOT_PERMITTED = "no other arm is permitted and known to fit"
_NOTHING_KNOWN = "nothing that was measured tells what another depth gives"


@dataclass(frozen=True, slots=True)
class _Choice:
    prospect: Prospect
    verdict: SwitchVerdict


def decide(rules: Rules, state: PolicyState, moment: Moment) -> tuple[PolicyState, Decision]:
    """The next state and what to do now.

    A partial application over ``rules`` is a ``tuner.replay.Policy``. In modes off and
    observe, and whenever somebody waits, nothing is done; observe says what idle would do.
    """
    state, intent = intend(rules, state, moment)
    return state, intent.decision


def intend(rules: Rules, state: PolicyState, moment: Moment) -> tuple[PolicyState, Intent]:
    """The same as ``decide``, with what would be done and what it waits for."""
    state = _advanced(rules, state, moment)
    if rules.mode is Mode.OFF:
        return state, _keep(moment, "mode is off")
    if moment.broken is not None and moment.running not in state.alerted:
        reason = f"the draft head of {moment.running} is broken: {moment.broken}"
        alerted = replace(state, alerted=(*state.alerted, moment.running))
        return alerted, Intent(decision=_decision(Act.REJECT, moment, moment.running, reason))
    if (wish := _pressing(state, moment)) is not None:
        return _act(rules, state, moment, wish)
    if moment.pinned:
        return state, _keep(moment, "an operator has set it")
    return _weighed(rules, state, moment)


def _pressing(state: PolicyState, moment: Moment) -> Wish | None:
    """What is to be done whatever the prospects are, or None."""
    running = moment.running
    if moment.growth is not None:
        reason = f"restart of {running} before its memory spills: {moment.growth.says}"
        return Wish(act=Act.SWITCH, arm=running, reason=reason)
    if moment.pinned:
        return None
    plain = next((p.arm for p in moment.prospects if p.arm.depth == 0), None)
    if moment.broken is not None and plain is not None:
        reason = f"depth 0 until the draft head works again: {moment.broken}"
        return Wish(act=Act.SWITCH, arm=plain, reason=reason)
    if why := tuple(dict.fromkeys((*moment.stale, *state.doubts))):
        reason = "what is stored no longer holds: " + "; ".join(why)
        return Wish(act=Act.MEASURE, arm=running, reason=reason)
    return None


def effect(decision: Decision) -> Effect:
    """What a decision asks of the caller."""
    arm, before = decision.arm, decision.previous
    if decision.act is Act.REJECT:
        return Alert(message=decision.reason)
    if decision.act is Act.MEASURE and arm is not None:
        return Remeasure(arm=arm, reason=decision.reason)
    if decision.act is not Act.SWITCH or arm is None:
        return Keep()
    if before == arm:
        return Restart(arm=arm)
    if before is not None and before.profile == arm.profile:
        return SetDepth(arm=arm)
    return SwitchModel(arm=arm, pool=decision.subject)


def horizon_s(rules: Rules, state: PolicyState) -> float:
    """How long the present is expected to last: time watched per change seen.

    One change in ``first_horizon_s`` is taken as seen beforehand.
    """
    length = (state.watched_s + rules.first_horizon_s) / (state.changes + 1)
    return min(max(length, rules.dwell_s), rules.longest_horizon_s)


def _weighed(rules: Rules, state: PolicyState, moment: Moment) -> tuple[PolicyState, Intent]:
    wishes, said = _rivals(rules, state, moment)
    free = next((wish for wish in wishes if wish.held is None), None)
    if free is not None:
        return _act(rules, state, moment, free)
    choices = [
        _Choice(p, _verdict(rules, state, moment, p))
        for p in moment.prospects
        if moment.permits(p.arm)
    ]
    if not choices:
        why = said or (_NOT_PERMITTED if moment.prospects else _NOTHING_KNOWN)
        return _otherwise(rules, state, moment, wishes, why)
    worth = [c for c in choices if c.verdict.switch]
    best = max(worth or choices, key=lambda c: (c.prospect.gain, -c.prospect.arm.depth))
    gain = told(best.verdict, best.prospect.gain)
    if worth:
        reason = f"{best.prospect.arm} pays: {gain}"
        wish = Wish(act=Act.SWITCH, arm=best.prospect.arm, reason=reason)
        return _act(rules, state, moment, wish)
    if _worth_knowing(rules, state, moment, best):
        reason = f"too close to call and worth a measurement: {best.prospect.arm} {gain}"
        wish = Wish(act=Act.MEASURE, arm=best.prospect.arm, reason=reason)
        return _act(rules, state, moment, wish)
    why = f"{best.prospect.arm} does not pay enough: {gain}" + (f"; {said}" if said else "")
    return _otherwise(rules, state, moment, wishes, why)


def _rivals(rules: Rules, state: PolicyState, moment: Moment) -> tuple[list[Wish], str]:
    """The other models that are worth a switch, and what is said of those that are not."""
    wishes, said = list[Wish](), list[str]()
    for rival in moment.rivals:
        length_s = horizon_s(rules, state)
        pays, clause = weigh(rules, rival, horizon_s=length_s, cost_s=moment.switch_cost_s)
        if pays:
            reason = f"{rival.arm} is better for {rival.pool}: {clause}; {rival.reason}"
            wishes.append(
                Wish(act=Act.SWITCH, arm=rival.arm, reason=reason, rival=rival, held=rival.held)
            )
        else:
            said.append(f"{rival.arm} would be better for {rival.pool}, but not enough: {clause}")
    return wishes, "; ".join(said)


def _otherwise(
    rules: Rules, state: PolicyState, moment: Moment, wishes: list[Wish], why: str
) -> tuple[PolicyState, Intent]:
    """What is left to wish for where no depth pays."""
    if wishes:
        return _act(rules, state, moment, wishes[0])
    if moment.unmeasured:
        arm = moment.unmeasured[0]
        reason = f"{arm.profile} was never measured, so nothing says if it would be better"
        return _act(rules, state, moment, Wish(act=Act.MEASURE, arm=arm, reason=reason))
    return state, _keep(moment, why)


def _verdict(rules: Rules, state: PolicyState, moment: Moment, prospect: Prospect) -> SwitchVerdict:
    now = prospect.tps.mid * math.exp(-prospect.gain)
    return switch_decision(
        tps_now=now,
        tps_new=prospect.tps.mid,
        sd_log=prospect.sd,
        horizon_tokens=moment.tokens_per_s * horizon_s(rules, state),
        cost_s=moment.switch_cost_s,
        min_gain=rules.least_gain,
        p_req=rules.sure,
    )


def _worth_knowing(rules: Rules, state: PolicyState, moment: Moment, best: _Choice) -> bool:
    """Whether knowing the gain would save more than measuring it costs.

    The value of knowing is what is gained above ``x_req`` on average, were it known:
    sd (pdf(u) + u cdf(u)) with u = (gain - x_req) / sd, over the busy time of the horizon.
    """
    cost, x_req, sd = moment.measure_cost_s, best.verdict.x_req, best.prospect.sd
    if cost is None or x_req is None or sd <= 0 or best.verdict.p <= 1 - rules.sure:
        return False
    known_s = math.inf if state.measured_s is None else state.clock_s - state.measured_s
    if known_s < rules.measure_every_s:
        return False
    u = (best.prospect.gain - x_req) / sd
    per_second = sd * (_normal_pdf(u) + u * normal_cdf(u))
    now = best.prospect.tps.mid * math.exp(-best.prospect.gain)
    busy_s = moment.tokens_per_s * horizon_s(rules, state) / now
    return busy_s * per_second > cost


def _act(
    rules: Rules, state: PolicyState, moment: Moment, wish: Wish
) -> tuple[PolicyState, Intent]:
    """Do it, or say what stands in the way."""
    held = _held(rules, state, moment, wish)
    if held is not None:
        says = f"would {_verb(moment, wish)} but {held}: {wish.reason}"
        return state, replace(_keep(moment, says), wish=wish, waits_for=held)
    if wish.act is Act.MEASURE:
        own = wish.arm.profile == moment.running.profile
        after = replace(state, measured_s=state.clock_s) if own else state
    elif wish.arm == moment.running:
        after = state
    else:
        returns = _returns(rules, state) + 1 if _goes_back(state, moment, wish) else 0
        after = replace(state, previous=moment.running, returns=returns)
    after = replace(after, restarts=(*after.restarts, state.clock_s))
    decision = _decision(wish.act, moment, wish.arm, wish.reason)
    if wish.rival is not None:
        rival = wish.rival
        decision = replace(
            decision, subject=rival.pool, predicted=rival.tps, evidence=rival.evidence
        )
    return after, Intent(decision=decision, wish=wish)


def _goes_back(state: PolicyState, moment: Moment, wish: Wish) -> bool:
    """Whether a switch leads to what served before; of another model any depth is that."""
    before = state.previous
    if before is None or wish.arm.profile == moment.running.profile:
        return wish.arm == before
    return wish.arm.profile == before.profile


def _verb(moment: Moment, wish: Wish) -> str:
    if wish.act is Act.MEASURE:
        own = wish.arm.profile == moment.running.profile
        return "measure" if own else f"measure {wish.arm.profile}"
    return "restart" if wish.arm == moment.running else f"switch to {wish.arm}"


def _held(rules: Rules, state: PolicyState, moment: Moment, wish: Wish) -> str | None:
    """What forbids acting now, or None."""
    observes = "the mode is observe" if rules.mode is Mode.OBSERVE else None
    if (always := observes or wish.held) is not None:
        return always
    if moment.growth is not None and wish.arm == moment.running and wish.act is Act.SWITCH:
        return _spent(rules, state, moment) or _in_use(moment, _patience_s(rules, moment.growth))
    wait = rules.dwell_s
    if wish.act is Act.SWITCH and _goes_back(state, moment, wish):
        longer = wait * rules.back_off ** (_returns(rules, state) + 1)
        wait = max(wait, min(longer, rules.longest_horizon_s))
    waited = state.clock_s - max(state.restarts, default=-math.inf)
    if waited < wait:
        return f"{wait - waited:.0f} s are left of the dwell time"
    if (spent := _spent(rules, state, moment)) is not None:
        return spent
    if wish.act is not Act.MEASURE:
        return _in_use(moment, rules.idle_s)
    return _in_use(moment, rules.measure_idle_s) or moment.unmeasurable


def _patience_s(rules: Rules, growth: Growth) -> float:
    """How long the card must have been idle before memory that grows is given back."""
    soon = growth.full_in_s is not None and growth.full_in_s < rules.urgent_s
    return 0.0 if soon else rules.idle_s


def _spent(rules: Rules, state: PolicyState, moment: Moment) -> str | None:
    used = len(state.restarts) + moment.other_restarts
    return f"{used} restarts were used within a day" if used >= rules.restarts_per_day else None


def _in_use(moment: Moment, quiet_s: float) -> str | None:
    if moment.requests:
        return "somebody is being served"
    if moment.idle_s < quiet_s:
        return f"the card has been idle for {moment.idle_s:.0f} s only"
    return None


def _returns(rules: Rules, state: PolicyState) -> int:
    """Returns to the arm before that still count; one is forgiven per ``forgive_s``."""
    quiet_s = state.clock_s - max(state.restarts, default=state.clock_s)
    return max(state.returns - int(quiet_s // rules.forgive_s), 0)


def _advanced(rules: Rules, state: PolicyState, moment: Moment) -> PolicyState:
    """Move the policy's own clock, which never runs backwards, and note what happened.

    A clock that was set back stands still for one moment; a jump (a suspended machine)
    counts as ``longest_step_s``, because nothing was seen meanwhile.
    """
    before = moment.at_s if state.seen_s is None else state.seen_s
    passed = min(max(moment.at_s - before, 0.0), rules.longest_step_s)
    clock_s, watched_s = state.clock_s + passed, state.watched_s + passed
    doubts = state.doubts if state.calibration == moment.calibration else ()
    fresh = tuple(dict.fromkeys(d for d in moment.doubts if d not in doubts))
    since_change = math.inf if state.changed_s is None else clock_s - state.changed_s
    changed = moment.drifted and since_change >= rules.dwell_s
    changes = state.changes + changed
    if watched_s > rules.remember_s:
        watched_s, changes = watched_s / 2, changes / 2
    return replace(
        state,
        clock_s=clock_s,
        seen_s=moment.at_s,
        calibration=moment.calibration,
        doubts=(*doubts, *fresh)[:DOUBTS],
        changed_s=clock_s if changed else state.changed_s,
        changes=changes,
        watched_s=watched_s,
        restarts=tuple(t for t in state.restarts if clock_s - t < DAY_S),
    )


def _keep(moment: Moment, reason: str) -> Intent:
    reason = f"keep {moment.running}: {reason}"
    return Intent(decision=_decision(Act.KEEP, moment, moment.running, reason))


def _decision(act: Act, moment: Moment, arm: Arm, reason: str) -> Decision:
    predicted = next((p.tps for p in moment.prospects if p.arm == arm), None)
    evidence = [
        f"{p.arm}: {p.tps.mid:.1f} tok/s, gain {p.gain:+.3f} +- {p.sd:.3f} in log tok/s"
        for p in moment.prospects
    ]
    return Decision(
        act=act,
        subject=arm.profile if act is Act.MEASURE else moment.running.profile,
        arm=arm,
        previous=moment.running,
        predicted=predicted,
        reason=reason,
        evidence=tuple(evidence),
    )


def _normal_pdf(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
