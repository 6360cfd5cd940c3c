"""A card in virtual time: memory that comes back late, other programs, silence, a lost cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mtpd.gpu.base import GpuReading
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import MIB, DeviceKey

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from tests.faults.sim.loop import VirtualLoop

__all__ = ["CARD", "Card", "Seen"]

CARD = DeviceKey("0000:03:00.0")
TOTAL_MIB = 16368
TICK_S = 5.0
"""Between two samples that are taken anyway."""


@dataclass(frozen=True)
class Seen:
    at_s: float
    reading: GpuReading


@dataclass(slots=True)
class Hold:
    """What one process holds.

    Attributes:
        gone: Whether the process has ended, and only the driver has not noticed yet.
    """

    vram_mib: int
    gtt_mib: int = 0
    gone: bool = False


class Card:
    """The one card of a world; passes for a sampler.

    Attributes:
        holds: By process.
        foreign_mib: What programs hold that are none of ours.
        foreign_at: When that changed last.
        silent_until: Until then the sensors do not answer.
        cap_w: Its power cap.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self.holds: dict[int, Hold] = {}
        self.foreign_mib, self.foreign_at = 11, float("-inf")
        self.silent_until = float("-inf")
        self.cap_w = 150.0
        self._read: Seen | None = None

    @property
    def used_mib(self) -> int:
        return self.foreign_mib + sum(hold.vram_mib for hold in self.holds.values())

    @property
    def free_mib(self) -> int:
        return TOTAL_MIB - self.used_mib

    def take(self, pid: int, vram_mib: int, gtt_mib: int) -> bool:
        """Give a process memory; False where there is not so much."""
        if vram_mib > self.free_mib:
            return False
        self.holds[pid] = Hold(vram_mib, gtt_mib)
        return True

    def ended(self, pid: int, lag_s: float) -> None:
        """A process has ended; what it held comes back late."""
        if pid in self.holds:
            self.holds[pid].gone = True
            self._loop.call_later(lag_s, self.holds.pop, pid)

    def occupy(self, mib: int) -> None:
        """Other programs hold so much from now on, as far as there is room."""
        self.foreign_mib += min(mib - self.foreign_mib, self.free_mib)
        self.foreign_at = self._loop.time()

    @property
    def latest(self) -> Seen | Absent:
        return self._read or Absent("nothing was read yet")

    async def fresh(self) -> Seen:
        await anyio.sleep(self._rng.uniform(0.0, 0.03))
        self._read = Seen(self._loop.time(), self.reading())
        return self._read

    async def following(self) -> Seen:
        await anyio.sleep(TICK_S)
        return await self.fresh()

    async def processes(
        self, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        await anyio.lowlevel.checkpoint()
        return tuple(
            ProcessMemory(
                pid=pid,
                name="llama-server",
                vram_bytes=Value(hold.vram_mib * MIB, "kfd"),
                gtt_bytes=Value(hold.gtt_mib * MIB, "kfd"),
            )
            for pid, hold in sorted(self.holds.items())
            if pids is None or pid in pids
        )

    def reading(self) -> GpuReading:
        silent = self._loop.time() < self.silent_until
        mute = Absent("temp1_input: EPERM")
        return GpuReading(
            vram_total_bytes=Value(TOTAL_MIB * MIB, "sysfs"),
            vram_used_bytes=Value(self.used_mib * MIB, "sysfs"),
            gtt_used_bytes=Value(sum(h.gtt_mib for h in self.holds.values()) * MIB, "sysfs"),
            edge_c=mute if silent else Value(40.0, "sysfs"),
            power_w=mute if silent else Value(20.0, "sysfs"),
            power_cap_w=mute if silent else Value(self.cap_w, "sysfs"),
        )
