"""An engine's state as the view that the control API shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Engine,
    Failed,
    Loading,
    Probing,
    Ready,
    Releasing,
    Retry,
    Stopped,
    Stopping,
    Wedged,
    label,
)
from mtpd.types import HttpEndpoint, TcpEndpoint, UnixEndpoint, Verdict
from mtpd.views import ArmView, EngineView, EvidenceView, FailureView, ResidencyView
from tuner.types import Evicted, Spilled, Unknown

if TYPE_CHECKING:
    from mtpd.supervise.states import Cause, State
    from mtpd.types import Endpoint, EngineKey, LaunchPlan
    from mtpd.units import EngineId

__all__ = ["cause_of", "engine_view", "plan_of", "residency_view", "verdict_of"]


def engine_view(
    engine: Engine,
    *,
    key: EngineKey,
    engine_id: EngineId | None,
    since: str,
    now: float,
    log_tail: tuple[str, ...],
) -> EngineView:
    """Everything that may be shown of an engine; the endpoint's key is left out."""
    plan = plan_of(engine.state)
    return EngineView(
        id=engine_id or "",
        device=key.device,
        profile=key.profile,
        state=label(engine.state),
        arm=ArmView.of(plan.arm) if plan else None,
        residency=residency_view(verdict_of(engine.state)),
        pid=_pid(engine.state),
        endpoint=_address(plan.endpoint) if plan else None,
        since=since,
        starts=engine.start,
        failure=_failure(engine, now),
        log_tail=log_tail,
    )


def verdict_of(state: State) -> Verdict:
    """The verdict on the running engine; unknown until it is ready."""
    match state:
        case Ready(verdict=verdict):
            return verdict
        case Stopped():
            return Verdict()
        case _:
            reason = f"the engine is {label(state)}"
            return Verdict(residency=Unknown(reason), reason=reason)


def plan_of(state: State) -> LaunchPlan | None:
    """What runs, is about to, or last did without success."""
    return None if isinstance(state, Stopped) else state.plan


def residency_view(verdict: Verdict) -> ResidencyView:
    """The verdict as it is shown, with the lines that decided."""
    residency = verdict.residency
    return ResidencyView(
        state=verdict.label,
        layers=residency.layers if isinstance(residency, Evicted) else None,
        spilled_bytes=residency.spilled_bytes if isinstance(residency, Spilled) else None,
        reason=verdict.reason,
        evidence=tuple(EvidenceView(line=e.line, says=e.says) for e in verdict.evidence),
        confidence=verdict.confidence.value,
        contradiction=verdict.contradiction,
    )


def _pid(state: State) -> int | None:
    if isinstance(state, Loading | Probing | Ready | Stopping | Wedged):
        return state.pid
    return None


def _address(endpoint: Endpoint) -> str:
    match endpoint:
        case UnixEndpoint(path=path):
            return f"unix:{path}"
        case TcpEndpoint(host=host, port=port):
            return f"tcp:{host}:{port}"
        case HttpEndpoint(url=url):
            return url
        case _:
            assert_never(endpoint)


def _failure(engine: Engine, now: float) -> FailureView | None:
    cause = cause_of(engine.state)
    if cause is None:
        return None
    state = engine.state.then if isinstance(engine.state, Releasing) else engine.state
    retry_in_s = max(0.0, state.until - now) if isinstance(state, Backoff) else None
    return FailureView(
        failure=cause.failure.value,
        reason=cause.reason,
        hint=cause.hint,
        exit_code=cause.exit_code,
        retry_in_s=retry_in_s,
        breaker_open=cause.breaker_open,
    )


def cause_of(state: State) -> Cause | None:
    """Why the engine does not serve, or did not until it is started anew."""
    match state:
        case Backoff(cause=cause) | Failed(cause=cause) | Blocked(cause=cause):
            return cause
        case Stopping(then=Retry(cause=cause)):
            return cause
        case Releasing(then=Backoff(cause=cause) | Failed(cause=cause)):
            return cause
        case _:
            return None
