"""The state database: one SQLite file, one connection, one thread.

Covers transactions, and going on in memory while the disk takes no writes; how a file is
opened is ``mtpd.store.opening``. What the tables hold is the business
of ``ledger``, ``samples``, ``journal`` and ``operations_table``; that only one daemon uses
the file is the business of the lock on the state directory.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import structlog

from mtpd.errors import DiskError, MtpdError, StoreError
from mtpd.faults import NoFaults
from mtpd.store.opening import REFUSALS, explained, open_file, remembered, touch

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import TracebackType

    from mtpd.clock import Clock
    from mtpd.faults import Faults

__all__ = ["Database"]

log = structlog.get_logger()

T = TypeVar("T")

AGAIN_S = 5.0
"""How long after a refused write the disk is asked again."""


class Database:
    """An open state database; use ``open``, then ``write`` and ``read`` from the loop.

    A caller that is cancelled while its function is in the thread does not learn whether
    the transaction was committed; it is then committed or rolled back as a whole.
    """

    def __init__(
        self,
        *,
        path: Path,
        conn: sqlite3.Connection,
        thread: ThreadPoolExecutor,
        faults: Faults,
        quarantined: Path | None,
        clock: Clock,
        lost: str | None = None,
        in_memory: str | None = None,
    ) -> None:
        self.path = path
        self.quarantined = quarantined
        """Where a damaged file was moved while opening, or None."""
        self.lost = lost
        """What became of rows that were there, a clause; None where nothing is lost."""
        self._in_memory = in_memory
        self._refused: str | None = None
        self._unsettled = in_memory is not None
        self._told: str | None = None
        self._settled: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        self._changed: Callable[[str | None], object] = lambda _why: None
        self._clock = clock
        self._conn = conn
        self._thread = thread
        self._faults = faults

    @classmethod
    async def open(cls, path: Path, clock: Clock, *, faults: Faults | None = None) -> Self:
        """Open or create the file, check it, bring its schema up to date.

        A damaged file is renamed to ``NAME.corrupt-TIME`` together with its ``-wal`` and
        ``-shm``, and a new one is started; ``quarantined`` and the log tell.

        Raises:
            StateError: The file is from a newer mtpd or another program's; it is untouched.
            StoreError: The file cannot be opened or written.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mtpd-store")
        try:
            conn, quarantined = await _in_thread(thread, lambda: open_file(path, clock))
        except BaseException:
            thread.shutdown(wait=True)
            raise
        lost = None
        if quarantined is not None:
            lost = f"the state database was damaged and set aside as {quarantined.name}"
        return cls(
            path=path,
            conn=conn,
            thread=thread,
            faults=faults or NoFaults(),
            quarantined=quarantined,
            clock=clock,
            lost=lost,
        )

    @classmethod
    async def open_or_remember(
        cls, path: Path, clock: Clock, *, scratch: Path, faults: Faults | None = None
    ) -> Self:
        """Open the file; where the disk takes no writes, go on with a copy of it in memory.

        ``degraded`` tells; ``run`` moves everything to the disk once that takes writes.

        Args:
            path: The file.
            clock: Dates migrations, and what is set aside.
            scratch: A directory of ours that can be written; holds the copy for a moment.
            faults: Fault points of tests.

        Raises:
            StateError: The file is from a newer mtpd or another program's; it is untouched.
            StoreError: The file cannot be opened, or not even be read.
        """
        try:
            return await cls.open(path, clock, faults=faults)
        except DiskError as problem:
            why = str(problem)
            log.error("store.in_memory", reason=why, hint=problem.hint)  # noqa: TRY400 - no defect
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mtpd-store")
        try:
            conn, lost = await _in_thread(thread, lambda: remembered(path, scratch, clock))
        except BaseException:
            thread.shutdown(wait=True)
            raise
        return cls(
            path=path,
            conn=conn,
            thread=thread,
            faults=faults or NoFaults(),
            quarantined=None,
            clock=clock,
            lost=lost,
            in_memory=f"nothing is kept over a restart: {why}",
        )

    @property
    def lasting(self) -> bool:
        """Whether what was written is on the disk."""
        return self._in_memory is None

    @property
    def degraded(self) -> str | None:
        """Why what is written is not durable now, or None."""
        return self._in_memory or self._refused

    @property
    def troubles(self) -> tuple[str, ...]:
        """The same as the status shows it."""
        return () if self.degraded is None else (f"state: {self.degraded}",)

    def attach(
        self, *, settled: Callable[[], Awaitable[None]], changed: Callable[[str | None], object]
    ) -> None:
        """Have others act when the disk refuses, and when it takes writes again.

        Args:
            settled: Writes what is owed to the disk; raises MtpdError where that was too early.
            changed: Told why what is written is not durable from now on, and of the end of it.
        """
        self._settled, self._changed = settled, changed
        self._tell()

    async def run(self, *, again_s: float = AGAIN_S) -> None:
        """While the disk refuses, ask it again and again; ends only by cancellation."""
        while True:
            await anyio.sleep(again_s)
            if not self._unsettled:
                continue
            try:
                await self.settle()
                await self._settled()
            except MtpdError as problem:
                log.debug("store.still_degraded", reason=str(problem))
            else:
                self._unsettled = False
                log.info("store.durable_again", path=str(self.path))

    def _tell(self) -> None:
        if self._told != self.degraded:
            self._told = self.degraded
            self._changed(self._told)

    async def settle(self) -> None:
        """Write to the disk what is in memory only, or see whether it takes writes again.

        Raises:
            MtpdError: It does not.
        """
        if self._in_memory is not None:
            await _in_thread(self._thread, self._move)
            self._in_memory = None
        await self.write(touch)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in one durable transaction; it is on the disk when this returns.

        Raises:
            StoreError: The disk is full or read-only, or the data contradict the schema.
                Nothing of ``work`` was kept.
        """
        try:
            result = await _in_thread(self._thread, lambda: self._transact(work))
        except StoreError as problem:
            self._refused, self._unsettled = str(problem), True
            self._tell()
            raise
        self._refused = None
        self._tell()
        return result

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work``, which only reads.

        Raises:
            StoreError: The file cannot be read.
        """
        return await _in_thread(self._thread, lambda: self._translated(work))

    async def close(self) -> None:
        """Close the file and end the thread; a second call does nothing."""
        with anyio.CancelScope(shield=True):
            try:
                await _in_thread(self._thread, self._conn.close)
            except RuntimeError:  # the thread has ended: closed before
                return
            finally:
                self._thread.shutdown(wait=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _move(self) -> None:
        """Go on with the file, which then has all that is in memory; all or nothing."""
        conn, _ = open_file(self.path, self._clock)
        try:
            self._conn.backup(conn)
        except REFUSALS as problem:
            conn.close()
            raise explained(problem, self.path) from problem
        self._conn.close()
        self._conn = conn

    def _translated(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._conn)
        except REFUSALS as problem:
            raise explained(problem, self.path) from problem

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def transaction(conn: sqlite3.Connection) -> T:
            conn.execute("BEGIN IMMEDIATE")
            try:
                result = work(conn)
                self._faults.hit("store.before_commit")
                conn.execute("COMMIT")
            finally:
                # SQLite has already rolled back after some errors (a full disk).
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
            self._faults.hit("store.after_commit")
            return result

        return self._translated(transaction)


async def _in_thread(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
