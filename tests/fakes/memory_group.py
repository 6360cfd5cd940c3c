"""A group of processes with little memory, in which the kernel kills for want of it."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["lack", "memory_group"]

MOUNTS = Path("/sys/fs/cgroup")


def _place() -> tuple[Path, str] | None:
    """Where one can be made, and the file of its limit; below our own group where that can be."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        if ":memory:" in line:
            return Path(f"{MOUNTS}/memory{line.partition(':memory:')[2]}"), "memory.limit_in_bytes"
    for line in lines:
        own = Path(f"{MOUNTS}{line.removeprefix('0::')}") if line.startswith("0::") else MOUNTS
        for folder in (own, *own.parents):
            with suppress(OSError):
                if "memory" in (folder / "cgroup.subtree_control").read_text().split():
                    return folder, "memory.max"
    return None


@contextmanager
def memory_group(limit_mib: int) -> Iterator[Path]:
    """Make one; a process joins it by its ``cgroup.procs``, and has ended before it is removed."""
    place = _place()
    assert place is not None
    folder, limit = place
    group = folder / f"mtpd-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(limit_mib << 20))
        yield group
    finally:
        group.rmdir()


def lack() -> str | None:
    """Why none can be made, or None."""
    try:
        place = _place()
        if place is None:
            return "no group has the memory controller"
        with memory_group(64):
            return None
    except OSError as error:
        return str(error)
