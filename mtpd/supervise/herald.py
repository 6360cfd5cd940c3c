"""Tells the log and the event stream what happens to one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from mtpd.events import EngineLoadProgress, EngineTransition, MemoryCreeps, ResidencyJudged
from mtpd.supervise.present import cause_of, plan_of, residency_view
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Cause,
    Failed,
    Launch,
    Ready,
    Releasing,
    Wedged,
    label,
)
from mtpd.types import FailureClass
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.events import Event
    from mtpd.supervise.creep import Creep
    from mtpd.supervise.life import Life
    from mtpd.supervise.states import Engine, State
    from mtpd.types import EngineKey
    from mtpd.units import EngineId

__all__ = ["Herald"]

log = structlog.get_logger()

PROGRESS_S = 1.0
"""A load may print a thousand lines a second; nobody reads so fast."""


class Herald:
    """Speaks for one engine slot."""

    def __init__(self, *, key: EngineKey, clock: Clock, on_event: Callable[[Event], None]) -> None:
        self._key, self._clock, self._on_event = key, clock, on_event
        self._shown_at = float("-inf")

    def moved(self, before: Engine, after: Engine, engine_id: EngineId | None) -> None:
        """Tell of a change of the state's name."""
        old, new = label(before.state), label(after.state)
        plan = plan_of(after.state) or plan_of(before.state)
        bad = isinstance(after.state, Backoff | Blocked | Failed | Wedged)
        say = log.warning if bad else log.info
        say(
            "engine.transition",
            engine=engine_id,
            profile=self._key.profile,
            old=old,
            new=new,
            reason=after.reason,
        )
        self._on_event(
            EngineTransition(
                engine_id=engine_id or "",
                profile=self._key.profile,
                arm=str(plan.arm) if plan else "",
                old=old,
                new=new,
                reason=after.reason,
                failure=_new_failure(before, after),
            )
        )

    def judged(self, state: Ready, engine_id: EngineId) -> None:
        """Tell where the model lies."""
        self._on_event(
            ResidencyJudged(
                engine_id=engine_id,
                profile=self._key.profile,
                arm=str(state.plan.arm),
                residency=residency_view(state.verdict),
            )
        )

    def creeps(self, life: Life, creep: Creep) -> None:
        """Tell of memory that grows slowly while the engine serves."""
        log.warning(
            "engine.memory_creeps",
            engine=life.engine_id,
            arm=str(life.plan.arm),
            grown_mib=creep.grown_bytes // MIB,
            window_s=round(creep.window_s),
            full_in_s=None if creep.full_in_s is None else round(creep.full_in_s),
        )
        self._on_event(
            MemoryCreeps(
                engine_id=life.engine_id,
                profile=self._key.profile,
                arm=str(life.plan.arm),
                grown_bytes=creep.grown_bytes,
                window_s=creep.window_s,
                full_in_s=creep.full_in_s,
            )
        )

    def progress(self, lines: int, engine_id: EngineId) -> None:
        """Tell how much the load has printed, at most once a second."""
        now = self._clock.now()
        if now - self._shown_at >= PROGRESS_S:
            self._shown_at = now
            self._on_event(
                EngineLoadProgress(engine_id=engine_id, profile=self._key.profile, lines=lines)
            )


def _new_failure(before: Engine, after: Engine) -> str | None:
    """The class of what went wrong just now; a failure is told once on its way to the end."""
    if isinstance(before.state, Wedged):
        return None  # what had begun to end it was told
    old, new = _failure(before.state), _failure(after.state)
    return None if new == old else new


def _failure(state: State) -> str | None:
    match state:
        case Wedged():
            return FailureClass.WEDGED.value
        case Releasing(then=Launch(cause=Cause() as cause)):
            return cause.failure.value
        case _:
            cause_now = cause_of(state)
            return None if cause_now is None else cause_now.failure.value
