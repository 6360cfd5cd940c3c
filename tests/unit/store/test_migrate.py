"""Migrations: each in one transaction, each applied once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import StateError
from mtpd.store import migrate
from mtpd.store.migrate import MIGRATIONS, Migration
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = MIGRATIONS[-1].version
NEXT = Migration(version=NEWEST + 1, name="more", sql="CREATE TABLE more (x INTEGER) STRICT;\n")
BROKEN = Migration(
    version=NEWEST + 1,
    name="broken",
    sql="CREATE TABLE more (x INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n",
)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_an_sqlite_without_strict_tables_is_refused_with_advice() -> None:
    migrate.require((3, 37, 0))
    with pytest.raises(StateError, match=r"version 3\.34\.1; mtpd needs 3\.37\.0") as caught:
        migrate.require((3, 34, 1))
    assert caught.value.hint is not None


def test_versions_count_from_one_without_gaps() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_only_the_missing_steps_are_applied(tmp_path: Path) -> None:
    with closing(_connect(tmp_path / "x")) as conn:
        assert migrate.migrate(conn, FakeClock(), migrations=MIGRATIONS[:1]) == (1,)
        assert migrate.migrate(conn, FakeClock()) == tuple(range(2, NEWEST + 1))
        assert migrate.migrate(conn, FakeClock()) == ()
        assert migrate.migrate(conn, FakeClock(), migrations=(*MIGRATIONS, NEXT)) == (NEWEST + 1,)
        assert migrate.check(conn, migrations=(*MIGRATIONS, NEXT)) == NEWEST + 1


def test_a_step_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    with closing(_connect(tmp_path / "x")) as conn:
        migrate.migrate(conn, FakeClock())
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            migrate.migrate(conn, FakeClock(), migrations=(*MIGRATIONS, BROKEN))
        assert migrate.check(conn) == NEWEST
        assert not conn.in_transaction


def test_every_table_is_strict(tmp_path: Path) -> None:
    with closing(_connect(tmp_path / "x")) as conn:
        migrate.migrate(conn, FakeClock())
        loose = conn.execute(
            "SELECT name FROM pragma_table_list WHERE strict = 0 AND type = 'table'"
            " AND schema = 'main' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
    assert loose == []
