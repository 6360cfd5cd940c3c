"""The machine itself: where engines run that have no device, and what memory it has.

Covers memory of the machine and of a process. Not the limits of control groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psutil

from mtpd.gpu.base import Device, GpuReading, absent_everywhere
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, DeviceKey

__all__ = ["HostMemory", "HostProvider", "busy_note", "busy_now"]

NAME: Final = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory of the machine, bytes."""

    total_bytes: int
    available_bytes: int


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
    """The device that is always there; it has no VRAM, and nothing of it is gated."""

    name = NAME

    def devices(self) -> tuple[Device, ...]:
        """The host."""
        return (Device(key=HOST, vendor="cpu"),)

    def read(self, key: DeviceKey) -> GpuReading:
        """No field applies: a CPU has no device memory, no edge and no cap of ours."""
        if key != HOST:
            return absent_everywhere(f"the device {key} is gone")
        none = NotApplicable("there is no GPU")
        return GpuReading(
            vram_total_bytes=none,
            vram_used_bytes=none,
            gtt_used_bytes=none,
            edge_c=none,
            junction_c=none,
            power_w=none,
            power_cap_w=none,
        )

    def memory(self) -> HostMemory:
        """Memory of the machine now."""
        memory = psutil.virtual_memory()
        return HostMemory(total_bytes=memory.total, available_bytes=memory.available)

    def resident_bytes(self, pid: int) -> Value[int] | Absent:
        """Resident memory of a process, its mapped model file included."""
        try:
            return Value(psutil.Process(pid).memory_info().rss, NAME)
        except psutil.Error as error:
            return Absent(f"process {pid}: {type(error).__name__}")
