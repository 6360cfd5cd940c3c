"""One daemon per state directory, by a lock that the kernel frees with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog

from mtpd.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["hold"]

log = structlog.get_logger()

_NO_NEW_FILE: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES})


@contextmanager
def hold(directory: Path) -> Iterator[bool]:
    """Hold the directory's lock; raises StateError while another daemon holds it.

    Yields whether it is held: a disk that takes no new file may have none.
    """
    fd = _open(directory / "lock")
    if fd is None:
        yield False
        return
    try:
        _take(fd, directory)
        yield True
    finally:
        os.close(fd)  # frees the lock: no child inherits the descriptor


def _open(path: Path) -> int | None:
    """The lock file; None on a disk that takes no new file, on which nobody writes anything.

    Raises:
        StateError: It cannot be opened, or is none of ours.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            fd = os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if error.errno not in _NO_NEW_FILE:
                raise
            if not path.exists():
                log.warning("lock.impossible", path=str(path), reason=error.strerror)
                return None
            fd = os.open(path, flags | os.O_RDONLY)  # enough for flock(2)
    except OSError as error:
        msg = f"cannot open {path}: {error.strerror}"
        raise StateError(msg, hint="choose a state directory that you may write to") from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        os.close(fd)
        msg = f"{path} is not a plain file of ours"
        raise StateError(msg, hint="move it away, or name another --state-dir")
    return fd


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
    except OSError as error:  # the lock is held all the same
        log.warning("lock.without_pid", directory=str(directory), reason=error.strerror)
