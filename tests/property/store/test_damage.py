"""Any damage to the file: opening ends in a usable database, never in a crash loop."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision, observation

Damage = tuple[str, float, bytes]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a killed daemon leaves it: a database with rows and a WAL with more."""
    live = tmp_path_factory.mktemp("live")
    left = tmp_path_factory.mktemp("left")

    async def fill() -> None:
        async with await Database.open(live / "db", FakeClock()) as db:
            await _use(db, rounds=20)
            await db.read(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
            await _use(db, rounds=3)
            for suffix in ("", "-wal"):
                shutil.copy(live / f"db{suffix}", left / f"db{suffix}")

    asyncio.run(fill())
    return left


async def _use(db: Database, *, rounds: int) -> None:
    measurements = Measurements(db=db, clock=FakeClock())
    journal = Journal(db=db, clock=FakeClock())
    for _ in range(rounds):
        number = await measurements.add(observation(), acceptance_source="metrics")
        await journal.append(decision(), measurement_ids=(number,))
    await measurements.list()
    await journal.list()


@settings(max_examples=100)
@example(damages=[("db", 0.4801375696152213, b"\x80")], cut=None)
@given(
    damages=st.lists(
        st.tuples(
            st.sampled_from(["db", "db-wal"]),
            st.floats(0, 1, exclude_max=True),
            st.binary(min_size=1, max_size=64),
        ),
        min_size=1,
        max_size=3,
    ),
    cut=st.none() | st.tuples(st.sampled_from(["db", "db-wal"]), st.floats(0, 1)),
)
def test_a_damaged_file_is_used_or_set_aside(
    crashed: Path, damages: list[Damage], cut: tuple[str, float] | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in crashed.iterdir():
            shutil.copy(file, folder)
        for file_name, where, junk in damages:
            content = bytearray((folder / file_name).read_bytes())
            start = int(where * len(content))
            content[start : start + len(junk)] = junk
            (folder / file_name).write_bytes(content)
        if cut is not None:
            content = bytearray((folder / cut[0]).read_bytes())
            (folder / cut[0]).write_bytes(content[: int(cut[1] * len(content))])
        asyncio.run(_open_and_use(folder))


async def _open_and_use(folder: Path) -> None:
    try:
        async with await Database.open(folder / "db", FakeClock()) as db:
            await _use(db, rounds=1)
            fresh = db.quarantined is not None
    except StoreError as problem:
        # Text inside an intact page can have changed; that is reported, not crashed on.
        texts = ("holds what is no", "Could not decode to UTF-8")
        assert any(text in str(problem) for text in texts)  # noqa: PT017 - a good end too
        return
    with closing(sqlite3.connect(folder / "db")) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = conn.execute("SELECT count(*) FROM decisions").fetchone()[0]
    assert rows == 1 if fresh else rows >= 1


async def test_a_message_of_sqlite_that_is_no_text_is_a_refusal_like_any_other(
    tmp_path: Path,
) -> None:
    """A damaged schema is quoted in the message, byte for byte."""
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        await db.read(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    whole = (tmp_path / "db").read_bytes()
    where = whole.index(b"CREATE TABLE decisions")
    for length in range(len(b"CREATE TABLE decisions")):
        at = where + length
        (tmp_path / "db").write_bytes(whole[:at] + b"\x80" + whole[at + 1 :])
        async with await Database.open(tmp_path / "db", FakeClock()) as db:
            assert db.quarantined is not None
