"""Going on in memory while the disk takes no writes, and everything on it afterwards."""

from __future__ import annotations

import resource
import signal
import sqlite3
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision, observation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def no_byte_fits() -> Iterator[None]:
    """A file size limit of zero refuses every write, as a full disk does."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with capture_logs():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        signal.signal(signal.SIGXFSZ, ignored)


def subjects(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in conn.execute("SELECT subject FROM decisions")]


async def test_what_was_written_in_memory_is_on_the_disk_once_it_takes_writes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "db"
    with no_byte_fits():
        db = await Database.open_or_remember(path, FakeClock(), scratch=tmp_path)
        assert (db.degraded or "").startswith("nothing is kept over a restart: ")
        assert db.lost is None
        kept = await Journal(db=db, clock=FakeClock()).append(decision())
        assert db.troubles == (f"state: {db.degraded}",)
        with pytest.raises(StoreError):
            await db.settle()
        assert db.degraded is not None
    async with db:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(db.run, again_s=0.01))
            await _durable(db)
            tasks.cancel_scope.cancel()
        assert await Journal(db=db, clock=FakeClock()).list() == (kept,)
        await Journal(db=db, clock=FakeClock()).append(decision())
        mode = await db.read(lambda conn: tuple(conn.execute("PRAGMA journal_mode").fetchone()))
        flushed = await db.read(lambda conn: tuple(conn.execute("PRAGMA synchronous").fetchone()))
        assert (mode, flushed) == (("wal",), (2,))
    assert subjects(path) == [kept.subject] * 2


async def _durable(db: Database) -> None:
    with anyio.fail_after(30):
        while db.troubles:  # noqa: ASYNC110 - the disk tells nobody
            await anyio.sleep(0.01)


async def test_a_write_that_was_refused_is_forgotten_once_the_disk_takes_one(
    tmp_path: Path,
) -> None:
    async with await Database.open_or_remember(
        tmp_path / "db", FakeClock(), scratch=tmp_path
    ) as db:
        with no_byte_fits(), pytest.raises(StoreError):
            await Journal(db=db, clock=FakeClock()).append(decision())
        assert db.troubles
        await db.settle()
        assert db.troubles == ()
    assert subjects(tmp_path / "db") == []


async def test_a_row_that_could_not_have_been_written_is_damage(tmp_path: Path) -> None:
    """SQLite reads no CHECK on a connection that only reads."""
    path = tmp_path / "db"
    async with await Database.open(path, FakeClock()) as db:
        await Measurements(db=db, clock=FakeClock()).add(observation(), acceptance_source="log")
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA ignore_check_constraints = ON")
        conn.execute("UPDATE measurements SET residency = 'somewhere'")
    async with await Database.open(path, FakeClock()) as db:
        assert db.quarantined is not None
        assert db.lost == f"the state database was damaged and set aside as {db.quarantined.name}"
