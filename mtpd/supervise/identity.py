"""Who a process is: pid, start time, boot and the engine id in its environment.

A pid alone identifies nothing, because the kernel reuses it. Covers reading only;
every function answers None (or nothing) for a process that is gone, not ours to read, or
whose reading hangs (``mtpd.supervise.marks``).
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from mtpd.supervise.marks import VARIABLE, Marks

__all__ = [
    "MARKS",
    "VARIABLE",
    "boot_id",
    "engine_of",
    "engines",
    "house_of",
    "pids_of",
    "start_ticks",
]

HOUSE_CHARS = 12
PROC = Path("/proc")
MARKS = Marks(PROC)
STATE, START_TIME = 3, 22
"""Fields of /proc/PID/stat, counted from 1 as in proc(5)."""


def boot_id() -> str:
    """The kernel's id of this boot; a process of another boot cannot be alive."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks after the boot."""
    fields = _stat(pid)
    return int(fields[START_TIME - STATE]) if fields else None


def engine_of(pid: int) -> str | None:
    """The engine id that the process was started with."""
    return MARKS.of(pid)


def pids_of(engine_id: str) -> tuple[int, ...]:
    """Every process that was started as, or by, this engine."""
    return tuple(pid for pid, engine in engines() if engine == engine_id)


def engines() -> tuple[tuple[int, str], ...]:
    """Every process that was started as, or by, an engine, with the id of that one."""
    return tuple(MARKS.all().items())


def house_of(directory: Path) -> str:
    """How the ids of all engines begin whose daemon keeps its state in a directory."""
    found = directory.stat()
    return hashlib.sha256(f"{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:HOUSE_CHARS]


def _stat(pid: int) -> list[str]:
    """The fields from the state on; empty for a process that is gone."""
    with suppress(OSError):
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # The name in field 2 may hold blanks and brackets; the last bracket ends it.
        return text.rpartition(")")[2].split()
    return []
