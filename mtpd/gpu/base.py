"""What a source of device readings provides: devices, and readings that may be absent.

Pure. Every field is a ``Reading``: a sensor that cannot be read is ``Absent`` with the
reason, never 0, and a question that does not arise is ``NotApplicable``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Protocol

from mtpd.types import Absent, NotApplicable, Value
from tuner.power import Throttle

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtpd.types import ProcessMemory, Reading
    from mtpd.units import DeviceKey

__all__ = [
    "FIELDS",
    "MEMORY_MAX_BYTES",
    "NOT_ASKED",
    "POWER_MAX_W",
    "SLOW_FIELDS",
    "Device",
    "GpuProvider",
    "GpuReading",
    "PowerCap",
    "Throttle",
    "absent_everywhere",
    "bounded",
    "no_cap",
]

MEMORY_MAX_BYTES: Final = 1 << 50
"""No device has a pebibyte; drivers report all ones for unset."""
POWER_MAX_W: Final = 2000
"""No card draws that much or can be limited to more."""

_UNSAID: Final = Absent("this source does not give it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, or the host.

    Attributes:
        key: PCI address in lower case, or "host".
        vendor: amd, nvidia or cpu.
        name: What the driver calls it, where it says.
        uuid: By which a child process can be pinned to it: "GPU-" and 16 hexadecimal
            digits on AMD cards, NVIDIA's UUID on theirs; None where it is unknown.
        isa: Instruction set, e.g. "gfx906"; None where it is unknown.
        driver: Version of the driver; None where it is unknown.
        junction_limit_c: Temperature from which the hottest spot is critical; None where
            it is unknown.
    """

    key: DeviceKey
    vendor: str
    name: str | None = None
    uuid: str | None = None
    isa: str | None = None
    driver: str | None = None
    junction_limit_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One look at a device.

    Attributes:
        vram_total_bytes: Device memory.
        vram_used_bytes: Used by all clients of the device together.
        gtt_total_bytes: Host memory that the device may map.
        gtt_used_bytes: What it has mapped of it; grows when layers spill.
        edge_c: Edge temperature, degrees Celsius.
        junction_c: Hottest spot.
        memory_c: Memory temperature.
        power_w: Board power, watts.
        power_cap_w: Power limit in force, watts.
        energy_j: Joules that the card counted itself, since an arbitrary start.
        busy_percent: How much of the time the card computed.
        memory_busy_percent: How much of the time its memory was used.
        core_mhz: Clock of the shader cores.
        memory_mhz: Clock of the memory.
        throttle: Why it runs slower than it could.
        ecc_uncorrectable: Memory errors that could not be corrected, since the driver
            was loaded.
    """

    vram_total_bytes: Reading[int] = _UNSAID
    vram_used_bytes: Reading[int] = _UNSAID
    gtt_total_bytes: Reading[int] = _UNSAID
    gtt_used_bytes: Reading[int] = _UNSAID
    edge_c: Reading[float] = _UNSAID
    junction_c: Reading[float] = _UNSAID
    memory_c: Reading[float] = _UNSAID
    power_w: Reading[float] = _UNSAID
    power_cap_w: Reading[float] = _UNSAID
    energy_j: Reading[float] = _UNSAID
    busy_percent: Reading[float] = _UNSAID
    memory_busy_percent: Reading[float] = _UNSAID
    core_mhz: Reading[float] = _UNSAID
    memory_mhz: Reading[float] = _UNSAID
    throttle: Reading[Throttle] = _UNSAID
    ecc_uncorrectable: Reading[int] = _UNSAID


FIELDS: Final = tuple(field.name for field in fields(GpuReading))
"""Names of all fields of a reading, in declared order."""

SLOW_FIELDS: Final = frozenset({"throttle", "ecc_uncorrectable"})
"""Fields that cost the driver a transfer from the card: read once a second at most."""

NOT_ASKED: Final = Absent("read once a second only")
"""What stands in the slow fields of a reading that left them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCap:
    """The power limit and between what it can be set, watts.

    Attributes:
        current_w: In force, as far as the driver knows.
        default_w: After a boot or a reset.
        min_w: Lowest that can be asked for. 0 says nothing: the driver takes it as
            "restore the default".
        max_w: Highest that can be asked for.
        supported: Whether the driver has a limit at all; None where it does not say.
    """

    current_w: Reading[float] = _UNSAID
    default_w: Reading[float] = _UNSAID
    min_w: Reading[float] = _UNSAID
    max_w: Reading[float] = _UNSAID
    supported: bool | None = None


class GpuProvider(Protocol):
    """A source of readings; asked from one thread, may block for some milliseconds.

    No method raises for a card that is gone, asleep, in reset or malformed: what cannot
    be read is Absent.
    """

    @property
    def name(self) -> str:
        """sysfs, amdsmi, nvml or host; the ``source`` of its values."""

    def devices(self) -> tuple[Device, ...]:
        """The devices it can read now; empty, never an error, where there are none."""

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        """Read a device; a device that is gone gives a reading with every field absent.

        Args:
            key: Which device.
            slow: Whether ``SLOW_FIELDS`` are read, too.
        """

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """The processes that hold memory of a device, by pid.

        Args:
            key: Which device.
            pids: Only these; None means all that can be seen.
        """

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """The power limit and its range."""

    def close(self) -> None:
        """Give back descriptors and libraries; a later read opens them anew."""


def absent_everywhere(reason: str) -> GpuReading:
    """A reading of nothing."""
    return GpuReading(**dict.fromkeys(FIELDS, Absent(reason)))


def no_cap(reading: Absent | NotApplicable) -> PowerCap:
    """A power limit of which nothing is known, or that cannot exist."""
    return PowerCap(current_w=reading, default_w=reading, min_w=reading, max_w=reading)


def bounded(value: float, *, low: float, high: float, source: str) -> Value[float] | Absent:
    """A value if it is possible at all; drivers report 65535 and 2**32 - 1 for unset."""
    if low <= value <= high:
        return Value(value, source)
    return Absent(f"{source} reports the impossible value {value:g}")
