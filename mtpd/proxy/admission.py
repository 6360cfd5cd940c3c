"""Who may run now, who waits, who is turned away: a pure machine for one device.

``step(state, event) -> (state, effects)``. Waiters form one queue; ``mtpd.proxy.order``
says who is first and who may overtake. Who is next is admitted when the engine of its
profile is ready and has a free slot. When the first of the queue wants another profile and
nobody may overtake it any more, the running requests end, then the engine is changed.

Not covered: how engines start and stop (``mtpd.proxy.switch``), and what a request is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import assert_never

from mtpd.proxy import order
from mtpd.proxy.admission_types import (
    Admit,
    Arrive,
    Bound,
    Broken,
    Close,
    Done,
    Drained,
    Effect,
    EngineEvent,
    Event,
    Failed,
    Forget,
    GateEvent,
    Hold,
    Leave,
    Lost,
    Mended,
    NoEngine,
    Pending,
    Ready,
    Recovering,
    Reject,
    RejectKind,
    Release,
    RequestEvent,
    Result,
    Serving,
    State,
    Stopped,
    Tick,
    Turn,
    Waiter,
    WantEngine,
)

__all__ = ["next_deadline", "step"]

MIN_RETRY_S = 1
MAX_RETRY_S = 120


def step(state: State, event: Event) -> Result:
    """The next state and what the switchboard must do."""
    if isinstance(event, Arrive | Tick | Failed):
        state = replace(state, now=max(state.now, event.now))
    match event:
        case Arrive() | Leave() | Done() | Tick():
            return _request(state, event)
        case Ready() | Lost() | Stopped() | Failed():
            return _engine(state, event)
        case Hold() | Release() | Close() | Forget() | Mended() | Bound():
            return _gate(state, event)
        case _:
            assert_never(event)


def next_deadline(state: State) -> float | None:
    """When the next Tick is due, or None if nobody waits."""
    return min((waiter.deadline for waiter in state.waiting), default=None)


def _request(state: State, event: RequestEvent) -> Result:
    match event:
        case Arrive():
            return _arrive(state, event)
        case Leave(gone) | Done(gone):
            waiting = tuple(w for w in state.waiting if w.id != gone)
            alone = None if state.alone == gone else state.alone
            running = state.running - {gone}
            return _pump(replace(state, waiting=waiting, running=running, alone=alone))
        case Tick(now):
            return _expire(state, now)
        case _:
            assert_never(event)


def _arrive(state: State, event: Arrive) -> Result:
    if state.closed is not None:
        return _turn_away(state, event.id, RejectKind.CLOSED, state.closed, MIN_RETRY_S)
    broken = next((b for b in state.broken if b.profile == event.profile), None)
    if broken is not None and event.now < broken.until:
        rest = broken.until - event.now
        return _turn_away(state, event.id, RejectKind.ENGINE, broken.why, rest)
    waiter = Waiter(event.id, event.profile, event.now, event.now + state.timeout_s, event.claim)
    joined, effects = _pump(replace(state, waiting=(*state.waiting, waiter)))
    if waiter not in joined.waiting:
        return joined, effects
    own = [w for w in state.waiting if w.claim.caller == event.claim.caller]
    limit = state.order.max_waiting_per_caller
    if event.claim.caller is not None and 0 < limit <= len(own):
        why = f"the token {event.claim.caller} has as many requests waiting as it may ({limit})"
        return _turn_away(state, event.id, RejectKind.CALLER, why, event.now - own[0].arrived)
    if len(state.waiting) >= state.limit:
        why = f"{len(state.waiting)} requests are waiting already"
        oldest = state.waiting[0].arrived if state.waiting else event.now
        # The queue is at least as long as its oldest waiter has waited.
        return _turn_away(state, event.id, RejectKind.FULL, why, event.now - oldest)
    return joined, effects


def _turn_away(state: State, who: int, kind: RejectKind, why: str, retry_s: float) -> Result:
    return state, (Reject(who, kind, why, _retry(retry_s)),)


def _retry(seconds: float) -> int:
    return max(MIN_RETRY_S, min(MAX_RETRY_S, math.ceil(seconds)))


def _expire(state: State, now: float) -> Result:
    late = tuple(w for w in state.waiting if w.deadline <= now)
    state = replace(
        state,
        waiting=tuple(w for w in state.waiting if w.deadline > now),
        broken=tuple(b for b in state.broken if b.until > now),
    )
    rejects = tuple(
        Reject(w.id, RejectKind.DEADLINE, _why_late(state, w), _retry(state.timeout_s / 4))
        for w in late
    )
    state, effects = _pump(state)
    return state, rejects + effects


def _why_late(state: State, waiter: Waiter) -> str:
    why = f"no engine was free for {waiter.profile} within {state.timeout_s:g} s"
    return why if state.held is None else f"{why}: {state.held}"


def _engine(state: State, event: EngineEvent) -> Result:
    match event:
        case Ready(profile, capacity):
            state = replace(
                state, engine=Serving(profile, capacity), broken=_unbroken(state, profile)
            )
            return _pump(_turn(state))
        case Lost():
            if isinstance(state.engine, Serving | Pending):
                state = replace(state, engine=Recovering(state.engine.profile))
            return _pump(state)
        case Stopped():
            return _pump(replace(state, engine=NoEngine()))
        case Failed():
            return _fail(state, event)
        case _:
            assert_never(event)


def _turn(state: State) -> State:
    """Begin the turn of the model that serves requests now, unless it only came back."""
    engine, last = state.engine, state.turn
    if state.held is not None or not isinstance(engine, Serving):
        return state
    if last is not None and last.profile == engine.profile:
        return state
    waiting = tuple(replace(w, overtaken=0) for w in state.waiting)
    return replace(state, turn=Turn(engine.profile, state.now), waiting=waiting)


def _fail(state: State, event: Failed) -> Result:
    hit = tuple(w for w in state.waiting if w.profile == event.profile)
    entry = Broken(event.profile, event.why, event.now + event.retry_after_s)
    state = replace(
        state,
        waiting=tuple(w for w in state.waiting if w.profile != event.profile),
        broken=(*_unbroken(state, event.profile), entry),
        engine=NoEngine() if event.restoring is None else Pending(event.restoring),
    )
    retry = _retry(event.retry_after_s)
    rejects = tuple(Reject(w.id, RejectKind.ENGINE, event.why, retry) for w in hit)
    state, effects = _pump(state)
    return state, rejects + effects


def _gate(state: State, event: GateEvent) -> Result:
    match event:
        case Hold(reason):
            return _pump(replace(state, held=reason, drained=False))
        case Release():
            return _pump(_turn(replace(state, held=None, drained=False)))
        case Close(reason):
            rejects = tuple(
                Reject(w.id, RejectKind.CLOSED, reason, MIN_RETRY_S) for w in state.waiting
            )
            state, effects = _pump(replace(state, closed=reason, waiting=()))
            return state, rejects + effects
        case Forget():
            return _forget(state, event)
        case Mended(profile):
            return replace(state, broken=_unbroken(state, profile)), ()
        case Bound(limit, timeout_s, order=rules):
            return _pump(replace(state, limit=limit, timeout_s=timeout_s, order=rules))
        case _:
            assert_never(event)


def _forget(state: State, event: Forget) -> Result:
    gone = tuple(w for w in state.waiting if w.profile == event.profile)
    state = replace(
        state,
        waiting=tuple(w for w in state.waiting if w.profile != event.profile),
        broken=_unbroken(state, event.profile),
        engine=NoEngine() if state.engine == Pending(event.profile) else state.engine,
    )
    rejects = tuple(Reject(w.id, RejectKind.REMOVED, event.why, MIN_RETRY_S) for w in gone)
    state, effects = _pump(state)
    return state, rejects + effects


def _unbroken(state: State, profile: str) -> tuple[Broken, ...]:
    return tuple(one for one in state.broken if one.profile != profile)


def _pump(state: State) -> Result:
    """Admit whose turn it is, as far as it goes; then see whether the engine is to change."""
    effects: list[Effect] = []
    if state.held is not None:
        if not state.running and not state.drained:
            state = replace(state, drained=True)
            effects.append(Drained())
        return state, tuple(effects)
    while (admitted := order.next_to_run(state)) is not None:
        state = _admit(state, admitted)
        effects.append(Admit(admitted.id))
    first = order.first(state)
    if first is not None and _may_change(state, first.profile):
        state = replace(state, engine=Pending(first.profile))
        effects.append(WantEngine(first.profile))
    return state, tuple(effects)


def _admit(state: State, admitted: Waiter) -> State:
    passed = {waiter.id for waiter in order.before(state, admitted)}
    waiting = tuple(
        replace(w, overtaken=w.overtaken + 1) if w.id in passed else w
        for w in state.waiting
        if w.id != admitted.id
    )
    return replace(
        state,
        waiting=waiting,
        running=state.running | {admitted.id},
        alone=admitted.id if admitted.claim.alone else state.alone,
    )


def _may_change(state: State, wanted: str) -> bool:
    """Whether the engine may be replaced: nothing runs and nobody is bringing up another."""
    match state.engine:
        case Pending():
            return False
        case Serving(profile, _) | Recovering(profile):
            return profile != wanted and not state.running
        case NoEngine():
            return not state.running
        case _:
            assert_never(state.engine)
