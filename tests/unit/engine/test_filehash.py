"""Hashing one real file: the right hash, bounded giving up, and no hash of a mixture."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.engine.filehash import CHUNK, FileHash, hash_file
from mtpd.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 4096
BIG = 15 * 1024**3
"""Bytes of a real model; as a hole in a file it takes no space."""


async def go_on() -> None:
    pass


class Meanwhile:
    """Does something before the second piece is read."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.pieces = 0

    async def __call__(self) -> None:
        self.pieces += 1
        if self.pieces == 2:
            self._action()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(os.urandom(3 * SMALL + 5))
    return path


def descriptors() -> int:
    return len(tuple(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL + 5])
async def test_the_hash_is_that_of_all_bytes_whatever_the_pieces(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.gguf"
    content = os.urandom(size)
    path.write_bytes(content)
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    for chunk in (SMALL, CHUNK):
        assert await hash_file(path, between=go_on, chunk=chunk) == FileHash(
            size=size,
            mtime_ns=1_234_567_890_123_456_789,
            sha256=hashlib.sha256(content).hexdigest(),
        )


async def test_a_cancelled_reading_of_15_gb_ends_after_its_piece_and_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.gguf"
    path.touch()
    os.truncate(path, BIG)
    before = descriptors()
    begun = anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                await hash_file(path, between=Meanwhile(begun.set))

            tasks.start_soon(read)
            await begun.wait()
            cancelled = anyio.current_time()
            tasks.cancel_scope.cancel()
    assert anyio.current_time() - cancelled < 2
    assert descriptors() == before


def replaced(path: Path) -> None:
    """Another file in its place, of the same size and time."""
    found = path.stat()
    other = path.with_name("other")
    other.write_bytes(os.urandom(found.st_size))
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)


def overwritten(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(os.urandom(size))
    os.utime(path, ns=(1, 1))


def grown(path: Path) -> None:
    found = path.stat()
    with path.open("ab") as file:
        file.write(b"more")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def cut(path: Path) -> None:
    found = path.stat()
    os.truncate(path, SMALL)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, overwritten, grown, cut])
async def test_a_file_that_changed_while_it_was_read_has_no_hash(
    model: Path, change: Callable[[Path], None]
) -> None:
    before = descriptors()
    with pytest.raises(EngineError, match=r"m\.gguf changed while it was read$") as caught:
        await hash_file(model, between=Meanwhile(lambda: change(model)), chunk=SMALL)
    assert caught.value.hint is not None
    assert descriptors() == before


async def test_a_file_that_grows_is_not_followed(model: Path) -> None:
    pieces = 0

    async def download() -> None:
        nonlocal pieces
        pieces += 1
        with model.open("ab") as file:
            file.write(bytes(SMALL))

    with anyio.fail_after(10), pytest.raises(EngineError, match="changed while it was read"):
        await hash_file(model, between=download, chunk=SMALL)
    assert pieces == 4


async def test_a_file_that_vanished_meanwhile_has_no_hash(model: Path) -> None:
    with pytest.raises(EngineError, match="cannot be hashed: No such file or directory"):
        await hash_file(model, between=Meanwhile(model.unlink), chunk=SMALL)


async def test_what_is_no_file_is_refused_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with anyio.fail_after(10):
        for path in (pipe, tmp_path):
            with pytest.raises(EngineError, match="cannot be hashed: it is not a regular file"):
                await hash_file(path, between=go_on)
        with pytest.raises(EngineError, match="cannot be hashed: No such file") as caught:
            await hash_file(tmp_path / "none.gguf", between=go_on)
    assert caught.value.hint is not None
