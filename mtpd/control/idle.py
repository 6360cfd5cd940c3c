"""Unloads models that nobody has asked for, after the time that the configuration gives.

Covers noticing, deciding and writing down; when a time is up is ``mtpd.proxy.ttl``'s, and
the switchboard stops engines. An engine that is measured is not stopped meanwhile.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.errors import MtpdError
from mtpd.events import ConfigReloaded, EngineTransition
from mtpd.proxy.actors import READY
from mtpd.proxy.outcomes import DrainTimeoutError
from mtpd.proxy.ttl import Idle
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.control.recorder import StoreRecorder
    from mtpd.events import Event
    from mtpd.store.journal import Journal
    from mtpd.views import DecisionView, EngineView
    from tuner.types import Arm

__all__ = ["IdleUnloader"]

log = structlog.get_logger()


class Engines(Protocol):
    """What is needed of the switchboard."""

    def engines(self) -> Iterable[EngineView]:
        """Every engine."""

    async def stop_engine(
        self,
        profile: str,
        reason: str,
        *,
        drain_timeout_s: float | None = None,
        agreed: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Stop an engine that nobody uses, if ``agreed`` then; raises DrainTimeoutError."""


class IdleUnloader:
    """Watches requests and engines, and unloads.

    Args:
        config: How long each model may stay loaded.
        recorder: Journals the decisions.
        journal: Takes what became of them.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        recorder: StoreRecorder,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._config, self._recorder, self._journal = config, recorder, journal
        self._clock = clock
        self._idle = Idle()
        self._changed = anyio.Event()
        self._planned: float | None = None
        self._stopping: set[str] = set()

    # What happens -------------------------------------------------------------------

    @contextmanager
    def asking(self, profile: str) -> Iterator[None]:
        """Count a request for a model while the block runs."""
        self._become(self._idle.came(profile))
        try:
            yield
        finally:
            self._become(self._idle.went(profile, self._clock.now()))

    def observe(self, event: Event) -> None:
        """An event was published; those of engines matter, and other times that are configured."""
        if isinstance(event, EngineTransition):
            loaded = event.new == READY
            now = self._clock.now()
            idle = self._idle
            self._become(idle.loaded(event.profile, now) if loaded else idle.gone(event.profile))
        elif isinstance(event, ConfigReloaded):
            self.look()

    def look(self) -> None:
        """See whose time is up; ``run`` does so by itself when one is, or something happens."""
        self._changed.set()

    def _become(self, idle: Idle) -> None:
        self._idle = idle
        if idle.next_due(self._waits_s) != self._planned:
            self.look()

    # What is done -------------------------------------------------------------------

    async def run(self, board: Engines) -> None:
        """Unload whatever has its time up, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._changed = anyio.Event()
                for profile in self._due():
                    self._stopping.add(profile)
                    tasks.start_soon(self._unload, board, profile)
                due = self._planned = self._idle.next_due(self._waits_s)
                left_s = math.inf if due is None else due - self._clock.now()
                with anyio.move_on_after(left_s):
                    await self._changed.wait()

    def _due(self) -> tuple[str, ...]:
        return self._idle.due(self._clock.now(), self._waits_s)

    def _waits_s(self, profile: str) -> float:
        """0 also for a model that is being unloaded: it is not to be unloaded twice."""
        return 0.0 if profile in self._stopping else self._config.now.ttl_s(profile)

    async def _unload(self, board: Engines, profile: str) -> None:
        ttl_s = self._config.now.ttl_s(profile)
        reason = f"nobody has asked for {profile} for {ttl_s:g} s, its ttl_s"
        made: list[DecisionView] = []
        outcome = "unloaded"
        try:
            await board.stop_engine(
                profile,
                reason,
                drain_timeout_s=0.0,
                agreed=partial(self._agree, board, profile, reason, made),
            )
        except DrainTimeoutError:
            log.debug("ttl.kept", profile=profile, reason="a request came first")
        except MtpdError as error:
            outcome = f"failed: {error}"
            log.warning("ttl.not_unloaded", profile=profile, error=str(error))
            self._put_off(profile)
        finally:
            self._stopping.discard(profile)
            self.look()
        for decision in made:
            await self._keep(decision, outcome)

    async def _keep(self, decision: DecisionView, outcome: str) -> None:
        """Write down what became of a decision; where that fails, the next one may be kept."""
        try:
            await self._journal.outcome(decision.id, outcome)
        except MtpdError as error:
            log.warning("ttl.not_kept", decision=decision.id, outcome=outcome, error=str(error))

    def _put_off(self, profile: str) -> None:
        """What could not be unloaded is tried again after another such time, not at once."""
        if profile in self._idle.since:
            self._become(self._idle.loaded(profile, self._clock.now()))

    async def _agree(
        self, board: Engines, profile: str, reason: str, made: list[DecisionView]
    ) -> bool:
        """Decide, with the engine to ourselves: others may have used it since it was due."""
        now = self._clock.now()
        if profile not in self._idle.due(now, self._config.now.ttl_s):
            return False
        idle_s = now - self._idle.since[profile]
        decision = Decision(
            act=Act.UNLOAD,
            subject=profile,
            arm=_arm(board.engines(), profile),
            reason=reason,
            evidence=(f"idle for {idle_s:.1f} s", "no request waits or runs"),
        )
        made.append(await self._recorder.decide(decision))
        return True


def _arm(engines: Iterable[EngineView], profile: str) -> Arm | None:
    views = (one.arm for one in engines if one.profile == profile and one.arm is not None)
    return next((view.arm() for view in views), None)
