"""What a source of device readings provides: devices, and readings that may be absent.

Pure. Every field is a ``Reading``: a sensor that cannot be read is ``Absent`` with the
reason, never 0, and a question that does not arise is ``NotApplicable``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from mtpd.types import Reading
    from mtpd.units import DeviceKey

__all__ = ["Device", "GpuProvider", "GpuReading", "absent_everywhere", "bounded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, or the host.

    Attributes:
        key: PCI address in lower case, or "host".
        vendor: amd, nvidia or cpu.
        name: What the driver calls it, where it says.
    """

    key: DeviceKey
    vendor: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One look at a device.

    Attributes:
        vram_total_bytes: Device memory.
        vram_used_bytes: Used by all clients of the device together.
        gtt_used_bytes: Host memory that the device has mapped; grows when layers spill.
        edge_c: Edge temperature, degrees Celsius.
        junction_c: Hottest spot.
        power_w: Board power, watts.
        power_cap_w: Power limit in force, watts.
    """

    vram_total_bytes: Reading[int]
    vram_used_bytes: Reading[int]
    gtt_used_bytes: Reading[int]
    edge_c: Reading[float]
    junction_c: Reading[float]
    power_w: Reading[float]
    power_cap_w: Reading[float]


class GpuProvider(Protocol):
    """A source of readings; asked from one thread, may block for some milliseconds."""

    @property
    def name(self) -> str:
        """sysfs, amdsmi, nvml or host; the ``source`` of its values."""

    def devices(self) -> tuple[Device, ...]:
        """The devices it can read now; empty, never an error, where there are none."""

    def read(self, key: DeviceKey) -> GpuReading:
        """Read a device; a device that is gone gives a reading with every field absent."""


def absent_everywhere(reason: str) -> GpuReading:
    """A reading of nothing."""
    return GpuReading(**{field.name: Absent(reason) for field in fields(GpuReading)})


def bounded(value: float, *, low: float, high: float, source: str) -> Value[float] | Absent:
    """A value if it is possible at all; drivers report 65535 and 2**32 - 1 for unset."""
    if low <= value <= high:
        return Value(value, source)
    return Absent(f"{source} reports the impossible value {value:g}")
