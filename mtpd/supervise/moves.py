"""How states are entered: each move sets the state, its timer and its effects.

Which event leads to which move is decided in ``machine``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from mtpd.supervise.backoff import HEALTHY_S, Memory
from mtpd.supervise.messages import (
    ArmTimer,
    DisarmTimer,
    EndProbe,
    Signal,
    Spawn,
    WaitRelease,
)
from mtpd.supervise.retry import RESETS, after_failure, resolve
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Cause,
    Engine,
    Failed,
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
)
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from mtpd.supervise.messages import Effect, Exited, Probed, SpawnFailed
    from mtpd.supervise.states import Rest, State, Then
    from mtpd.types import LaunchPlan

__all__ = [
    "PROBE_S",
    "Result",
    "blocked",
    "died",
    "end",
    "end_s",
    "enter",
    "fresh",
    "hang",
    "kill",
    "launch",
    "load_timer",
    "next_rung",
    "release",
    "released_by",
    "serve",
    "settle",
    "settle_failure",
    "term_s",
    "unborn",
]

Result = tuple[Engine, tuple["Effect", ...]]

KILL_S = 5.0
"""Grace after SIGKILL; a process that outlives it is wedged in the kernel."""
PROBE_S = 70.0
"""Longer than the canary's own deadline of 60 s, which tells more."""
RELEASE_S = 120.0
"""Bound of a wait for device memory; whoever waits gives up earlier and says why."""


def launch(engine: Engine, plan: LaunchPlan, reason: str) -> Result:
    """Ask for a new process."""
    start = engine.start + 1
    spawn = Spawn(start=start, plan=plan)
    return enter(replace(engine, start=start), Spawning(plan=plan), reason, (spawn,))


def unborn(engine: Engine, state: Spawning, then: Then, reason: str) -> Result:
    """End a process that has no pid yet; the ladder begins once it has one."""
    return enter(engine, Stopping(plan=state.plan, pid=None, rung="term", then=then), reason)


def serve(engine: Engine, state: Loading | Probing, event: Probed) -> Result:
    """Serve, whatever the verdict: what to do with one that does not pass is control's."""
    ready = Ready(plan=state.plan, pid=state.pid, verdict=event.verdict, since=event.now)
    return enter(engine, ready, f"serves, {event.verdict.label}: {event.verdict.reason}")


def load_timer(engine: Engine, state: Loading, now: float) -> Result:
    """The stall timer is not moved by every line; here it finds out whether it was too early."""
    stall_s, capped = state.plan.load_stall_s, state.began + state.plan.ready_timeout_s
    if now >= capped:
        return hang(engine, state, f"was still loading after {state.plan.ready_timeout_s:g} s")
    if now >= state.heard + stall_s:
        return hang(engine, state, f"printed nothing for {stall_s:g} s while loading")
    timer_s = min(state.heard + stall_s, capped) - now
    return enter(engine, state, engine.reason, timer_s=timer_s)


def hang(engine: Engine, state: Loading | Probing | Ready, reason: str) -> Result:
    """Kill an engine that hangs; ``reason`` continues "the engine ..."."""
    cause = Cause(failure=FailureClass.HANG, reason=f"the engine {reason}")
    return kill(engine, state, Retry(state.plan, cause), cause.reason)


def end(engine: Engine, state: Loading | Probing | Ready, then: Then, reason: str) -> Result:
    """Begin the stop ladder."""
    stopping = Stopping(plan=state.plan, pid=state.pid, rung="term", then=then)
    effects = (EndProbe(), Signal(start=engine.start, name="TERM"))
    return enter(engine, stopping, reason, effects, timer_s=term_s(state.plan))


def kill(engine: Engine, state: Loading | Probing | Ready, then: Then, reason: str) -> Result:
    """Begin the stop ladder at its last rung."""
    stopping = Stopping(plan=state.plan, pid=state.pid, rung="kill", then=then)
    effects = (EndProbe(), Signal(start=engine.start, name="KILL"))
    return enter(engine, stopping, reason, effects, timer_s=KILL_S)


def next_rung(engine: Engine, state: Stopping, pid: int) -> Result:
    """Climb; above the last rung the process is wedged."""
    match state.rung:
        case "term":
            again = Signal(start=engine.start, name="TERM")
            state = replace(state, rung="term again")
            return enter(engine, state, engine.reason, (again,), timer_s=term_s(state.plan))
        case "term again":
            kill = Signal(start=engine.start, name="KILL")
            state = replace(state, rung="kill")
            return enter(engine, state, engine.reason, (kill,), timer_s=KILL_S)
        case "kill":
            wedged = Wedged(plan=state.plan, pid=pid, then=state.then)
            return enter(engine, wedged, f"pid {pid} outlived SIGKILL by {KILL_S:g} s")
        case _:
            assert_never(state.rung)


def died(engine: Engine, state: Loading | Probing | Ready, event: Exited) -> Result:
    """Take the end of a process that nobody asked to end."""
    served_long = isinstance(state, Ready) and event.now - state.since >= HEALTHY_S
    memory, rest, reason = after_failure(
        engine.memory, state.plan, event.cause, event, served_long=served_long
    )
    return release(replace(engine, memory=memory), state.plan, rest, reason, (EndProbe(),))


def released_by(engine: Engine, plan: LaunchPlan, then: Then, event: Exited) -> Result:
    """Take the end of a process that was asked to end."""
    memory, rest, reason = resolve(engine.memory, then, event)
    return release(replace(engine, memory=memory), plan, rest, reason)


def release(
    engine: Engine, plan: LaunchPlan, rest: Rest, reason: str, effects: tuple[Effect, ...] = ()
) -> Result:
    """Wait for the device memory, then go to ``rest``."""
    reset = isinstance(rest, Backoff | Failed) and rest.cause.failure in RESETS
    effects = (*effects, WaitRelease(start=engine.start, reset=reset))
    return enter(engine, Releasing(plan=plan, then=rest), reason, effects, timer_s=RELEASE_S)


def blocked(engine: Engine, plan: LaunchPlan, cause: Cause) -> Result:
    """Stay until the card is free; it is looked at again and again, and nothing starts."""
    reset = cause.failure is FailureClass.GPU_FAILED
    wait = WaitRelease(start=engine.start, reset=reset)
    return enter(engine, Blocked(plan=plan, cause=cause), cause.reason, (wait,))


def settle_failure(engine: Engine, plan: LaunchPlan, cause: Cause, event: SpawnFailed) -> Result:
    """Apply the retry rule where no process came into being, so nothing is released."""
    memory, rest, reason = after_failure(engine.memory, plan, cause, event, served_long=False)
    return settle(replace(engine, memory=memory), rest, reason, event.now)


def settle(engine: Engine, rest: Rest, reason: str, now: float) -> Result:
    """Go where the ended process leads."""
    match rest:
        case Launch(plan):
            return launch(engine, plan, reason)
        case Backoff(until=until):
            return enter(engine, rest, reason, timer_s=max(0.0, until - now))
        case Blocked(plan=plan, cause=cause):
            return blocked(engine, plan, cause)
        case Stopped() | Failed():
            return enter(engine, rest, reason)
        case _:
            assert_never(rest)


def enter(
    engine: Engine,
    state: State,
    reason: str,
    effects: tuple[Effect, ...] = (),
    *,
    timer_s: float | None = None,
) -> Result:
    """Enter a state with its timer, or with none."""
    engine = replace(engine, state=state, reason=reason)
    if timer_s is not None:
        timer = engine.timer + 1
        arm = ArmTimer(timer=timer, seconds=timer_s)
        return replace(engine, timer=timer, armed=True), (*effects, arm)
    if engine.armed:
        return replace(engine, armed=False), (*effects, DisarmTimer())
    return engine, effects


def term_s(plan: LaunchPlan) -> float:
    """Grace after each of the two SIGTERM."""
    return plan.stop_timeout_s / 2


def end_s(plan: LaunchPlan) -> float:
    """How long the whole ladder may take, with some room."""
    return plan.stop_timeout_s + KILL_S + 5.0


def fresh(engine: Engine) -> Engine:
    """Forget earlier failures: someone decided to start something."""
    return replace(engine, memory=Memory())
