"""What a killed writer leaves is swept, and nothing else."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from mtpd.clock import SystemClock
from mtpd.store.db import Database
from mtpd.store.private_file import replace, sweep, temporary
from mtpd.store.token_file import TokenFile, Tokens
from tests.unit.store.test_unwritable import no_byte_fits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def gone() -> int:
    """A process that has been."""
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    return process.pid


def left(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_what_a_killed_writer_left_goes_with_the_next_that_is_written(
    tmp_path: Path, gone: int
) -> None:
    for name in (f".t.json.{gone}-0123abcd", ".t.json.0123abcd"):
        (tmp_path / name).write_text("a digest")
    replace(tmp_path / "t.json", b"{}")
    assert left(tmp_path) == {"t.json"}


def test_a_directory_that_one_left_goes_with_all_in_it(tmp_path: Path, gone: int) -> None:
    folder = tmp_path / f".db.{gone}-0123abcd"
    folder.mkdir()
    (folder / "db").write_text("rows")
    sweep(tmp_path / "db")
    assert left(tmp_path) == set()


def test_nothing_goes_that_is_not_ours(tmp_path: Path, gone: int) -> None:
    mark, outside = "0123abcd", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    names = (
        f".t.json.{os.getppid()}-{mark}",  # who lives may be writing it
        f".other.json.{gone}-{mark}",
        f".t.json.{gone}-{mark}.bak",
        f"t.json.{gone}-{mark}",
        f".t.json.{gone}-0123ABCD",
        f".t.json.{gone}-{mark}0",
        f".t.json.x{gone}-{mark}",
        ".t.json.swp",
        "t.json",
    )
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".t.json.{gone}-11111111").symlink_to(outside)
    os.mkfifo(tmp_path / f".t.json.{gone}-22222222")
    before = left(tmp_path)
    sweep(tmp_path / "t.json")
    assert left(tmp_path) == before
    assert left(outside) == {"kept"}


@pytest.mark.root
def test_nor_what_another_user_has_put_there(tmp_path: Path, gone: int) -> None:
    planted = tmp_path / f".t.json.{gone}-0123abcd"
    planted.touch()
    os.chown(planted, 12345, 12345)
    sweep(tmp_path / "t.json")
    assert left(tmp_path) == {planted.name}


def test_what_a_sweep_knows_is_what_a_writer_makes(tmp_path: Path) -> None:
    made = temporary(tmp_path / "lkg.json")
    made.touch()
    sweep(tmp_path / "lkg.json")
    assert left(tmp_path) == set(), "this process writes a file only once at a time"


def test_a_daemon_that_reads_its_tokens_sweeps_what_was_left_of_them(
    tmp_path: Path, gone: int
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / f".tokens.json.{gone}-0123abcd").write_text("a digest")
    Tokens(TokenFile(tmp_path, SystemClock()), tuple).load()
    assert left(tmp_path) == set()


async def test_a_copy_of_the_database_does_not_outlive_the_next(tmp_path: Path, gone: int) -> None:
    scratch = tmp_path / "run"
    old = scratch / f".db.{gone}-0123abcd"
    old.mkdir(parents=True)
    (old / "db").write_text("rows")
    with no_byte_fits():
        db = await Database.open_or_remember(tmp_path / "db", SystemClock(), scratch=scratch)
    async with db:
        assert db.degraded is not None
    assert left(scratch) == set()
