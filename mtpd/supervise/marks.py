"""Reads which engine other processes belong to, and waits for none of them.

The kernel reads ``/proc/PID/environ`` under a lock of that process's memory. One that hangs in a
driver may hold it for ever, and whoever reads then hangs, too: in a thread of the loop the whole
daemon, in a worker thread that worker. So each look is a thread of its own that nobody waits for
once it makes no progress; the process at which it hangs is passed over until the read returns.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["VARIABLE", "Marks"]

log = structlog.get_logger()

VARIABLE: Final = "MTPD_INSTANCE"
"""Environment variable that carries the engine id of a process and its descendants."""

PATIENCE_S: Final = 0.25
"""A look that is twice found at the same process, so long apart, hangs; once may be the whole
daemon's standing still."""
HANGS: Final = 2

_PREFIX: Final = f"\0{VARIABLE}=".encode()
_PIECE_BYTES: Final = 16 * 1024


class Marks:
    """The engine ids of processes; from any thread.

    Args:
        proc: Where ``/proc`` is.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._hanging: dict[int, _Look] = {}
        self._lock = threading.Lock()

    def of(self, pid: int) -> str | None:
        """The engine id that a process was started with; None also where that cannot be read."""
        return self.among((pid,)).get(pid)

    def all(self) -> dict[int, str]:
        """The engine id of every process that has one and can be read."""
        return self.among([int(one.name) for one in self._proc.iterdir() if one.name.isdecimal()])

    def among(self, pids: Iterable[int]) -> dict[int, str]:
        """The engine id of each of these processes that has one and can be read."""
        found: dict[int, str] = {}
        left = [pid for pid in pids if not self.hangs(pid)]
        while left:
            look = _Look(self._proc, left)
            look.start()
            hangs_at = look.ended()
            found |= look.found
            if hangs_at is None:
                break
            with self._lock:
                self._hanging[left[hangs_at]] = look
            log.error("process.unreadable", pid=left[hangs_at], reason="reading it hangs")
            left = left[hangs_at + 1 :]
        return found

    def hangs(self, pid: int) -> bool:
        """Whether a process is there of which nobody can say whose it is."""
        with self._lock:
            look = self._hanging.get(pid)
            if look is None or look.is_alive():
                return look is not None
            del self._hanging[pid]
        return False


class _Look(threading.Thread):
    """Reads one process after the other, until it is given up."""

    def __init__(self, proc: Path, pids: Sequence[int]) -> None:
        super().__init__(name="marks", daemon=True)
        self._proc, self._pids = proc, pids
        self._at, self._given_up = 0, False
        self._found: dict[int, str] = {}
        self._lock = threading.Lock()

    @property
    def found(self) -> dict[int, str]:
        """What was read so far."""
        with self._lock:
            return dict(self._found)

    def ended(self) -> int | None:
        """Wait for the end; where it does not come, the number of the process at which it hangs."""
        before, hangs = -1, 0
        while True:
            self.join(PATIENCE_S)
            if not self.is_alive():
                return None
            with self._lock:
                hangs = hangs + 1 if self._at == before else 0
                before = self._at
                if hangs == HANGS and before < len(self._pids):
                    self._given_up = True
                    return before

    def run(self) -> None:
        for pid in self._pids:
            mark = self._read(pid)
            with self._lock:
                if self._given_up:
                    return
                self._at += 1
                if mark is not None:
                    self._found[pid] = mark

    def _read(self, pid: int) -> str | None:
        with suppress(OSError):
            environ = b"\0" + _content(f"{self._proc}/{pid}/environ")
            if (begins := environ.find(_PREFIX)) >= 0:
                begins += len(_PREFIX)
                ends = environ.find(b"\0", begins)
                return environ[begins : len(environ) if ends < 0 else ends].decode(errors="replace")
        return None


def _content(path: str) -> bytes:
    """What is in a file; there are thousands of them to look into, so nothing around it."""
    pieces = []
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while piece := os.read(file, _PIECE_BYTES):
            pieces.append(piece)
    finally:
        os.close(file)
    return b"".join(pieces)
