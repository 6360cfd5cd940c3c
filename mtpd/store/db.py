"""The state database: one SQLite file, one connection, one thread.

Covers opening (with the check, the quarantine of a damaged file and the migrations),
transactions and the translation of SQLite's errors. What the tables hold is the business
of ``ledger``, ``samples``, ``journal`` and ``operations_table``; that only one daemon uses
the file is the business of the lock on the state directory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import structlog

from mtpd.errors import MtpdError, StoreError
from mtpd.faults import NoFaults
from mtpd.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mtpd.clock import Clock
    from mtpd.faults import Faults

__all__ = ["Database"]

log = structlog.get_logger()

T = TypeVar("T")

_BUSY_TIMEOUT_S = 5.0
_PRIMARY = 0xFF
"""SQLite's extended result codes carry the primary one in the low byte."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""While checking; SQLITE_ERROR is a schema that our fixed queries cannot be run on."""

_REFUSALS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's refusals are raised as: where a message quotes text of the file that is no
UTF-8, the Python module fails to make its own error of it."""

_FORMATS = (b"\1\1", b"\2\2")
"""Bytes 18 and 19, write and read version: rollback journal or WAL. SQLite would open
a file with another write version, but never write to it."""

_HINTS = {
    sqlite3.SQLITE_FULL: "free disk space; the daemon goes on serving meanwhile",
    sqlite3.SQLITE_READONLY: "make the state directory writable for the daemon's user",
    sqlite3.SQLITE_PERM: "make the state directory writable for the daemon's user",
    sqlite3.SQLITE_CANTOPEN: "check that the state directory exists and is writable",
    sqlite3.SQLITE_IOERR: "check the disk and its free space; the kernel log says more",
    sqlite3.SQLITE_BUSY: "end the other program that holds the database open",
    sqlite3.SQLITE_CORRUPT: "restart mtpd: it sets the damaged file aside and starts a new one",
    sqlite3.SQLITE_NOTADB: "restart mtpd: it sets the damaged file aside and starts a new one",
    sqlite3.SQLITE_CONSTRAINT: "this is a defect of mtpd; report it with the log",
}


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
    ) -> None:
        self.path = path
        self.quarantined = quarantined
        """Where a damaged file was moved while opening, or None."""
        self.degraded: str | None = None
        """Why the last write failed; None again once one succeeds."""
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
            conn, quarantined = await _in_thread(thread, lambda: _open(path, clock))
        except BaseException:
            thread.shutdown(wait=True)
            raise
        return cls(
            path=path,
            conn=conn,
            thread=thread,
            faults=faults or NoFaults(),
            quarantined=quarantined,
        )

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in one durable transaction; it is on the disk when this returns.

        Raises:
            StoreError: The disk is full or read-only, or the data contradict the schema.
                Nothing of ``work`` was kept.
        """
        try:
            result = await _in_thread(self._thread, lambda: self._transact(work))
        except StoreError as problem:
            self.degraded = str(problem)
            raise
        self.degraded = None
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

    def _translated(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._conn)
        except _REFUSALS as problem:
            raise _explained(problem, self.path) from problem

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


def _open(path: Path, clock: Clock) -> tuple[sqlite3.Connection, Path | None]:
    migrate.require(sqlite3.sqlite_version_info)
    try:
        damage = _damage(path)
        quarantined = None
        if damage is not None:
            quarantined = _set_aside(path, clock)
            log.error("store.quarantined", path=str(path), moved_to=str(quarantined), reason=damage)
        return _connect(path, clock), quarantined
    except _REFUSALS as problem:
        raise _explained(problem, path) from problem
    except OSError as problem:
        msg = f"the state database {path} cannot be opened: {problem.strerror}"
        hint = "check that the state directory exists and is writable"
        raise StoreError(msg, hint=hint) from problem


def _damage(path: Path) -> str | None:
    """What is wrong with the file, or None; leaves the file as it is."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with path.open("rb") as file:
        versions = file.read(20)[18:]
    if len(versions) == len(_FORMATS[0]) and versions not in _FORMATS:
        return f"the header's format versions are {versions.hex()}"
    # A read-only connection does not checkpoint the WAL into a file that may be refused.
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as conn:
        try:
            migrate.check(conn)
        except migrate.Damaged as problem:
            return str(problem)
        except _REFUSALS as problem:
            # Text that is not UTF-8 is reported by the Python module, without a code.
            code = getattr(problem, "sqlite_errorcode", None)
            if code is None or code & _PRIMARY in _DAMAGE:
                return str(problem)
            raise
    return None


def _set_aside(path: Path, clock: Clock) -> Path:
    """Rename the file with its WAL; the copies can still be opened together by hand."""
    target = path.with_name(f"{path.name}.corrupt-{clock.utc():%Y%m%dT%H%M%S.%fZ}")
    # The database first: a leftover WAL beside no database is discarded by SQLite, but a
    # database without its WAL would be taken for an intact, older one.
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        companion = Path(f"{path}{suffix}")
        if companion.exists():
            companion.rename(f"{target}{suffix}")
    return target


def _connect(path: Path, clock: Clock) -> sqlite3.Connection:
    # isolation_level None: transactions are ours to begin, the module adds none.
    conn = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
    try:
        _prepare(conn, path)
        applied = migrate.migrate(conn, clock)
        if applied:
            log.info("store.migrated", path=str(path), version=applied[-1])
    except BaseException:
        conn.close()
        raise
    return conn


def _prepare(conn: sqlite3.Connection, path: Path) -> None:
    conn.row_factory = sqlite3.Row
    mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        msg = f"the file system of {path} cannot hold a shared WAL (journal mode {mode})"
        raise StoreError(msg, hint="put the state directory on a local disk")
    # FULL: an acknowledged decision or ledger row survives a power cut, NORMAL loses it.
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA foreign_keys = ON")


def _explained(problem: Exception, path: Path) -> MtpdError:
    code = getattr(problem, "sqlite_errorcode", None)
    hint = "a row is damaged; move the file away to start with a new one"
    if code is not None:
        hint = _HINTS.get(code & _PRIMARY, "the message is SQLite's own")
    return StoreError(f"the state database {path} refused: {problem}", hint=hint)
