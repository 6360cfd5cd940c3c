"""One daemon per state directory, by a lock that the kernel frees with the process."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mtpd.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["hold"]


@contextmanager
def hold(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; raises StateError while another daemon holds it."""
    path = directory / "lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        msg = f"cannot open {path}: {error.strerror}"
        raise StateError(msg, hint="choose a state directory that you may write to") from error
    try:
        _take(fd, directory)
        yield
    finally:
        os.close(fd)  # frees the lock: no child inherits the descriptor


def _take(fd: int, directory: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        msg = f"{directory} is in use by another mtpd (pid {holder or 'unknown'})"
        hint = "stop that one first, or give this one its own --state-dir"
        raise StateError(msg, hint=hint) from error
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        msg = f"cannot write to {directory}: {error.strerror}"
        raise StateError(msg, hint="free disk space there, or name another --state-dir") from error
