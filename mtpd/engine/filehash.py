"""The SHA-256 of a whole file, read without disturbing what runs beside it.

Covers one file: piece by piece in worker threads, so that the caller can pause or give up
between two pieces. Not which files, and not when (``mtpd.control.hashing``).
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.errors import EngineError
from mtpd.types import FailureClass
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["CHUNK", "FileHash", "hash_file"]

CHUNK = 4 * MIB
"""Bytes per piece: what a cancellation waits for at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash:
    """A file that stayed the same while all of it was read.

    Attributes:
        size: Bytes.
        mtime_ns: Time of the last change.
        sha256: Of all its bytes, in hex.
    """

    size: int
    mtime_ns: int
    sha256: str


async def hash_file(
    path: Path, *, between: Callable[[], Awaitable[None]], chunk: int = CHUNK
) -> FileHash:
    """Read all of a file and hash it.

    A cancellation takes effect after the piece that is being read; nothing stays open.
    Pages are given back to the kernel as they are read; those that a process has mapped,
    which are the serving model's, stay.

    Args:
        path: A regular file.
        between: Awaited before each piece; returns when the next may be read.
        chunk: Bytes per piece.

    Raises:
        EngineError: The file cannot be read, or it changed while it was read.
    """
    try:
        before = await to_thread.run_sync(_regular, path)
        descriptor = await to_thread.run_sync(_open, path)
        try:
            digest, length = await _read(descriptor, before.st_size, between, chunk)
        finally:
            os.close(descriptor)
        after = await to_thread.run_sync(_regular, path)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    # The path too, not only the open file: one renamed into its place is another file.
    if _same(before) != _same(after) or length != after.st_size:
        msg = f"{path} changed while it was read"
        hint = "it is read again later; its hash is unknown until then"
        raise EngineError(msg, failure=FailureClass.CONFIG, hint=hint)
    return FileHash(size=after.st_size, mtime_ns=after.st_mtime_ns, sha256=digest)


async def _read(
    descriptor: int, size: int, between: Callable[[], Awaitable[None]], chunk: int
) -> tuple[str, int]:
    digest, length = hashlib.sha256(), 0

    def piece(offset: int) -> int:
        data = os.pread(descriptor, chunk, offset)
        digest.update(data)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, offset, chunk, os.POSIX_FADV_DONTNEED)
        return len(data)

    # A file that grew, e.g. a download, is not followed to its end.
    while length <= size:
        await between()
        read = await to_thread.run_sync(piece, length)
        if read == 0:
            break
        length += read
    return digest.hexdigest(), length


def _regular(path: Path) -> os.stat_result:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        # Opening a pipe waits for its writer.
        raise _unreadable(path, "it is not a regular file")
    return found


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _same(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _unreadable(path: Path, why: str) -> EngineError:
    msg = f"{path} cannot be hashed: {why}"
    hint = "correct `model` in its profile, or make the file readable for the daemon"
    return EngineError(msg, failure=FailureClass.CONFIG, hint=hint)
