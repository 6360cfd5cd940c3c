"""The ledger's changes, in order: on the disk, or owed to it while it takes no writes.

A process may exist only where the next daemon finds it. That is a row on the disk; where the disk
refuses the row for want of space, or has become read-only, it is a note beside the sockets
(``mtpd.store.start_notes``), and the row is owed. Where not even a note can be written the start
is refused. What is owed is written as soon as the disk takes it. Covers when; what a change
writes is the business of ``mtpd.store.ledger``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import anyio
import structlog

from mtpd.errors import DiskError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.units import EngineId

__all__ = ["Backlog", "Disk", "Notes"]

log = structlog.get_logger()

MAX_OWED: Final = 1000
"""Changes that are kept for the disk; beyond it the ended starts that are oldest are forgotten."""

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class Disk(Protocol[C_co]):
    """Where the rows lie; ``mtpd.store.db.Database`` is one."""

    @property
    def lasting(self) -> bool:
        """Whether what was written is on a disk, and not in memory only."""

    async def write(self, work: Callable[[C_co], object], /) -> object:
        """Have a change written durably; raises DiskError where the disk takes none."""


class Notes(Protocol):
    """Where a start is noted instead."""

    def put(self, engine_id: EngineId, /) -> None:
        """Note it, or raise OSError."""

    def drop(self, engine_id: EngineId, /) -> None:
        """Forget it."""


class Backlog(Generic[C]):
    """Writes the changes of the ledger, or keeps them."""

    def __init__(self, disk: Disk[C], notes: Notes) -> None:
        self._disk, self._notes = disk, notes
        self._owed: deque[tuple[EngineId, Callable[[C], object]]] = deque()
        self._noted: set[EngineId] = set()
        self._ended: set[EngineId] = set()
        self._lock = anyio.Lock()

    @property
    def owed(self) -> int:
        """Changes that the disk has yet to take."""
        return len(self._owed)

    async def begin(self, engine_id: EngineId, work: Callable[[C], object]) -> None:
        """Have a start written before its process exists: as a row, or as a note.

        Raises:
            StoreError: Neither could be written.
        """
        async with self._lock:
            try:
                await self._write(work)
            except DiskError as refused:
                self._note(engine_id, str(refused), hint=refused.hint)
                self._owed.append((engine_id, work))
            else:
                if not self._disk.lasting:
                    self._note(engine_id, "the ledger is in memory only", hint=None)

    async def change(
        self, engine_id: EngineId, work: Callable[[C], object], *, ended: bool = False
    ) -> None:
        """Have a change of a start written, now or once the disk takes it.

        Args:
            engine_id: The start.
            work: Writes it.
            ended: Whether its process is gone: it needs no note any more.

        Raises:
            StoreError: It was refused for another reason than the disk's.
        """
        async with self._lock:
            if ended:
                self._forget(engine_id)
            try:
                await self._write(work)
            except DiskError as refused:
                self._owed.append((engine_id, work))
                if ended:
                    self._ended.add(engine_id)
                self._shorten()
                log.warning("ledger.change_owed", engine=engine_id, reason=str(refused))

    async def settle(self) -> None:
        """Write what is owed, and take back the notes of what is written.

        Raises:
            StoreError: The disk takes no writes.
        """
        async with self._lock:
            await self._flush()

    async def _write(self, work: Callable[[C], object]) -> None:
        """Write a change after all that is owed; with the lock held."""
        await self._flush()
        await self._disk.write(work)

    async def _flush(self) -> None:
        while self._owed:
            engine_id, work = self._owed[0]
            try:
                # A change that was cancelled may have been written, and would be written twice.
                with anyio.CancelScope(shield=True):
                    await self._disk.write(work)
            except DiskError:
                raise
            except StoreError as problem:
                log.error("ledger.change_lost", engine=engine_id, error=str(problem))  # noqa: TRY400 - a story, not a traceback
            self._owed.popleft()
        self._ended.clear()
        if self._disk.lasting:
            for engine_id in tuple(self._noted):
                self._forget(engine_id)

    def _note(self, engine_id: EngineId, why: str, *, hint: str | None) -> None:
        try:
            self._notes.put(engine_id)
        except OSError as problem:
            msg = f"{why}; nor can the start be noted beside the sockets: {problem.strerror}"
            raise DiskError(msg, hint=hint) from problem
        self._noted.add(engine_id)
        log.warning("ledger.start_noted", engine=engine_id, reason=why)

    def _forget(self, engine_id: EngineId) -> None:
        self._notes.drop(engine_id)
        self._noted.discard(engine_id)

    def _shorten(self) -> None:
        """Forget the oldest starts that have ended: their rows would tell of no process."""
        while len(self._owed) > MAX_OWED:
            oldest = next((key for key, _ in self._owed if key in self._ended), None)
            if oldest is None:
                return
            self._owed = deque(entry for entry in self._owed if entry[0] != oldest)
            self._ended.discard(oldest)
            log.error("ledger.start_lost", engine=oldest, owed=len(self._owed))
