"""Creates the processes of one engine slot, keeps the ledger of them, sees them end."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import structlog

from mtpd.engine.memory_look import room
from mtpd.engine.residency import out_of_memory
from mtpd.errors import EngineError, MtpdError, StoreError
from mtpd.supervise.messages import Exited, Spawned, SpawnFailed
from mtpd.supervise.states import Cause
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.faults import Faults
    from mtpd.supervise.life import Life
    from mtpd.supervise.messages import Event
    from mtpd.supervise.ports import Card, LedgerWriter, Probe, Spawner
    from mtpd.supervise.spawn import Exit
    from mtpd.types import EngineKey

__all__ = ["Starter", "cause_of"]

log = structlog.get_logger()

_SHORT = FailureClass.OOM_VRAM


class Starter:
    """Turns a wish into a process and its end into an event."""

    def __init__(
        self,
        *,
        key: EngineKey,
        spawner: Spawner,
        ledger: LedgerWriter,
        probe: Probe,
        card: Card,
        clock: Clock,
        faults: Faults,
        rng: Callable[[], float],
        post: Callable[[Event], None],
    ) -> None:
        self._key, self._spawner, self._ledger, self._probe = key, spawner, ledger, probe
        self._card = card
        self._clock, self._faults, self._rng, self._post = clock, faults, rng, post

    async def live(self, life: Life, wanted: Callable[[], bool]) -> None:
        """Create the process and keep the ledger while it lives."""
        if not await self._create(life, wanted) or life.child is None:
            return
        child = life.child
        await self.note(life, self._ledger.spawned(life.engine_id, child.pid, child.start_ticks))
        self._faults.hit("spawn.after_record")
        await life.ended.wait()
        self._faults.hit("exit.before_record")
        await self.note(life, self._ledger.ended(life.engine_id, life.code))
        await child.closed()

    async def returned(self, life: Life, *, held: bool) -> None:
        """Record how much memory there was for an engine that ended for want of it.

        Other programs may have taken some of what was free when it was admitted, so what is
        free once its own is back counts, unless that was more.

        Args:
            life: The start.
            held: Whether its memory has not come back.
        """
        if life.end is None or (cause := life.cause(life.end)).failure is not _SHORT:
            return
        seen = (room(life.before, None), None if held else await self._card.free_now())
        least = min((count for count in seen if count is not None), default=None)
        short = out_of_memory(cause.reason, room_bytes=least)
        await self.note(life, self._ledger.judged(life.engine_id, short))

    async def _create(self, life: Life, wanted: Callable[[], bool]) -> bool:
        """Create the process; the intent is durable before it can exist."""
        intended = False
        try:
            self._faults.hit("spawn.before")
            self._probe.clear(life.plan.endpoint)
            life.before = await self._card.admit(life.engine_id, life.plan)
            await self._intend(life)
            intended = True
            self._faults.hit("spawn.after_intent")
            if not wanted():
                raise _unwanted()
            life.child = self._spawner.spawn(
                life.plan.command,
                engine_id=life.engine_id,
                output=life.output,
                on_exit=lambda end: self._exited(life, end),
            )
        except (OSError, ValueError, MtpdError) as error:
            if life.before is not None:
                self._card.withdrawn(life.engine_id)
            now, jitter = self._clock.now(), self._rng()
            failed = SpawnFailed(start=life.start, now=now, jitter=jitter, cause=cause_of(error))
            self._post(failed)
            if intended:
                await self.note(life, self._ledger.ended(life.engine_id, None))
            return False
        self._post(Spawned(start=life.start, pid=life.child.pid, now=self._clock.now()))
        self._faults.hit("spawn.after_fork")
        return True

    async def _intend(self, life: Life) -> None:
        plan = life.plan
        argv = "\0".join(plan.command.argv).encode(errors="surrogateescape")
        await self._ledger.intend(
            life.engine_id,
            profile=self._key.profile,
            device=self._key.device,
            arm=plan.arm,
            argv_digest=hashlib.sha256(argv).hexdigest(),
            endpoint=plan.endpoint,
            fingerprint=plan.fingerprint,
        )

    def _exited(self, life: Life, end: Exit) -> None:
        life.end = end
        life.ended.set()
        now, jitter = self._clock.now(), self._rng()
        self._post(Exited(start=life.start, now=now, jitter=jitter, cause=life.cause(end)))
        try:
            self._probe.clear(life.plan.endpoint)
        except EngineError as error:  # the next start will refuse, with the same words
            log.warning("engine.socket_left", engine=life.engine_id, error=str(error))

    async def note(self, life: Life, entry: Awaitable[None]) -> None:
        """Write to the ledger; what cannot be written must not end an engine."""
        try:
            await entry
        except MtpdError as error:
            log.error("ledger.write_failed", engine=life.engine_id, error=str(error))  # noqa: TRY400 - a story, not a traceback


def _unwanted() -> EngineError:
    return EngineError(
        "the start was taken back before the process existed",
        failure=FailureClass.KILLED_BY_OPERATOR,
    )


def cause_of(error: OSError | ValueError | MtpdError) -> Cause:
    """The failure that an exception means for the engine."""
    match error:
        case EngineError():
            failure = FailureClass(error.failure)
            return Cause(failure=failure, reason=str(error), hint=error.hint)
        case StoreError():
            return Cause(failure=FailureClass.STORE, reason=str(error), hint=error.hint)
        case MtpdError():
            return Cause(failure=FailureClass.CRASH, reason=str(error), hint=error.hint)
        case ValueError():  # a NUL byte in an argument, a "=" in a variable's name
            reason = f"the engine's command line or environment is not possible: {error}"
            return Cause(failure=FailureClass.CONFIG, reason=reason)
        case _:
            reason = f"the engine's process cannot be created: {error.strerror or error}"
            return Cause(failure=FailureClass.CRASH, reason=reason)
