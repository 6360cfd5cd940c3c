"""Full hashes of model files: found for the very file, kept over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.clock import rfc3339
from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.files import FileDigests
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "/srv/models/m.gguf"
A, B = "a" * 64, "b" * 64


async def test_a_hash_belongs_to_the_path_with_its_size_and_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with await Database.open(tmp_path / "x", clock) as db:
        files = FileDigests(db=db, clock=clock)
        assert await files.get(MODEL, size=5, mtime_ns=7) is None
        await files.put(MODEL, size=5, mtime_ns=7, sha256=A)
        await files.put(MODEL, size=5, mtime_ns=8, sha256=B)
        assert await files.get(MODEL, size=5, mtime_ns=7) == A
        assert await files.get(MODEL, size=5, mtime_ns=8) == B
        assert await files.get(MODEL, size=6, mtime_ns=7) is None
        assert await files.get("/srv/models/n.gguf", size=5, mtime_ns=7) is None
    async with await Database.open(tmp_path / "x", clock) as db:
        assert await FileDigests(db=db, clock=clock).get(MODEL, size=5, mtime_ns=7) == A
        (row,) = await db.read(
            lambda conn: conn.execute("SELECT * FROM model_files WHERE mtime_ns = 7").fetchall()
        )
    assert tuple(row) == (MODEL, 5, 7, A, rfc3339(clock.utc()))


async def test_the_same_file_hashed_again_replaces_its_row(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "x", FakeClock()) as db:
        files = FileDigests(db=db, clock=FakeClock())
        for sha256 in (A, B):
            await files.put(MODEL, size=5, mtime_ns=7, sha256=sha256)
        assert await files.get(MODEL, size=5, mtime_ns=7) == B


async def test_a_name_that_is_no_utf_8_is_kept_apart(tmp_path: Path) -> None:
    first, second = (bytes([0x2F, byte]).decode("utf-8", "surrogateescape") for byte in (200, 201))
    async with await Database.open(tmp_path / "x", FakeClock()) as db:
        files = FileDigests(db=db, clock=FakeClock())
        await files.put(first, size=5, mtime_ns=7, sha256=A)
        assert await files.get(first, size=5, mtime_ns=7) == A
        assert await files.get(second, size=5, mtime_ns=7) is None


async def test_what_is_no_hash_is_refused(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "x", FakeClock()) as db:
        files = FileDigests(db=db, clock=FakeClock())
        with pytest.raises(StoreError, match="constraint"):
            await files.put(MODEL, size=5, mtime_ns=7, sha256="abc")
        assert await files.get(MODEL, size=5, mtime_ns=7) is None
