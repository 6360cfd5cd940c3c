"""How often the kernel has killed for want of memory: what tells its SIGKILL from any other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["kills", "kills_since"]

VMSTAT = Path("/proc/vmstat")


def kills(vmstat: Path = VMSTAT) -> int | None:
    """Processes killed since the boot, whichever limit they hit; None where nobody counts."""
    with suppress(OSError, ValueError):
        for line in vmstat.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def kills_since(before: int | None) -> int | None:
    """How many more there are by now; None where one of the two is not known."""
    now = kills()
    return None if before is None or now is None else now - before
