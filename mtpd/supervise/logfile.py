"""A size-bounded log file per engine slot: the present one and the one before.

What cannot be written (full disk, planted link) is lost, with one warning; how many lines
were lost is written once writing works again. It never blocks the loop for a reader and
never ends an engine.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["LogFile", "log_path"]

log = structlog.get_logger()

FILE_BYTES = 8 * 1024 * 1024


def log_path(directory: Path, profile: str, device: str) -> Path:
    """Where the engine of this profile on this device logs."""
    name = re.sub(r"[^A-Za-z0-9._@-]", "_", f"{profile}@{device}").lstrip(".")
    return directory / f"{name}.log"


class LogFile:
    """Appends lines; at 8 MiB the file becomes ``NAME.1`` and a new one begins."""

    def __init__(self, path: Path, *, limit: int = FILE_BYTES) -> None:
        self._path, self._limit = path, limit
        self._fd: int | None = None
        self._size = 0
        self._lost = 0

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def write(self, lines: Sequence[str], *, lost: int = 0) -> None:
        """Append the lines; never raises for what the file system does.

        Args:
            lines: Without line ends.
            lost: How many before them are lost already, which is written, too.
        """
        self._lost += lost
        if not lines and not lost:
            return
        gap = (f"[mtpd: {self._lost} lines were lost here]",) if self._lost else ()
        data = "".join(f"{line}\n" for line in (*gap, *lines)).encode(errors="replace")
        try:
            self._append(data)
        except OSError as error:
            if not self._lost:
                log.warning("engine.log_lost", path=str(self._path), error=str(error))
            self._lost += len(lines)
            self.close()
        else:
            if self._lost:
                log.info("engine.log_resumed", path=str(self._path), lost_lines=self._lost)
            self._lost = 0

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def _append(self, data: bytes) -> None:
        if self._fd is None:
            self._fd, self._size = _open(self._path)
        if self._size + len(data) > self._limit and self._size:
            self.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._fd, self._size = _open(self._path)
        written = os.write(self._fd, data)
        if written < len(data):
            os.ftruncate(self._fd, self._size)  # no half of a line stays
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written


def _open(path: Path) -> tuple[int, int]:
    """Open for appending; refuses links, pipes and devices that someone planted."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != os.geteuid():
        os.close(fd)
        msg = f"{path} is not a plain file of ours"
        raise OSError(msg)
    return fd, status.st_size
