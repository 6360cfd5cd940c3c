"""Starts that are noted beside the sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.clock import SystemClock
from mtpd.store.db import Database
from mtpd.store.ledger import Ledger
from mtpd.store.start_notes import Noted, StartNotes
from mtpd.types import UnixEndpoint
from mtpd.units import HOST, EngineId
from tests.fakes.values import DEPTH_2

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = EngineId("one"), EngineId("two")


def notes(folder: Path, boot: str = "b") -> StartNotes:
    return StartNotes(folder, state=folder / "state", boot_id=boot)


def test_two_daemons_that_share_a_runtime_directory_do_not_find_each_others(tmp_path: Path) -> None:
    notes(tmp_path).put(ONE)
    other = StartNotes(tmp_path, state=tmp_path / "other", boot_id="b")
    assert other.read() == ()
    other.put(TWO)
    assert [row.engine_id for row in notes(tmp_path).read()] == [ONE]


def test_a_note_is_found_by_the_next_daemon_of_this_boot_alone(tmp_path: Path) -> None:
    first = notes(tmp_path)
    first.put(ONE)
    first.put(TWO)
    first.drop(ONE)
    assert notes(tmp_path).read() == (Noted(engine_id=TWO, boot_id="b"),)
    assert notes(tmp_path, "another").read() == ()
    assert notes(tmp_path).path.stat().st_mode & 0o777 == 0o600


def test_the_last_note_takes_its_file_along(tmp_path: Path) -> None:
    first = notes(tmp_path)
    first.put(ONE)
    first.drop(ONE)
    first.drop(ONE)
    assert list(tmp_path.iterdir()) == []


def test_what_was_found_is_kept_until_it_is_taken_back(tmp_path: Path) -> None:
    notes(tmp_path).put(ONE)
    later = notes(tmp_path)
    later.read()
    later.put(TWO)
    assert {row.engine_id for row in notes(tmp_path).read()} == {ONE, TWO}


@pytest.mark.parametrize(
    "content", ["", "{", '{"version": 2, "starts": []}', '{"version": 1, "starts": [{}]}']
)
def test_a_file_that_cannot_be_believed_holds_nothing(tmp_path: Path, content: str) -> None:
    notes(tmp_path).path.write_text(content)
    notes(tmp_path).path.chmod(0o600)
    with capture_logs() as logs:
        assert notes(tmp_path).read() == ()
    assert [line["event"] for line in logs] == ["starts.unreadable"]


def test_nor_does_one_that_others_may_write_or_a_directory(tmp_path: Path) -> None:
    notes(tmp_path).put(ONE)
    notes(tmp_path).path.chmod(0o666)
    with capture_logs() as logs:
        assert notes(tmp_path).read() == ()
        notes(tmp_path).path.unlink()
        notes(tmp_path).path.symlink_to("/dev/null")
        assert notes(tmp_path).read() == ()
    assert [line["event"] for line in logs] == ["starts.unreadable"] * 2


def test_a_note_that_cannot_be_written_is_none_and_one_that_cannot_be_dropped_stays(
    tmp_path: Path,
) -> None:
    kept = notes(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        kept.put(ONE)
    (tmp_path / "away").mkdir()
    kept.put(TWO)
    assert [row["engine_id"] for row in json.loads(kept.path.read_text())["starts"]] == [TWO]
    kept.path.unlink()
    kept.path.mkdir()
    with capture_logs() as logs:
        kept.drop(TWO)
    assert [line["event"] for line in logs] == ["starts.not_written"]


async def test_a_note_without_a_row_is_one_of_the_starts_that_are_looked_for(
    tmp_path: Path,
) -> None:
    """A row beside its note counts once: the daemon was killed between the two."""
    notes(tmp_path).put(ONE)
    before = notes(tmp_path)
    before.read()
    before.put(TWO)
    async with await Database.open(tmp_path / "db", SystemClock()) as db:
        earlier = Ledger(db=db, clock=SystemClock(), boot_id="b")
        await earlier.intend(
            TWO,
            profile="m",
            device=HOST,
            arm=DEPTH_2,
            argv_digest="0",
            endpoint=UnixEndpoint("/s"),
            fingerprint="f",
        )
        assert await earlier.noted() == ()
        ledger = Ledger(db=db, clock=SystemClock(), boot_id="b", notes=notes(tmp_path))
        assert [row.engine_id for row in await ledger.noted()] == [ONE]
        assert [row.engine_id for row in await ledger.open_rows()] == [TWO]
        await ledger.ended(ONE, None)
        await ledger.ended(TWO, None)
        assert await ledger.open_rows() == ()
        assert await ledger.get(ONE) is None
    assert not notes(tmp_path).path.exists()
