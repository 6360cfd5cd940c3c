"""Opening the state database: trust, check, quarantine, migrations, and a copy in memory.

Covers one file up to a connection that can be used, and what SQLite's refusals mean.
Everything runs in the thread that will own the connection.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from mtpd.errors import DiskError, MtpdError, StateError, StoreError
from mtpd.store import migrate, private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.clock import Clock

__all__ = ["REFUSALS", "explained", "open_file", "remembered", "touch"]

log = structlog.get_logger()

_BUSY_TIMEOUT_S = 5.0
_CACHE_KIB = 512
"""Pages of the file that the process keeps: SQLite's 2000 KiB would fill within some thousand
requests and stay, although the kernel keeps the same pages."""

_PRIMARY = 0xFF
"""SQLite's extended result codes carry the primary one in the low byte."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""While checking; SQLITE_ERROR is a schema that our fixed queries cannot be run on."""

REFUSALS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's refusals are raised as: where a message quotes text of the file that is no
UTF-8, the Python module fails to make its own error of it."""

_FORMATS = (b"\1\1", b"\2\2")
"""Bytes 18 and 19, write and read version: rollback journal or WAL. SQLite would open
a file with another write version, but never write to it."""

_UNWRITABLE = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
    }
)
_UNWRITABLE_OS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)

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


def open_file(path: Path, clock: Clock) -> tuple[sqlite3.Connection, Path | None]:
    """A connection to the file, checked and up to date, and where a damaged one was moved.

    Raises:
        StateError: It must not be touched: newer, of another program, or planted.
        DiskError: The disk takes no writes.
        StoreError: It cannot be opened.
    """
    migrate.require(sqlite3.sqlite_version_info)
    try:
        _trust(path)
        damage = _damage(path)
        quarantined = None
        if damage is not None:
            quarantined = _set_aside(path, clock)
            log.error("store.quarantined", path=str(path), moved_to=str(quarantined), reason=damage)
        return _connect(path, clock), quarantined
    except REFUSALS as problem:
        raise explained(problem, path) from problem
    except OSError as problem:
        msg = f"the state database {path} cannot be opened: {problem.strerror}"
        hint = "check that the state directory exists and is writable"
        kind = DiskError if problem.errno in _UNWRITABLE_OS else StoreError
        raise kind(msg, hint=hint) from problem


def _trust(path: Path) -> None:
    """SQLite would follow a link, and a pipe would be waited for.

    Raises:
        StateError: Something else than a file of ours lies at the place of one of the files.
    """
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = Path(f"{path}{suffix}")
        try:
            found = file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        why = private_file.why_not(found, owners={os.geteuid()}, links=1)
        if why is not None:
            msg = f"{file} {why}; nothing was read from it or written to it"
            raise StateError(msg, hint="move it away, or name another --state-dir")


def remembered(path: Path, scratch: Path, clock: Clock) -> tuple[sqlite3.Connection, str | None]:
    """A database in memory with what the file holds, and what could not be had of it."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with _room(scratch / path.name) as folder:
            damage = _copy(path, folder / path.name, memory)
        memory.row_factory = sqlite3.Row
        memory.execute("PRAGMA foreign_keys = ON")
        migrate.migrate(memory, clock)
    except REFUSALS as problem:
        memory.close()
        raise explained(problem, path) from problem
    except OSError as problem:
        memory.close()
        msg = f"the state database {path} cannot be read: {problem.strerror}"
        raise StoreError(msg, hint="the kernel log says more") from problem
    except BaseException:
        memory.close()
        raise
    if damage is None:
        return memory, None
    log.error("store.unreadable", path=str(path), reason=damage)
    return memory, f"the state database is damaged and cannot be set aside ({damage})"


@contextmanager
def _room(name: Path) -> Iterator[Path]:
    """A directory for a moment; what a killed daemon left of it is swept."""
    private_file.sweep(name)
    folder = private_file.temporary(name)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(path: Path, copy: Path, memory: sqlite3.Connection) -> str | None:
    """Fill an empty database from a file with its WAL; what is wrong with them, or None."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    damage = _damage(copy)
    if damage is None and copy.exists():
        with closing(sqlite3.connect(copy, isolation_level=None)) as source:
            # A database in memory has no WAL, and a copy of one that has cannot be opened.
            source.execute("PRAGMA journal_mode = DELETE")
            source.backup(memory)
    return damage


def _damage(path: Path) -> str | None:
    """What is wrong with the file, or None; leaves one that must not be touched as it is."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with path.open("rb") as file:
        versions = file.read(20)[18:]
    if len(versions) == len(_FORMATS[0]) and versions not in _FORMATS:
        return f"the header's format versions are {versions.hex()}"
    # A read-only connection does not checkpoint the WAL into a file that may be refused.
    readable = _found(f"{path.absolute().as_uri()}?mode=ro", migrate.check)
    return readable or _found(path.absolute().as_uri(), migrate.verify)


def _found(uri: str, look: Callable[[sqlite3.Connection], object]) -> str | None:
    """What is wrong with a file as a function sees it, or None."""
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as conn:
        try:
            look(conn)
        except migrate.Damaged as problem:
            return str(problem)
        except REFUSALS as problem:
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
        # SQLite opens what it cannot write to for reading, and says so with the first write.
        conn.execute("BEGIN IMMEDIATE")
        touch(conn)
        conn.execute("COMMIT")
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
    conn.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")


def touch(conn: sqlite3.Connection) -> None:
    """Write what changes nothing, but needs the disk."""
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    conn.execute(f"PRAGMA user_version = {version}")


def explained(problem: Exception, path: Path) -> MtpdError:
    """What a refusal of SQLite means, with advice."""
    code = getattr(problem, "sqlite_errorcode", None)
    hint = "a row is damaged; move the file away to start with a new one"
    if code is not None:
        hint = _HINTS.get(code & _PRIMARY, "the message is SQLite's own")
    unwritable = code is not None and code & _PRIMARY in _UNWRITABLE
    kind = DiskError if unwritable else StoreError
    return kind(f"the state database {path} refused: {problem}", hint=hint)
