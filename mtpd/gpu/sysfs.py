"""AMD cards through the files of the amdgpu driver: the first source for gfx906.

Covers memory, temperatures, power, cap, clocks, load, throttle bits, memory errors and
the memory of each process. Reading never wakes a sleeping card. Needs no library and
opens no device.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mtpd.gpu import sysfs_clients, sysfs_metrics
from mtpd.gpu.base import (
    MEMORY_MAX_BYTES,
    NOT_ASKED,
    POWER_MAX_W,
    Device,
    GpuReading,
    PowerCap,
    Throttle,
    absent_everywhere,
    bounded,
    no_cap,
)
from mtpd.gpu.files import Files, reason_of
from mtpd.gpu.sysfs_layout import Layout, find_cards
from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtpd.types import ProcessMemory, Reading
    from mtpd.units import DeviceKey

__all__ = ["SysfsProvider"]

NAME: Final = "sysfs"
_MICRO: Final = 1e6
_HERTZ_MAX: Final = 10_000_000_000
_ASLEEP: Final = Absent("the card is asleep; reading this sensor would wake it")
_SLEEPING: Final = frozenset({b"suspended", b"suspending", b"resuming"})


class SysfsProvider:
    """Reads amdgpu cards below a root.

    Args:
        root: Where ``sys`` and ``proc`` lie; ``/`` on a real machine.
        files: Reads the files; one of its own by default.
    """

    name = NAME

    def __init__(self, *, root: Path = Path("/"), files: Files | None = None) -> None:
        self._files = Files(root=str(root)) if files is None else files
        self._cards: dict[DeviceKey, Layout] = {}

    def devices(self) -> tuple[Device, ...]:
        """The amdgpu cards by PCI address, looked up anew."""
        self._scan()
        return tuple(layout.device for _, layout in sorted(self._cards.items()))

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        card = self._card(key)
        if card is None:
            return absent_everywhere(f"the device {key} is gone")
        look = _Look(self._files, card)
        reading = look.reading(slow=slow)
        if not look.moved:
            return reading
        # A file that was there is not: the card was reset, rebound or renumbered.
        self._scan()
        card = self._cards.get(key)
        if card is None:
            return absent_everywhere(f"the device {key} is gone")
        return _Look(self._files, card).reading(slow=slow)

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """The processes that KFD or their open files show as users of a card.

        Other users' open files need CAP_SYS_PTRACE; without it their Vulkan clients are
        not seen, their ROCm processes are.
        """
        card = self._card(key)
        if card is None:
            return Absent(f"the device {key} is gone")
        return sysfs_clients.processes(self._files, address=key, gpu_id=card.gpu_id, pids=pids)

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """The power limit and its range."""
        card = self._card(key)
        if card is None:
            return no_cap(Absent(f"the device {key} is gone"))
        look = _Look(self._files, card)
        if look.asleep():
            return no_cap(_ASLEEP)
        return PowerCap(
            current_w=look.watts("power1_cap", least=1),
            default_w=look.watts("power1_cap_default", least=1),
            min_w=look.watts("power1_cap_min", least=0),
            max_w=look.watts("power1_cap_max", least=1),
            supported="power1_cap" in card.files,
        )

    def write_cap_w(self, key: DeviceKey, watts: int) -> None:
        """Ask the driver for a power limit in whole watts; raises OSError.

        What the driver made of it is seen only by reading it back.
        """
        card = self._card(key)
        path = None if card is None else card.files.get("power1_cap")
        if path is None:
            raise FileNotFoundError(errno.ENOENT, f"{key} has no power1_cap")
        self._files.write(path, str(watts * 1_000_000))

    def close(self) -> None:
        """Close the kept files."""
        self._files.close()

    def _card(self, key: DeviceKey) -> Layout | None:
        card = self._cards.get(key)
        if card is None or not card.has_sensors or card.is_outdated:
            self._scan()
        return self._cards.get(key)

    def _scan(self) -> None:
        self._files.close()
        self._cards = find_cards(self._files)


@dataclass(slots=True)
class _Look:
    """One look at one card; remembers whether a file of its layout was missing."""

    files: Files
    card: Layout
    moved: bool = field(default=False)

    def asleep(self) -> bool:
        """Whether a read of a sensor would wake the card."""
        status = self._read("power/runtime_status")
        return isinstance(status, bytes) and status.strip() in _SLEEPING

    def reading(self, *, slow: bool) -> GpuReading:
        """Every field."""
        total = self.integer("mem_info_vram_total", 1, MEMORY_MAX_BYTES)
        most = total.value if isinstance(total, Value) else MEMORY_MAX_BYTES
        # The memory files answer without waking the card.
        used = self.integer("mem_info_vram_used", 0, most)
        memory = GpuReading(
            vram_total_bytes=total,
            vram_used_bytes=used,
            gtt_total_bytes=self.integer("mem_info_gtt_total", 1, MEMORY_MAX_BYTES),
            gtt_used_bytes=self.integer("mem_info_gtt_used", 0, MEMORY_MAX_BYTES),
        )
        if self.asleep():
            return _sleeping(memory)
        return replace(
            memory,
            edge_c=self.scaled("edge", -40_000, 150_000, per=1000),
            junction_c=self.scaled("junction", -40_000, 150_000, per=1000),
            memory_c=self.scaled("memory", -40_000, 150_000, per=1000),
            power_w=self.power(),
            power_cap_w=self.watts("power1_cap", least=1),
            energy_j=Absent("the driver of this card has no energy counter"),
            busy_percent=self.scaled("gpu_busy_percent", 0, 100),
            memory_busy_percent=self.scaled("mem_busy_percent", 0, 100),
            core_mhz=self.scaled("freq1_input", 0, _HERTZ_MAX, per=1_000_000),
            memory_mhz=self.scaled("freq2_input", 0, _HERTZ_MAX, per=1_000_000),
            throttle=self.throttle() if slow else NOT_ASKED,
            ecc_uncorrectable=self.uncorrectable() if slow else NOT_ASKED,
        )

    def power(self) -> Reading[float]:
        # Linux 6.6 and later have power1_input on Vega 20, older ones power1_average. A
        # running card draws something: 0 is the average of firmware that measures none.
        watts = self.watts("power1_input", least=1)
        return watts if isinstance(watts, Value) else self._or(watts, "power1_average")

    def watts(self, name: str, *, least: float) -> Value[float] | Absent:
        micro = self.integer(name, 0, 1 << 53)
        if not isinstance(micro, Value):
            return micro
        return bounded(micro.value / _MICRO, low=least, high=POWER_MAX_W, source=NAME)

    def scaled(self, name: str, low: int, high: int, *, per: int = 1) -> Value[float] | Absent:
        number = self.integer(name, low, high)
        return Value(number.value / per, NAME) if isinstance(number, Value) else number

    def integer(self, name: str, low: int, high: int) -> Value[int] | Absent:
        data = self._read(name)
        if isinstance(data, Absent):
            return data
        return sysfs_metrics.integer(data, low, high, where=name)

    def throttle(self) -> Value[Throttle] | Absent:
        data = self._read("gpu_metrics")
        return data if isinstance(data, Absent) else sysfs_metrics.throttle(data)

    def uncorrectable(self) -> Value[int] | Absent:
        data = self._read("ras/umc_err_count")
        return data if isinstance(data, Absent) else sysfs_metrics.uncorrectable(data)

    def _or(self, first: Absent, name: str) -> Value[float] | Absent:
        if name not in self.card.files:
            return first
        return self.watts(name, least=1)

    def _read(self, name: str) -> bytes | Absent:
        path = self.card.files.get(name)
        if path is None:
            return Absent(_missing(name))
        try:
            return self.files.kept(path)
        except OSError as error:
            self.moved = self.moved or error.errno == errno.ENOENT
            return Absent(f"{name}: {reason_of(error)}")


def _missing(name: str) -> str:
    if name in {"edge", "junction", "memory"}:
        return f"the card has no {name} sensor"
    return f"the driver has no file {name} for this card"


def _sleeping(memory: GpuReading) -> GpuReading:
    return replace(
        absent_everywhere(_ASLEEP.reason),
        vram_total_bytes=memory.vram_total_bytes,
        vram_used_bytes=memory.vram_used_bytes,
        gtt_total_bytes=memory.gtt_total_bytes,
        gtt_used_bytes=memory.gtt_used_bytes,
    )
