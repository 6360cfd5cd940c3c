"""Damaged files of the database: each start succeeds, or refuses without a touch; none loops.

``make test`` tries a part; ``make faults`` sets MTPD_ENDURANCE and tries 500.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mtpd.errors import StateError
from mtpd.store import migrate
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision, observation

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = os.environ.get("MTPD_ENDURANCE") == "1"
MUTANTS = 500 if ALL else 60
SEED = 20261130
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, not a name in it
START_S = 60.0
"""A start that waits for something for ever is no start; no speed is asserted."""

Content = dict[str, bytes]


@pytest.fixture(scope="module")
def left() -> Content:
    """The files of a daemon that was killed: rows in the database, and more in its WAL."""

    async def fill(folder: Path) -> Content:
        async with await Database.open(folder / "db", FakeClock()) as db:
            await _use(db, rounds=20)
            await db.read(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
            await _use(db, rounds=3)
            return {name: (folder / name).read_bytes() for name in _names(folder)}

    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="mtpd-t-") as name:
        found = asyncio.run(fill(Path(name)))
    assert set(found) == {"db", "db-wal", "db-shm"}
    return found


def _names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


async def _use(db: Database, *, rounds: int) -> None:
    measurements = Measurements(db=db, clock=FakeClock())
    journal = Journal(db=db, clock=FakeClock())
    for _ in range(rounds):
        number = await measurements.add(observation(), acceptance_source="metrics")
        await journal.append(decision(), measurement_ids=(number,))


def _flip(rng: random.Random, content: bytearray) -> None:
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _cut(rng: random.Random, content: bytearray) -> None:
    del content[rng.randrange(len(content)) :]


def _zeros(rng: random.Random, content: bytearray) -> None:
    start, length = rng.randrange(len(content)), rng.randint(1, 8192)
    content[start : start + length] = bytes(len(content[start : start + length]))


def _garbage(rng: random.Random, content: bytearray) -> None:
    start, length = rng.randrange(len(content)), rng.randint(1, 8192)
    content[start : start + length] = rng.randbytes(len(content[start : start + length]))


def _swapped(rng: random.Random, content: bytearray) -> None:
    """Two pages change places, as a file system that lost its mind leaves them."""
    size = 4096
    first, second = (rng.randrange(max(1, len(content) // size)) * size for _ in range(2))
    page = content[first : first + size]
    content[first : first + size] = content[second : second + size]
    content[second : second + size] = page


DAMAGES: Final[tuple[Callable[[random.Random, bytearray], None], ...]] = (
    _flip,
    _cut,
    _zeros,
    _garbage,
    _swapped,
)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_mutant_starts_and_what_cannot_be_used_is_set_aside(
    left: Content, capsys: pytest.CaptureFixture[str]
) -> None:
    set_aside = 0
    for number in range(MUTANTS):
        rng = random.Random(SEED + number)  # noqa: S311 - reproducible, not secret
        mutant = dict(left)
        for name in rng.sample(sorted(left), rng.randint(1, 2)):
            content = bytearray(left[name])
            rng.choice(DAMAGES)(rng, content)
            mutant[name] = bytes(content)
        try:
            set_aside += await _started_twice(mutant)
        except BaseException as problem:
            problem.add_note(f"SEED={SEED}, mutant {number}")
            raise
    with capsys.disabled():
        print(f" SEED={SEED}: {set_aside} of {MUTANTS} were set aside", end="")  # noqa: T201
    assert set_aside >= MUTANTS // 10, "hardly any was unusable: nothing was shown"
    assert set_aside <= MUTANTS * 9 // 10, "hardly any was usable: nothing was shown"


def _pages_are_whole(path: Path) -> bool:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as conn:
        return bool(conn.execute("PRAGMA quick_check").fetchone() == ("ok",))


async def _started_twice(mutant: Content) -> bool:
    """Start, write, and start again; whether the first start set the files aside."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="mtpd-t-") as name:
        folder = Path(name)
        for file, content in mutant.items():
            (folder / file).write_bytes(content)
        async with asyncio.timeout(START_S), await Database.open(folder / "db", FakeClock()) as db:
            await _use(db, rounds=1)
            moved = db.quarantined
        if moved is not None:
            assert moved.name.startswith("db.corrupt-")
            if moved.read_bytes() != mutant["db"]:  # whole pages with impossible rows, and the WAL
                assert _pages_are_whole(moved), "what was set aside was changed"
            assert (db.lost or "").endswith(moved.name)
        async with asyncio.timeout(START_S), await Database.open(folder / "db", FakeClock()) as db:
            assert db.quarantined is None, "it is set aside again and again"
            assert db.lost is None
        with closing(sqlite3.connect(folder / "db")) as conn:
            assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert conn.execute("SELECT count(*) FROM decisions").fetchone()[0] >= 1
    return moved is not None


@pytest.mark.parametrize("ahead", [1, 7])
async def test_a_newer_version_that_has_a_wal_is_refused_every_time_and_untouched(
    left: Content, ahead: int
) -> None:
    newest = migrate.MIGRATIONS[-1].version + ahead
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="mtpd-t-") as name:
        folder = Path(name)
        for file in ("db", "db-wal"):
            (folder / file).write_bytes(left[file])
        with closing(sqlite3.connect(folder / "db", isolation_level=None)) as conn:
            conn.execute("INSERT INTO schema_migrations VALUES (?, 'later', '')", (newest,))
            conn.execute(f"PRAGMA user_version = {newest}")
            content = {file: (folder / file).read_bytes() for file in ("db", "db-wal")}
        for file, before in content.items():
            (folder / file).write_bytes(before)
        for _ in range(3):
            with pytest.raises(StateError, match=f"schema version {newest}") as refused:
                await Database.open_or_remember(folder / "db", FakeClock(), scratch=folder)
            assert refused.value.exit_code == 78
        assert {file: (folder / file).read_bytes() for file in content} == content
        assert not [one for one in _names(folder) if "corrupt" in one]


async def test_what_a_newer_version_wrote_is_there_after_the_way_back_and_forth(
    tmp_path: Path,
) -> None:
    """N, then N+1, then N, which refuses, then N+1 again."""
    path = tmp_path / "db"
    async with await Database.open(path, FakeClock()) as db:
        await _use(db, rounds=2)
    newer = (
        *migrate.MIGRATIONS,
        migrate.Migration(
            version=migrate.MIGRATIONS[-1].version + 1,
            name="next",
            sql="CREATE TABLE later (x INTEGER) STRICT;",
        ),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        assert migrate.migrate(conn, FakeClock(), migrations=newer) == (newer[-1].version,)
        conn.execute("INSERT INTO later VALUES (7)")
    before = path.read_bytes()
    with pytest.raises(StateError, match="has schema version"):
        await Database.open(path, FakeClock())
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        assert migrate.check(conn, migrations=newer) == newer[-1].version
        assert conn.execute("SELECT x FROM later").fetchone() == (7,)
        assert conn.execute("SELECT count(*) FROM decisions").fetchone() == (2,)


def _link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _pipe(path: Path, _victim: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("file", ["db", "db-wal", "db-shm", "db-journal"])
@pytest.mark.parametrize("plant", [_link, _hard_link, _pipe])
async def test_what_someone_planted_is_refused_and_nothing_outside_is_written(
    tmp_path: Path, file: str, plant: Callable[[Path, Path], None], left: Content
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(left["db"])
    if file != "db":
        (folder / "db").write_bytes(left["db"])
    plant(folder / file, victim)
    with pytest.raises(StateError, match="nothing was read from it or written to it") as refused:
        async with asyncio.timeout(START_S):
            await Database.open_or_remember(folder / "db", FakeClock(), scratch=tmp_path)
    assert refused.value.exit_code == 78
    assert victim.read_bytes() == left["db"]
    assert _names(tmp_path) == ["state", "victim"]
