"""The schema's versions: applying what is missing, recognising what is not ours or too new.

Covers one connection that is already open. Not how a file is opened, and not what
happens to a damaged one (``mtpd.store.db``).
"""

from __future__ import annotations

import importlib.resources
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.clock import rfc3339
from mtpd.errors import StateError
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.clock import Clock

__all__ = [
    "APPLICATION_ID",
    "MIGRATIONS",
    "Damaged",
    "Migration",
    "check",
    "migrate",
    "require",
    "verify",
]

APPLICATION_ID = 0x6D747064
"""``PRAGMA application_id`` of our files: "mtpd" in ASCII."""

_SQLITE_MIN = (3, 37, 0)
_FULL_CHECK_BYTES = 64 * MIB

_Schema = frozenset[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema: its number, its name and the SQL that takes it.

    Attributes:
        version: ``PRAGMA user_version`` afterwards; versions count from 1 without gaps.
        name: Recorded in ``schema_migrations``.
        sql: The statements; run in one transaction.
    """

    version: int
    name: str
    sql: str


class Damaged(Exception):  # noqa: N818 - a verdict on a file for the caller, not an error to show
    """The file is ours, or nothing readable, and not what this version wrote."""


def _resource(name: str) -> str:
    return importlib.resources.files("mtpd.store").joinpath(name).read_text(encoding="utf-8")


MIGRATIONS: tuple[Migration, ...] = (
    Migration(version=1, name="initial", sql=_resource("schema.sql")),
    Migration(version=2, name="model_files", sql=_resource("model_files.sql")),
    Migration(version=3, name="offered", sql=_resource("offered.sql")),
    Migration(version=4, name="room", sql=_resource("room.sql")),
    Migration(version=5, name="idle", sql=_resource("idle.sql")),
    Migration(version=6, name="open_words", sql=_resource("open_words.sql")),
    Migration(version=7, name="actor", sql=_resource("actor.sql")),
    Migration(version=8, name="live", sql=_resource("live.sql")),
    Migration(version=9, name="quality", sql=_resource("quality.sql")),
    Migration(version=10, name="taken", sql=_resource("taken.sql")),
)
"""Every version ever released, in order; a released one is never edited."""


def require(version: tuple[int, ...]) -> None:
    """Refuse an SQLite library without STRICT tables.

    Raises:
        StateError: The library is too old.
    """
    if version < _SQLITE_MIN:
        have, want = (".".join(map(str, each)) for each in (version, _SQLITE_MIN))
        msg = f"Python's SQLite library is version {have}; mtpd needs {want} or newer"
        raise StateError(msg, hint="use a Python that brings a newer SQLite")


def check(conn: sqlite3.Connection, *, migrations: tuple[Migration, ...] = MIGRATIONS) -> int:
    """The file's schema version, 0 for an empty file; reads only.

    Raises:
        StateError: The file is from a newer version of mtpd, or another program's.
        Damaged: The pages, the header or the schema are not what was written.
    """
    application = _pragma(conn, "application_id")
    version = _pragma(conn, "user_version")
    names = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    if (application, version, names) == (0, 0, set()):
        return 0
    if "schema_migrations" not in names and application != APPLICATION_ID:
        msg = f"the file is an SQLite database of another program (application_id {application:#x})"
        raise StateError(msg, hint="point --state-dir at a directory of mtpd's own")
    if application != APPLICATION_ID:
        reason = f"application_id is {application:#x}, not ours, in a file with our tables"
        raise Damaged(reason)
    recorded = conn.execute("SELECT max(version) FROM schema_migrations").fetchone()[0]
    if recorded != version:
        reason = f"user_version is {version} but the last recorded migration is {recorded}"
        raise Damaged(reason)
    newest = migrations[-1].version
    if version > newest:
        msg = f"the database has schema version {version}; this mtpd knows versions up to {newest}"
        raise StateError(msg, hint="install the newer mtpd again, or use another state directory")
    _verdict(conn, "quick_check")
    if _schema(conn) != _expected(migrations, version):
        reason = f"the tables are not those of schema version {version}"
        raise Damaged(reason)
    return version


def verify(conn: sqlite3.Connection) -> None:
    """Look for what ``check`` cannot find on a connection that only reads.

    SQLite does not even read CHECK constraints there. In a file of at most 64 MiB indices are
    compared with their tables, too, which reads everything twice.

    Raises:
        Damaged: A row is not what could have been written.
    """
    size = _pragma(conn, "page_count") * _pragma(conn, "page_size")
    _verdict(conn, "integrity_check" if size <= _FULL_CHECK_BYTES else "quick_check")


def migrate(
    conn: sqlite3.Connection, clock: Clock, *, migrations: tuple[Migration, ...] = MIGRATIONS
) -> tuple[int, ...]:
    """Apply the missing migrations, each in a transaction of its own, and name them."""
    version = _pragma(conn, "user_version")
    missing = [step for step in migrations if step.version > version]
    for step in missing:
        conn.execute("BEGIN IMMEDIATE")
        try:
            _apply(conn, step, rfc3339(clock.utc()))
            conn.execute("COMMIT")
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
    return tuple(step.version for step in missing)


def _apply(conn: sqlite3.Connection, step: Migration, at: str) -> None:
    for statement in _statements(step.sql):
        conn.execute(statement)
    conn.execute("INSERT INTO schema_migrations VALUES (?, ?, ?)", (step.version, step.name, at))
    # Pragmas take no parameters; both numbers are ours.
    conn.execute(f"PRAGMA user_version = {step.version}")
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _statements(sql: str) -> Iterator[str]:
    """The script's statements; ``executescript`` would commit the transaction around it."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _verdict(conn: sqlite3.Connection, pragma: str) -> None:
    verdict = conn.execute(f"PRAGMA {pragma}(1)").fetchone()[0]
    if verdict != "ok":
        raise Damaged(verdict)


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    return int(conn.execute(f"PRAGMA {name}").fetchone()[0])


def _schema(conn: sqlite3.Connection) -> _Schema:
    rows = conn.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    # sqlite_sequence and the automatic indices are SQLite's own and depend on its version.
    return frozenset(
        (kind, name, sql) for kind, name, sql in rows if not name.startswith("sqlite_")
    )


def _expected(migrations: tuple[Migration, ...], version: int) -> _Schema:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as scratch:
        for step in migrations[:version]:
            _apply(scratch, step, "")
        return _schema(scratch)
