"""Opening, transactions, refusals and quarantine of the state database."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.clock import rfc3339
from mtpd.errors import StateError, StoreError
from mtpd.store import migrate
from mtpd.store.db import Database
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path


def _insert(digest: str) -> str:
    return f"INSERT INTO fingerprints VALUES ('{digest}', NULL)"  # noqa: S608 - a test's constant


async def _digests(db: Database) -> list[str]:
    return await db.read(
        lambda conn: [row["digest"] for row in conn.execute("SELECT digest FROM fingerprints")]
    )


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def _degraded(db: Database) -> str | None:
    return db.degraded


async def _filled(path: Path) -> None:
    async with await Database.open(path, FakeClock()) as db:
        await db.write(lambda conn: conn.execute(_insert("a")))


async def test_a_new_file_carries_our_application_id_and_the_newest_version(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.sqlite3"
    clock = FakeClock()

    async with await Database.open(path, clock) as db:
        assert db.quarantined is None

    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA application_id").fetchone() == (migrate.APPLICATION_ID,)
        assert conn.execute("PRAGMA user_version").fetchone() == (migrate.MIGRATIONS[-1].version,)
        rows = conn.execute("SELECT * FROM schema_migrations").fetchall()
    at = rfc3339(clock.utc())
    assert rows == [(step.version, step.name, at) for step in migrate.MIGRATIONS]


async def test_a_database_of_version_1_is_brought_up_to_date_with_what_it_holds(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        migrate.migrate(conn, FakeClock(), migrations=migrate.MIGRATIONS[:1])
        conn.execute(_insert("old"))
        assert migrate.check(conn) == 1

    async with await Database.open(path, FakeClock()) as db:
        assert db.quarantined is None
        assert await _digests(db) == ["old"]
        assert (
            await db.read(lambda conn: conn.execute("SELECT * FROM model_files").fetchall()) == []
        )

    with closing(sqlite3.connect(path)) as conn:
        assert migrate.check(conn) == migrate.MIGRATIONS[-1].version


async def test_kinds_and_acts_that_a_later_version_knows_can_be_stored_beside_old_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.sqlite3"
    decision = (
        "INSERT INTO decisions (at, schema_version, act, subject, reason, evidence, inputs)"
        " VALUES ('', 1, '{}', 's', 'r', '[]', '{{}}')"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        migrate.migrate(conn, FakeClock(), migrations=migrate.MIGRATIONS[:5])
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            conn.execute(decision.format("reload"))
        conn.execute(decision.format("keep"))
        migrate.migrate(conn, FakeClock())
        conn.execute(decision.format("reload"))
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            conn.execute(decision.format(""))
    with closing(sqlite3.connect(path)) as conn:
        assert migrate.check(conn) == migrate.MIGRATIONS[-1].version
        assert conn.execute("SELECT act FROM decisions ORDER BY id").fetchall() == [
            ("keep",),
            ("reload",),
        ]


async def test_the_connection_is_durable_checks_foreign_keys_and_keeps_few_pages(
    tmp_path: Path,
) -> None:
    async with await Database.open(tmp_path / "state.sqlite3", FakeClock()) as db:
        settings = await db.read(
            lambda conn: [
                conn.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "foreign_keys", "cache_size")
            ]
        )
    assert settings == ["wal", 2, 1, -512]


async def test_rows_are_there_after_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    await _filled(path)

    async with await Database.open(path, FakeClock()) as db:
        assert await _digests(db) == ["a"]


async def test_a_function_that_raises_leaves_nothing_of_its_transaction(tmp_path: Path) -> None:
    def half(conn: sqlite3.Connection) -> None:
        conn.execute(_insert("b"))
        raise LookupError

    async with await Database.open(tmp_path / "state.sqlite3", FakeClock()) as db:
        with pytest.raises(LookupError):
            await db.write(half)
        assert await _digests(db) == []
        await db.write(lambda conn: conn.execute(_insert("c")))
        assert await _digests(db) == ["c"]


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
async def test_a_fault_around_the_commit_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    class Faulty:
        def hit(self, name: str) -> None:
            if name == point:
                raise ConnectionAbortedError

    async with await Database.open(tmp_path / "x.sqlite3", FakeClock(), faults=Faulty()) as db:
        with pytest.raises(ConnectionAbortedError):
            await db.write(lambda conn: conn.execute(_insert("a")))
        assert await _digests(db) == (["a"] if point == "store.after_commit" else [])


async def test_a_full_disk_is_an_error_with_advice_and_clears_by_itself(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "state.sqlite3", FakeClock()) as db:
        pages = await db.read(lambda conn: conn.execute("PRAGMA page_count").fetchone()[0])
        await db.read(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(StoreError, match="full") as caught:
            await db.write(lambda conn: conn.execute(_insert("a" * 200_000)))
        assert caught.value.hint == "free disk space; the daemon goes on serving meanwhile"
        assert _degraded(db) == str(caught.value)
        assert await _digests(db) == []

        await db.read(lambda conn: conn.execute("PRAGMA max_page_count = 100000").fetchone())
        await db.write(lambda conn: conn.execute(_insert("b")))
        assert _degraded(db) is None
        assert await _digests(db) == ["b"]


async def test_a_read_only_database_is_an_error_with_advice(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "state.sqlite3", FakeClock()) as db:
        await db.read(lambda conn: conn.execute("PRAGMA query_only = ON"))
        with pytest.raises(StoreError, match="readonly") as caught:
            await db.write(lambda conn: conn.execute(_insert("a")))
        assert caught.value.hint is not None
        assert "writable" in caught.value.hint


async def test_a_missing_directory_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="refused") as caught:
        await Database.open(tmp_path / "absent" / "state.sqlite3", FakeClock())
    assert caught.value.hint == "check that the state directory exists and is writable"


async def test_a_path_below_a_file_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be opened|refused") as caught:
        await Database.open(tmp_path / "file" / "state.sqlite3", FakeClock())
    assert caught.value.hint is not None


async def test_a_newer_schema_is_refused_and_the_file_untouched(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    await _filled(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("INSERT INTO schema_migrations VALUES (99, 'later', '')")
        conn.execute("PRAGMA user_version = 99")
        conn.commit()
    before = path.read_bytes()

    with pytest.raises(StateError, match="schema version 99") as caught:
        await Database.open(path, FakeClock())

    assert caught.value.hint is not None
    assert caught.value.exit_code == 78
    assert path.read_bytes() == before
    assert not [name for name in _names(tmp_path) if "corrupt" in name]


async def test_a_newer_schema_that_lies_only_in_the_wal_is_refused_and_untouched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "live.sqlite3"
    copy = tmp_path / "state.sqlite3"
    await _filled(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA wal_autocheckpoint = 0")
        conn.execute("INSERT INTO schema_migrations VALUES (99, 'later', '')")
        conn.execute("PRAGMA user_version = 99")
        conn.commit()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    before = copy.read_bytes(), (tmp_path / "state.sqlite3-wal").read_bytes()

    with pytest.raises(StateError, match="schema version 99"):
        await Database.open(copy, FakeClock())

    assert (copy.read_bytes(), (tmp_path / "state.sqlite3-wal").read_bytes()) == before


async def test_another_programs_database_is_refused_and_the_file_untouched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.sqlite3"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE theirs (x)")
        conn.commit()
    before = path.read_bytes()

    with pytest.raises(StateError, match="another program"):
        await Database.open(path, FakeClock())
    assert path.read_bytes() == before


async def test_a_damaged_file_is_set_aside_with_its_wal_and_a_new_one_started(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.sqlite3"
    garbage = b"this is no database " * 400
    path.write_bytes(garbage)
    (tmp_path / "state.sqlite3-wal").write_bytes(b"wal")
    (tmp_path / "state.sqlite3-shm").write_bytes(b"shm")

    async with await Database.open(path, FakeClock()) as db:
        aside = db.quarantined
        await db.write(lambda conn: conn.execute(_insert("a")))
        assert await _digests(db) == ["a"]

    assert aside == tmp_path / "state.sqlite3.corrupt-20261129T120000.000000Z"
    assert aside.read_bytes() == garbage
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == b"wal"
    assert aside.with_name(f"{aside.name}-shm").exists()


async def test_a_version_number_that_no_migration_recorded_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    await _filled(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA user_version = 1234567")

    async with await Database.open(path, FakeClock()) as db:
        assert db.quarantined is not None


async def test_a_changed_table_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    await _filled(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("ALTER TABLE fingerprints RENAME COLUMN fields TO fielde")

    async with await Database.open(path, FakeClock()) as db:
        assert db.quarantined is not None
        assert await _digests(db) == []


async def test_every_byte_of_the_header_can_flip_without_a_crash_loop(tmp_path: Path) -> None:
    original = tmp_path / "original.sqlite3"
    await _filled(original)
    healthy = original.read_bytes()

    for position in range(100):
        path = tmp_path / f"{position}.sqlite3"
        mutant = bytearray(healthy)
        mutant[position] ^= 0x41
        path.write_bytes(mutant)
        async with await Database.open(path, FakeClock()) as db:
            await db.write(lambda conn: conn.execute(_insert("new")))
            expected = {"new"} if db.quarantined else {"a", "new"}
            assert set(await _digests(db)) == expected


@pytest.mark.parametrize("size", [0, 1, 99, 100, 511, 4095, 4096, 5000, 20_000])
async def test_a_truncated_file_is_set_aside_or_started_anew(tmp_path: Path, size: int) -> None:
    path = tmp_path / "state.sqlite3"
    await _filled(path)
    path.write_bytes(path.read_bytes()[:size])

    async with await Database.open(path, FakeClock()) as db:
        # SQLite takes a file of one byte for an empty one.
        assert (db.quarantined is None) == (size <= 1)
        assert await _digests(db) == []


async def test_closing_ends_the_thread_and_can_be_done_twice(tmp_path: Path) -> None:
    db = await Database.open(tmp_path / "state.sqlite3", FakeClock())
    await db.close()
    await db.close()

    assert not [t for t in threading.enumerate() if t.name.startswith("mtpd-store")]
    assert _names(tmp_path) == ["state.sqlite3"]


async def test_writes_of_many_tasks_are_serialised(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "state.sqlite3", FakeClock()) as db:

        async def add(number: int) -> None:
            await db.write(lambda conn: conn.execute(_insert(str(number))))

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(add, number)
        assert len(await _digests(db)) == 30
