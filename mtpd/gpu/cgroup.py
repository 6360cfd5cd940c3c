"""How much memory the control group of this process still allows, and whom it killed.

Covers version 2 (every ancestor counts, the tightest decides) and version 1. A machine
without limits has no limit that is known, which is not the same as none left.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from mtpd.gpu.base import MEMORY_MAX_BYTES
from mtpd.types import Absent, NotApplicable, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.types import Reading

__all__ = ["headroom", "oom_kills"]

NAME: Final = "cgroup"
_MOUNT: Final = "sys/fs/cgroup"
_Names = tuple[tuple[str, ...], str, str]
"""Limit files, the file of what is used, and the row of what may be dropped."""

_VERSION_1: Final[_Names] = (
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    "total_inactive_file",
)
_VERSION_2: Final[_Names] = (("memory.max", "memory.high"), "memory.current", "inactive_file")
_NO_LIMIT: Final = NotApplicable("no control group limits the memory")


def headroom(root: Path = Path("/")) -> Reading[int]:
    """Bytes that this process's control groups still allow; the least of all ancestors.

    File pages that the kernel may drop count as free.
    """
    found: list[int] = []
    for folder, limits, current, stat in _groups(root):
        limit = _tightest(folder, limits)
        if limit is None:
            continue
        if isinstance(limit, Absent):
            return limit
        used = _number(folder / current)
        if isinstance(used, Absent):
            return used
        droppable = _row(folder / "memory.stat", stat) or 0
        found.append(max(0, limit - max(0, used - droppable)))
    return Value(min(found), NAME) if found else _NO_LIMIT


def oom_kills(root: Path = Path("/")) -> Reading[int]:
    """Processes of this control group that the kernel killed for memory, since its making."""
    for folder, limits, _current, _stat in _groups(root):
        name = "memory.events" if "memory.max" in limits else "memory.oom_control"
        count = _row(folder / name, "oom_kill")
        if count is not None:
            return Value(count, NAME)
    return Absent("no control group counts them")


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, ...], str, str]]:
    """Folders from this process's group up: limit files, use file, droppable row."""
    try:
        text = (root / "proc/self/cgroup").read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            base = root / _MOUNT / "memory"
            files = _VERSION_1
        elif number == "0" and not controllers:
            base = root / _MOUNT
            files = _VERSION_2
        else:
            continue
        inside = PurePosixPath(path.strip() or "/")
        for group in (inside, *inside.parents):
            yield base.joinpath(*group.parts[1:]), *files


def _tightest(folder: Path, limits: tuple[str, ...]) -> int | Absent | None:
    """The lowest limit of one group; None where it has none."""
    found: list[int] = []
    for name in limits:
        limit = _limit(folder / name)
        if isinstance(limit, Absent):
            return limit
        if limit is not None:
            found.append(limit)
    return min(found, default=None)


def _limit(path: Path) -> int | Absent | None:
    """A limit in bytes; None where there is no such file, or it says "max"."""
    try:
        text = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Absent(f"{path.name}: {error.strerror}")
    if text == "max":
        return None
    if not re.fullmatch(r"[0-9]{1,20}", text):
        return Absent(f"{path.name} holds {text[:40]!r}")
    # Version 1 writes "no limit" as the largest multiple of a page.
    return int(text) if int(text) <= MEMORY_MAX_BYTES else None


def _number(path: Path) -> int | Absent:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError as error:
        return Absent(f"{path.name}: {error.strerror}")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        return Absent(f"{path.name} holds {text[:40]!r}")
    return int(text)


def _row(path: Path, name: str) -> int | None:
    """A number of a file of ``name value`` rows."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{name} ([0-9]{{1,18}})$", text, re.MULTILINE)
    return int(found[1]) if found else None
