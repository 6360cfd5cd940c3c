"""The scripted engine's share of a fake card: its log and the sysfs tree move together."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.units import MIB
from tests.fakes.sysfs import VRAM_TOTAL, Tree, device

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fakes.script import Script

__all__ = ["OVERHEAD", "Share", "bury", "counter", "free", "printed_mib"]

OVERHEAD = 54 * MIB
"""What the driver takes beside the printed buffers (facts/real_gpu_27b.md)."""

_BUFFER = re.compile(r": +(\S+) (?:model|KV|RS|compute) buffer size = +([\d.]+) MiB")


def counter(root: Path, name: str) -> Path:
    """A memory counter of the first card: vram or gtt."""
    return root / device() / f"mem_info_{name}_used"


def free(root: Path) -> int:
    """Bytes of the first card that nobody holds."""
    return VRAM_TOTAL - int(counter(root, "vram").read_text())


def printed_mib(lines: Iterable[str], name: str) -> float:
    """Sum of the buffers that a log lists for a device."""
    found = [m.groups() for m in map(_BUFFER.search, lines) if m is not None]
    return sum(float(mib) for where, mib in found if where == name)


class Share:
    """What one engine takes of the card, from its load until its end."""

    def __init__(self, script: Script, lines: Iterable[str], *, depth: int) -> None:
        self._root = Path(script.machine or "/nonexistent")
        name = "" if script.device is None else script.device.name
        printed = printed_mib(lines, name)
        spills = script.spill_at_depth is not None and depth >= script.spill_at_depth
        self._spilled = script.spill_mib * MIB if spills else 0
        self._taken = round(printed * MIB) + OVERHEAD - self._spilled
        self._keeps = script.keep_vram

    def take(self) -> None:
        """The load is done."""
        self._move("vram", self._taken)
        self._move("gtt", self._spilled)
        tree = Tree(self._root)
        tree.process(os.getpid(), vram_bytes=self._taken, gtt_bytes=self._spilled)
        kept = "" if self._keeps else f"{self._taken} {self._spilled}"
        tree.write(f"proc/{os.getpid()}/share", kept)

    def give_back(self) -> None:
        """The process ends."""
        _end(self._root, os.getpid())

    def _move(self, name: str, count: int) -> None:
        _move(self._root, name, count)


def bury(root: Path) -> None:
    """Give back what killed engines held: a kernel does, a fake tree needs somebody."""
    for folder in (root / "proc").glob("*/share"):
        pid = int(folder.parent.name)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            _end(root, pid)


def _end(root: Path, pid: int) -> None:
    try:
        share = (root / f"proc/{pid}/share").read_text().split()
    except FileNotFoundError:  # the other one was faster
        return
    Tree(root).end(pid)
    for name, count in zip(("vram", "gtt"), share, strict=False):
        _move(root, name, -int(count))


def _move(root: Path, name: str, count: int) -> None:
    """Whoever reads meanwhile finds the old number or the new one."""
    file = counter(root, name)
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(f"{int(file.read_text()) + count}\n")
    new.replace(file)
