"""AMD cards through the files of the amdgpu driver: the first source for gfx906.

Covers memory, temperatures, power and cap. Not per-process memory, clocks or throttle
bits. Reading never wakes a sleeping card. Needs no library and opens no device.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mtpd.gpu.base import Device, GpuReading, absent_everywhere, bounded
from mtpd.types import Absent, Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.types import Reading

__all__ = ["SysfsProvider", "read_text"]

NAME: Final = "sysfs"
AMD: Final = "0x1002"
_CARD = re.compile(r"card\d+")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MEMORY_MAX: Final = 1 << 50
_MICRO: Final = 1e6
_ASLEEP: Final = Absent("the card is asleep; reading this sensor would wake it")


def read_text(path: Path) -> str:
    """The text of a sysfs file, in one read; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


class SysfsProvider:
    """Reads amdgpu cards below a root.

    Args:
        root: Where ``sys`` lies; ``/`` on a real machine.
        read: Reads one file; raises OSError.
    """

    name = NAME

    def __init__(self, *, root: Path = Path("/"), read: Callable[[Path], str] = read_text) -> None:
        self._root = root
        self._read = read

    def devices(self) -> tuple[Device, ...]:
        """The amdgpu cards by PCI address; a card of another vendor is passed over."""
        return tuple(
            Device(key=key, vendor="amd", name=self._text(path / "product_name"))
            for key, path in sorted(self._cards().items())
        )

    def read(self, key: DeviceKey) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        path = self._cards().get(key)
        if path is None:
            return absent_everywhere(f"the device {key} is gone")
        total = self._integer(path / "mem_info_vram_total", 1, _MEMORY_MAX)
        most = total.value if isinstance(total, Value) else _MEMORY_MAX
        asleep = self._text(path / "power" / "runtime_status") == "suspended"
        hwmon = None if asleep else self._hwmon(path)
        missing = _ASLEEP if asleep else Absent("the driver has no hwmon directory")
        return GpuReading(
            vram_total_bytes=total,
            # The memory files answer without waking the card.
            vram_used_bytes=self._integer(path / "mem_info_vram_used", 0, most),
            gtt_used_bytes=self._integer(path / "mem_info_gtt_used", 0, _MEMORY_MAX),
            edge_c=self._temperature(hwmon, "edge") if hwmon else missing,
            junction_c=self._temperature(hwmon, "junction") if hwmon else missing,
            power_w=self._power(hwmon) if hwmon else missing,
            power_cap_w=self._watts(hwmon / "power1_cap", least=1) if hwmon else missing,
        )

    def _cards(self) -> dict[DeviceKey, Path]:
        """Directories of the amdgpu cards; looked up anew, since cards come and go."""
        cards: dict[DeviceKey, Path] = {}
        for path in self._entries(self._root / "sys/class/drm"):
            device = path / "device"
            if not _CARD.fullmatch(path.name) or self._text(device / "vendor") != AMD:
                continue
            # cardN numbers change between boots; the address of the slot does not.
            address = device.resolve().name.lower()
            if _ADDRESS.fullmatch(address) and (device / "mem_info_vram_total").exists():
                cards[DeviceKey(address)] = device
        return cards

    def _hwmon(self, device: Path) -> Path | None:
        for path in self._entries(device / "hwmon"):
            if self._text(path / "name") == "amdgpu":
                return path
        return None

    def _temperature(self, hwmon: Path, label: str) -> Reading[float]:
        for number in (1, 2, 3):
            said = self._text(hwmon / f"temp{number}_label")
            # The oldest drivers label nothing; the first sensor is the edge.
            if said == label or (said is None and label == "edge" and number == 1):
                milli = self._integer(hwmon / f"temp{number}_input", -40_000, 150_000)
                return Value(milli.value / 1000, NAME) if isinstance(milli, Value) else milli
        return Absent(f"the card has no {label} sensor")

    def _power(self, hwmon: Path) -> Reading[float]:
        # Kernels up to 6.5 call it average; later ones may have only input.
        names = ("power1_average", "power1_input")
        found = next((name for name in names if (hwmon / name).exists()), names[0])
        return self._watts(hwmon / found, least=0)

    def _watts(self, path: Path, *, least: float) -> Reading[float]:
        micro = self._integer(path, 0, 1 << 53)
        if not isinstance(micro, Value):
            return micro
        return bounded(micro.value / _MICRO, low=least, high=2000, source=NAME)

    def _integer(self, path: Path, low: int, high: int) -> Value[int] | Absent:
        where = path.name
        try:
            text = self._read(path).strip()
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, str(error))
            return Absent(f"{where}: {code}")
        try:
            value = int(text)
        except ValueError:
            return Absent(f"{where} holds {text[:40]!r}")
        if not low <= value <= high:
            return Absent(f"{where} holds the impossible value {value}")
        return Value(value, NAME)

    def _text(self, path: Path) -> str | None:
        try:
            return self._read(path).strip() or None
        except OSError:
            return None

    def _entries(self, folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except OSError:
            return []
