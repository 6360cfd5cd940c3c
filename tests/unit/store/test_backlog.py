"""Changes of the ledger that the disk refuses: noted, owed, and written in their order."""

from __future__ import annotations

import errno

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.errors import DiskError, StoreError
from mtpd.store.backlog import MAX_OWED, Backlog
from mtpd.units import EngineId

ONE, TWO = EngineId("one"), EngineId("two")


class Disk:
    """A list of what was written, or a refusal."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.full = self.lasting = False
        self.lasting = True

    async def write(self, work: object) -> None:
        await anyio.lowlevel.checkpoint()
        if self.full:
            raise DiskError("full", hint="free space")
        work(self.rows)  # type: ignore[operator]


class Notes:
    def __init__(self) -> None:
        self.kept: list[str] = []
        self.full = False

    def put(self, engine_id: EngineId) -> None:
        if self.full:
            raise OSError(errno.EROFS, "Read-only file system")
        self.kept.append(engine_id)

    def drop(self, engine_id: EngineId) -> None:
        if engine_id in self.kept:
            self.kept.remove(engine_id)


class Place:
    def __init__(self) -> None:
        self.disk, self.notes = Disk(), Notes()
        self.backlog = Backlog[list[str]](self.disk, self.notes)

    async def begin(self, engine_id: EngineId) -> None:
        await self.backlog.begin(engine_id, lambda rows: rows.append(f"{engine_id} begins"))

    async def change(self, engine_id: EngineId) -> None:
        await self.backlog.change(engine_id, lambda rows: rows.append(f"{engine_id} changes"))

    async def end(self, engine_id: EngineId) -> None:
        await self.backlog.change(
            engine_id, lambda rows: rows.append(f"{engine_id} ends"), ended=True
        )


async def test_what_the_disk_takes_is_written_at_once_and_noted_nowhere() -> None:
    place = Place()
    await place.begin(ONE)
    await place.end(ONE)
    assert place.disk.rows == ["one begins", "one ends"]
    assert (place.notes.kept, place.backlog.owed) == ([], 0)


async def test_a_start_that_the_disk_refuses_is_noted_until_its_row_is_written() -> None:
    place = Place()
    place.disk.full = True
    await place.begin(ONE)
    await place.change(ONE)
    assert place.notes.kept == [ONE]
    with pytest.raises(DiskError):
        await place.backlog.settle()
    assert place.notes.kept == [ONE]
    place.disk.full = False
    await place.backlog.settle()
    assert place.disk.rows == ["one begins", "one changes"]
    assert (place.notes.kept, place.backlog.owed) == ([], 0)


async def test_what_is_owed_is_written_before_anything_newer() -> None:
    place = Place()
    place.disk.full = True
    await place.begin(ONE)
    await place.end(ONE)
    assert place.notes.kept == [], "its process is gone"
    place.disk.full = False
    await place.begin(TWO)
    assert place.disk.rows == ["one begins", "one ends", "two begins"]


async def test_a_start_that_can_be_neither_written_nor_noted_is_refused() -> None:
    place = Place()
    place.disk.full = place.notes.full = True
    with pytest.raises(
        DiskError, match=r"full; nor can the start be noted .*: Read-only"
    ) as caught:
        await place.begin(ONE)
    assert caught.value.hint == "free space"
    place.disk.full = False
    await place.backlog.settle()
    assert place.disk.rows == []


async def test_a_start_in_a_ledger_that_is_in_memory_is_noted_until_that_is_on_the_disk() -> None:
    place = Place()
    place.disk.lasting = False
    await place.begin(ONE)
    await place.backlog.settle()
    assert place.notes.kept == [ONE]
    place.disk.lasting = True
    await place.backlog.settle()
    assert place.notes.kept == []


async def test_a_change_that_contradicts_the_rows_holds_nothing_up() -> None:
    place = Place()
    place.disk.full = True

    def contradicts(_rows: list[str]) -> None:
        raise StoreError("there is no such row")

    await place.backlog.change(ONE, contradicts)
    await place.begin(TWO)
    place.disk.full = False
    with capture_logs() as logs:
        await place.backlog.settle()
    assert place.disk.rows == ["two begins"]
    assert [line["event"] for line in logs] == ["ledger.change_lost"]
    with pytest.raises(StoreError):
        await place.backlog.change(ONE, contradicts)


async def test_an_owed_change_is_written_once_though_who_asked_has_left() -> None:
    place = Place()
    place.disk.full = True
    await place.begin(ONE)
    place.disk.full = False
    with anyio.CancelScope() as scope:
        scope.cancel()
        place.backlog._lock.acquire_nowait()
        place.backlog._lock.release()
        await place.backlog._flush()
    await place.backlog.settle()
    assert place.disk.rows == ["one begins"]


async def test_of_too_many_the_oldest_that_ended_are_forgotten_as_a_whole() -> None:
    place = Place()
    place.disk.full = True
    await place.begin(ONE)  # lives on
    for number in range(MAX_OWED):
        engine_id = EngineId(f"crash-{number}")
        await place.begin(engine_id)
        await place.end(engine_id)
    assert MAX_OWED - 1 <= place.backlog.owed <= MAX_OWED
    assert place.notes.kept == [ONE]
    place.disk.full = False
    await place.backlog.settle()
    assert place.disk.rows[0] == "one begins"
    assert place.disk.rows[1].endswith(" begins")
    assert place.disk.rows[-1] == f"crash-{MAX_OWED - 1} ends"
