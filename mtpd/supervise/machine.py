"""Lifecycle of one engine as a pure function.

``step(engine, event) -> (engine, effects)`` reads no clock and does no I/O: the
runner executes the effects and feeds their outcome back as events. What is
unexpected but possible (news of a process that has ended since, a second stop) never
raises; what no order of events can produce raises InvalidTransitionError.

Not covered: draining requests before a stop, which the proxy does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from mtpd.supervise import moves
from mtpd.supervise.backoff import HEALTHY_S
from mtpd.supervise.messages import (
    Broken,
    Condemn,
    Exited,
    Healthy,
    Judged,
    Probed,
    Progress,
    Released,
    Spawned,
    SpawnFailed,
    Start,
    StartProbe,
    Stop,
    TimedOut,
    Unhealthy,
)
from mtpd.supervise.retry import resolve
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Cause,
    Engine,
    Failed,
    Halt,
    Launch,
    Loading,
    Probing,
    Ready,
    Releasing,
    Retry,
    Spawning,
    Stopped,
    Stopping,
    Wedged,
    label,
)
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from mtpd.supervise.messages import Event
    from mtpd.supervise.moves import Result
    from mtpd.supervise.states import Rest, Then
    from mtpd.types import LaunchPlan

__all__ = ["InvalidTransitionError", "same", "step"]

STORY = 24


class InvalidTransitionError(Exception):
    """The runner delivered an event that the state cannot receive."""

    def __init__(self, engine: Engine, event: Event, *, age: int = 0) -> None:
        # Plans are left out: their environment may hold a key.
        story = "\n".join(engine.story)
        told, state = type(event).__name__, label(engine.state)
        place = f"start {engine.start}, timer {engine.timer}, {age:+d}"
        super().__init__(f"{told} is not possible in {state} ({place}); before it came:\n{story}")


def same(one: LaunchPlan, other: LaunchPlan) -> bool:
    """Whether two plans start the same thing; where it listens does not matter."""
    return (one.key, one.arm, one.fingerprint) == (other.key, other.arm, other.fingerprint)


def step(engine: Engine, event: Event) -> Result:
    """Return the next state and what the runner must do."""
    age = _age(engine, event)
    if age > 0 or (age < 0 and isinstance(event, Spawned | SpawnFailed | Exited)):
        raise InvalidTransitionError(engine, event, age=age)
    if age < 0:
        return engine, ()
    return _dispatch(_told(engine, event), event)


def _dispatch(engine: Engine, event: Event) -> Result:
    state = engine.state
    match state:
        case Stopped() | Failed() | Blocked():
            result = _at_rest(engine, event)
        case Spawning():
            result = _spawning(engine, state, event)
        case Loading():
            result = _loading(engine, state, event)
        case Probing():
            result = _probing(engine, state, event)
        case Ready():
            result = _ready(engine, state, event)
        case Stopping():
            result = _stopping(engine, state, event)
        case Releasing():
            result = _releasing(engine, state, event)
        case Backoff():
            result = _backoff(engine, state, event)
        case Wedged():
            result = _wedged(engine, state, event)
        case _:
            assert_never(state)
    return result


# One handler per state --------------------------------------------------------------


def _at_rest(engine: Engine, event: Event) -> Result:
    match event:
        case Start(plan):
            return moves.launch(moves.fresh(engine), plan, "was asked to start")
        case Stop(reason):
            return moves.enter(engine, Stopped(), reason)
        case Released(held=held) if isinstance(engine.state, Blocked):
            if held is None:
                return moves.enter(engine, Stopped(), "the card is free again")
            return moves.blocked(engine, engine.state.plan, held)
        case _:
            return _late(engine, event)


def _spawning(engine: Engine, state: Spawning, event: Event) -> Result:
    match event:
        case Start(plan) if same(plan, state.plan):
            return engine, ()
        case Start(plan):
            return moves.unborn(
                moves.fresh(engine), state, Launch(plan), _replaces(plan, state.plan)
            )
        case Stop(reason):
            return moves.unborn(engine, state, Halt(reason), reason)
        case Spawned(pid=pid, now=now):
            loading = Loading(plan=state.plan, pid=pid, began=now, heard=now)
            probe = StartProbe(start=engine.start, plan=state.plan, pid=pid)
            timer_s = min(state.plan.load_stall_s, state.plan.ready_timeout_s)
            return moves.enter(engine, loading, f"pid {pid} loads", (probe,), timer_s=timer_s)
        case SpawnFailed(cause=cause):
            return moves.settle_failure(engine, state.plan, cause, event)
        case Condemn():
            return engine, ()
        case _:
            raise InvalidTransitionError(engine, event)


def _loading(engine: Engine, state: Loading, event: Event) -> Result:
    match event:
        case Progress(now=now, lines=lines):
            return replace(engine, state=replace(state, heard=now, lines=lines)), ()
        case Healthy():
            probing = Probing(plan=state.plan, pid=state.pid)
            return moves.enter(engine, probing, "answers its health check", timer_s=moves.PROBE_S)
        case Probed():
            return moves.serve(engine, state, event)
        case TimedOut(now=now):
            return moves.load_timer(engine, state, now)
        case _:
            return _alive(engine, state, event)


def _probing(engine: Engine, state: Probing, event: Event) -> Result:
    match event:
        case Probed():
            return moves.serve(engine, state, event)
        case Healthy():
            return engine, ()
        case TimedOut():
            return moves.hang(
                engine, state, f"did not answer the canary within {moves.PROBE_S:.0f} s"
            )
        case _:
            return _alive(engine, state, event)


def _ready(engine: Engine, state: Ready, event: Event) -> Result:
    match event:
        case Condemn(reason=reason, now=now):
            if now - state.since >= HEALTHY_S:
                engine = moves.fresh(engine)
            return moves.hang(engine, state, reason)
        case Judged(verdict=verdict):
            return replace(engine, state=replace(state, verdict=verdict)), ()
        case Broken(now=now) if now - state.since >= HEALTHY_S:
            return _alive(moves.fresh(engine), state, event)
        case Unhealthy():  # the probe ended with Probed
            raise InvalidTransitionError(engine, event)
        case _:
            return _alive(engine, state, event)


def _alive(engine: Engine, state: Loading | Probing | Ready, event: Event) -> Result:
    match event:
        case Start(plan) if same(plan, state.plan):
            return engine, ()
        case Start(plan):
            return moves.end(moves.fresh(engine), state, Launch(plan), _replaces(plan, state.plan))
        case Stop(reason):
            return moves.end(engine, state, Halt(reason), reason)
        case Unhealthy(cause=cause) | Broken(cause=cause):
            return moves.kill(engine, state, Retry(state.plan, cause), cause.reason)
        case Exited():
            return moves.died(engine, state, event)
        case Progress() | Condemn():
            return engine, ()
        case _:
            raise InvalidTransitionError(engine, event)


def _stopping(engine: Engine, state: Stopping, event: Event) -> Result:
    match event:
        case Start() | Stop():
            engine, then = _redirect(engine, state.then, event)
            return replace(engine, state=replace(state, then=then)), ()
        case Spawned(pid=pid) if state.pid is None:
            born = Loading(plan=state.plan, pid=pid, began=event.now, heard=event.now)
            return moves.end(engine, born, state.then, engine.reason)
        case SpawnFailed() if state.pid is None:
            memory, rest, reason = resolve(engine.memory, state.then, event)
            return moves.settle(replace(engine, memory=memory), rest, reason, event.now)
        case TimedOut() if state.pid is not None:
            return moves.next_rung(engine, state, state.pid)
        case Exited() if state.pid is not None:
            return moves.released_by(engine, state.plan, state.then, event)
        case _:
            return _late(engine, event)


def _releasing(engine: Engine, state: Releasing, event: Event) -> Result:
    match event:
        case Start(plan):
            kept = isinstance(state.then, Launch | Backoff) and same(plan, state.then.plan)
            if kept:
                return engine, ()
            return replace(moves.fresh(engine), state=replace(state, then=Launch(plan))), ()
        case Stop(reason):
            return replace(engine, state=replace(state, then=Stopped()), reason=reason), ()
        case Released(held=Cause() as held) if _blocks(held, state.then):
            return moves.blocked(engine, state.plan, held)
        case Released(now=now) | TimedOut(now=now):
            return moves.settle(engine, state.then, engine.reason, now)
        case _:
            return _late(engine, event)


def _backoff(engine: Engine, state: Backoff, event: Event) -> Result:
    match event:
        case Start(plan) if same(plan, state.plan):
            return engine, ()  # a request must not shorten the wait
        case Start(plan):
            return moves.launch(moves.fresh(engine), plan, _replaces(plan, state.plan))
        case Stop(reason):
            return moves.enter(engine, Stopped(), reason)
        case TimedOut():
            return moves.launch(engine, state.plan, f"attempt {state.attempt + 1}")
        case _:
            return _late(engine, event)


def _blocks(held: Cause, then: Rest) -> bool:
    """Whether a card that is not free keeps an engine from what was to follow its end.

    A start asks for the card itself and may be small enough for what is free; a failure
    has a cause of its own.
    """
    match then:
        case Stopped() | Blocked():
            return True
        case Backoff():
            return held.failure is FailureClass.GPU_FAILED
        case Launch() | Failed():
            return False
        case _:
            assert_never(then)


def _wedged(engine: Engine, state: Wedged, event: Event) -> Result:
    match event:
        case Start() | Stop():
            engine, then = _redirect(engine, state.then, event)
            return replace(engine, state=replace(state, then=then)), ()
        case Exited():
            return moves.released_by(engine, state.plan, state.then, event)
        case _:
            return _late(engine, event)


def _late(engine: Engine, event: Event) -> Result:
    """Ignore news that was under way when the state changed; raise for the rest."""
    match event:
        case Progress() | Healthy() | Probed() | Unhealthy() | Condemn() | Released():
            return engine, ()
        case Broken() | Judged():
            return engine, ()
        case _:
            raise InvalidTransitionError(engine, event)


# Small things -----------------------------------------------------------------------


def _redirect(engine: Engine, then: Then, event: Start | Stop) -> tuple[Engine, Then]:
    """Change what follows the end of the process; the same plan keeps its retry rule."""
    match event:
        case Stop(reason):
            return engine, Halt(reason)
        case Start(plan) if isinstance(then, Launch | Retry) and same(plan, then.plan):
            return engine, then
        case Start(plan):
            return moves.fresh(engine), Launch(plan)
        case _:
            assert_never(event)


def _age(engine: Engine, event: Event) -> int:
    """Below 0: news of an earlier start or timer; above 0: of one that does not exist."""
    match event:
        case Start() | Stop() | Condemn():
            return 0
        case TimedOut(timer=timer) if timer == engine.timer and not engine.armed:
            return -1
        case TimedOut(timer=timer):
            return timer - engine.timer
        case _:
            return event.start - engine.start


def _told(engine: Engine, event: Event) -> Engine:
    if isinstance(event, Progress):  # these would push everything else out
        return engine
    line = f"{label(engine.state)}: {type(event).__name__}"
    story = (*engine.story[-STORY:], line)
    armed = engine.armed and not isinstance(event, TimedOut)
    return replace(engine, story=story, armed=armed)


def _replaces(new: LaunchPlan, old: LaunchPlan) -> str:
    return f"{new.arm} replaces {old.arm}"
