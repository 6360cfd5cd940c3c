"""The machine itself: where engines run that have no device, and what memory it has.

Covers memory of the machine, of its control groups and of processes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from mtpd.gpu import cgroup
from mtpd.gpu.base import FIELDS, Device, GpuReading, PowerCap, absent_everywhere, no_cap
from mtpd.gpu.files import reason_of
from mtpd.types import Absent, NotApplicable, ProcessMemory, Value
from mtpd.units import HOST, DeviceKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtpd.types import Reading

__all__ = ["HostMemory", "HostProvider", "busy_note", "busy_now"]

NAME: Final = "host"
_NO_GPU: Final = NotApplicable("there is no GPU")
_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory of the machine, bytes.

    Attributes:
        total_bytes: Built in.
        available_bytes: What the kernel could give without swapping.
        cgroup_bytes: What the control groups of the daemon still allow; not applicable
            where nothing limits them.
        oom_kills: Processes of the control group that were killed for memory so far.
    """

    total_bytes: int
    available_bytes: int
    cgroup_bytes: Reading[int]
    oom_kills: Reading[int]

    @property
    def budget_bytes(self) -> int:
        """What an engine may take: the smaller of what is there and what is allowed."""
        if isinstance(self.cgroup_bytes, Value):
            return min(self.available_bytes, self.cgroup_bytes.value)
        return self.available_bytes


def busy_now() -> str | None:
    """``busy_note`` of this machine over the last minute."""
    return busy_note(load=psutil.getloadavg()[0], cores=psutil.cpu_count() or 1)


def busy_note(*, load: float, cores: int) -> str | None:
    """One sentence where other work leaves too little of the processor to measure on it.

    Args:
        load: Processes that wanted to run, on average, before an engine was started.
        cores: Of the machine.
    """
    if load <= cores / 2:
        return None
    return (
        f"the machine was busy when this began (load {load:.1f} on {cores} cores): "
        "its speeds may not be comparable"
    )


class HostProvider:
    """The device that is always there; it has no VRAM, and nothing of it is gated.

    Args:
        root: Where ``proc`` and ``sys`` lie.
    """

    name = NAME

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def devices(self) -> tuple[Device, ...]:
        """The host."""
        return (Device(key=HOST, vendor="cpu"),)

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:  # noqa: ARG002 - nothing is slow
        """No field applies: a CPU has no device memory, no edge and no cap of ours."""
        if key != HOST:
            return absent_everywhere(f"the device {key} is gone")
        return GpuReading(**dict.fromkeys(FIELDS, _NO_GPU))

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """What processes hold in memory of their own; by default the daemon's children."""
        if key != HOST:
            return Absent(f"the device {key} is gone")
        asked = _children() if pids is None else set(pids)
        found = (self._process(pid) for pid in sorted(asked))
        return tuple(one for one in found if one is not None)

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """There is none of ours."""
        return no_cap(_NO_GPU if key == HOST else Absent(f"the device {key} is gone"))

    def close(self) -> None:
        """Nothing is kept open."""

    def memory(self) -> HostMemory:
        """Memory of the machine now."""
        memory = psutil.virtual_memory()
        return HostMemory(
            total_bytes=memory.total,
            available_bytes=memory.available,
            cgroup_bytes=cgroup.headroom(self._root),
            oom_kills=cgroup.oom_kills(self._root),
        )

    def _process(self, pid: int) -> ProcessMemory | None:
        folder = self._root / "proc" / str(pid)
        try:
            status = (folder / "status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError as error:
            return ProcessMemory(pid=pid, name=None, vram_bytes=Absent(reason_of(error)))
        return ProcessMemory(
            pid=pid,
            name=_field(status, "Name"),
            vram_bytes=_own_bytes(status),
            gtt_bytes=_NO_GPU,
            evicted_bytes=_NO_GPU,
            evicted_ms=_NO_GPU,
        )


def _own_bytes(status: str) -> Reading[int]:
    """Anonymous and shared memory; the pages of a mapped model file are in RssFile."""
    total_bytes = 0
    for name in ("RssAnon", "RssShmem"):
        text = _field(status, name)
        found = None if text is None else re.fullmatch(r"([0-9]{1,15}) kB", text)
        if found is None:
            return Absent(f"status holds no {name}")  # of a process that has just ended
        total_bytes += int(found[1]) * _KIB
    return Value(total_bytes, "rss")


def _field(status: str, name: str) -> str | None:
    found = re.search(rf"^{name}:[ \t]*(\S.*?)[ \t]*$", status, re.MULTILINE)
    return found[1] if found else None


def _children() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}
