"""A card whose counters a test sets, with a clock that moves when somebody sleeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mtpd.gpu.base import GpuReading
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import MIB
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mtpd.types import Reading

__all__ = ["Panel", "Seen", "holding"]

TOTAL_MIB = 16368


@dataclass(frozen=True)
class Seen:
    at_s: float
    reading: GpuReading


def holding(pid: int, mib: int, *, name: str | None = "llama-server") -> ProcessMemory:
    return ProcessMemory(pid=pid, name=name, vram_bytes=Value(mib * MIB, "kfd"))


class Panel:
    """Passes for a sampler.

    Attributes:
        vram_mib, gtt_mib: Counters of the whole card; None cannot be read.
        clients: Who holds memory; None cannot be seen.
        answers: Whether the sensors of the card answer.
        cap_w: Its power cap.
        later: What happens to the panel when the clock reaches a time.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.vram_mib: int | None = 11
        self.gtt_mib: int | None = 14
        self.clients: list[ProcessMemory] | None = []
        self.answers = True
        self.cap_w = 150.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.reads = 0
        self.read: Seen | None = None

    @property
    def latest(self) -> Seen | Absent:
        return self.read or Absent("nothing was read yet")

    def at(self, after_s: float, change: Callable[[], None]) -> None:
        self.later.append((self.clock.now() + after_s, change))

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.clock.advance(seconds)
        due = [change for time, change in self.later if time <= self.clock.now()]
        self.later = [one for one in self.later if one[0] > self.clock.now()]
        for change in due:
            change()

    async def fresh(self) -> Seen:
        await anyio.lowlevel.checkpoint()
        self.reads += 1
        self.read = Seen(self.clock.now(), self.reading())
        return self.read

    def reading(self) -> GpuReading:
        silent = Absent("temp1_input: EPERM")

        def counter(mib: int | None) -> Reading[int]:
            return Absent("no such file") if mib is None else Value(mib * MIB, "sysfs")

        return GpuReading(
            vram_total_bytes=Value(TOTAL_MIB * MIB, "sysfs"),
            vram_used_bytes=counter(self.vram_mib),
            gtt_used_bytes=counter(self.gtt_mib),
            edge_c=Value(40.0, "sysfs") if self.answers else silent,
            power_w=Value(20.0, "sysfs") if self.answers else silent,
            power_cap_w=Value(self.cap_w, "sysfs") if self.answers else silent,
        )

    async def following(self) -> Seen:
        await self.sleep(1.0)
        return await self.fresh()

    async def processes(
        self, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        await anyio.lowlevel.checkpoint()
        if self.clients is None:
            return Absent("fdinfo: permission denied")
        return tuple(one for one in self.clients if pids is None or one.pid in pids)
