"""Several sources of one card as one: for each field the first that really answers.

The order is that of trust (facts in docs/gpu.md): files of the driver, then the vendor's
library. Two sources that contradict each other by more than a tenth are told once, and
the first one is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from mtpd.gpu.base import FIELDS, SLOW_FIELDS, Device, GpuReading, PowerCap, absent_everywhere
from mtpd.types import Absent, NotApplicable, Value

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtpd.gpu.base import GpuProvider
    from mtpd.types import ProcessMemory, Reading
    from mtpd.units import DeviceKey

__all__ = ["FieldSources", "LayeredProvider", "Refusal"]

log = structlog.get_logger()

DIFFERENCE: Final = 0.1
"""Relative difference beyond which two sources contradict each other."""

_MOVING: Final = frozenset(
    {"energy_j", "busy_percent", "memory_busy_percent", "core_mhz", "memory_mhz"}
)
"""Fields that differ between two moments, so that a difference of sources says nothing."""

_IDENTITY: Final = ("name", "uuid", "isa", "driver")
# The library knows names; the serial number is read from the file where there is one.
_LIBRARY_FIRST: Final = frozenset({"name", "driver"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A source that was passed over.

    Attributes:
        provider: Its name.
        reason: Why nothing is asked of it.
    """

    provider: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSources:
    """Where one field comes from.

    Attributes:
        field: Its name in ``GpuReading``.
        reading: What counts.
        refused: What the other sources said, or why they were not asked.
    """

    field: str
    reading: Reading[Any]
    refused: tuple[Refusal, ...]


class LayeredProvider:
    """Asks its sources in order of trust.

    Args:
        sources: First the one that is believed first.
        refused: Sources that could not be used at all.
    """

    def __init__(
        self, sources: tuple[GpuProvider, ...], *, refused: tuple[Refusal, ...] = ()
    ) -> None:
        self._sources = sources
        self._refused = refused
        self._fillers: dict[DeviceKey, frozenset[str]] = {}
        self._told: set[tuple[DeviceKey, str]] = set()

    @property
    def name(self) -> str:
        """The sources, e.g. ``sysfs+amdsmi``."""
        return "+".join(source.name for source in self._sources)

    def devices(self) -> tuple[Device, ...]:
        """The devices of all sources by address, each with what any of them knows."""
        found: dict[DeviceKey, list[Device]] = {}
        for source in self._sources:
            for device in source.devices():
                found.setdefault(device.key, []).append(device)
        return tuple(_identity(found[key]) for key in sorted(found))

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        """One reading; a fast one asks only the sources that were needed last time."""
        needed = self._fillers.get(key)
        readings = [
            (source.name, source.read(key, slow=slow))
            for number, source in enumerate(self._sources)
            if slow or number == 0 or needed is None or source.name in needed
        ]
        if not readings:
            return absent_everywhere("there is no source of readings")
        if slow or needed is None:
            self._compare(key, readings)
        merged, fillers = _merge(readings)
        if slow:
            self._fillers[key] = fillers
        return merged

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """From the first source that can list them."""
        why = Absent("there is no source of readings")
        for source in self._sources:
            found = source.processes(key, pids=pids)
            if not isinstance(found, Absent):
                return found
            why = found
        return why

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """Each limit from the first source that knows it."""
        caps = [source.power_cap(key) for source in self._sources]
        return PowerCap(
            current_w=_first([cap.current_w for cap in caps]),
            default_w=_first([cap.default_w for cap in caps]),
            min_w=_first([cap.min_w for cap in caps]),
            max_w=_first([cap.max_w for cap in caps]),
            supported=next((one for cap in caps if (one := cap.supported) is not None), None),
        )

    def write_cap_w(self, key: DeviceKey, watts: int) -> None:
        """Ask the first source that can set a power limit; raises OSError."""
        for source in self._sources:
            write = getattr(source, "write_cap_w", None)
            if write is not None:
                write(key, watts)
                return
        msg = f"no source of {key} can set a power limit"
        raise FileNotFoundError(msg)

    def explain(self, key: DeviceKey) -> tuple[FieldSources, ...]:
        """Per field who answers, and what every other source says instead."""
        readings = [(source.name, source.read(key)) for source in self._sources]
        merged, _ = _merge(readings)
        return tuple(
            FieldSources(
                field=name,
                reading=getattr(merged, name),
                refused=_others(name, getattr(merged, name), readings) + self._refused,
            )
            for name in FIELDS
        )

    def close(self) -> None:
        """Close every source."""
        for source in self._sources:
            source.close()

    def _compare(self, key: DeviceKey, readings: list[tuple[str, GpuReading]]) -> None:
        for name in FIELDS:
            if name in _MOVING:
                continue
            said = [
                (source, reading.value)
                for source, one in readings
                if isinstance(reading := getattr(one, name), Value)
                and isinstance(reading.value, int | float)
            ]
            for source, value in said[1:]:
                first = said[0][1]
                if abs(value - first) > DIFFERENCE * max(abs(first), abs(value)):
                    self._tell(key, name, said[0][0], first, source, value)

    def _tell(  # noqa: PLR0917 - two sides of one sentence
        self, key: DeviceKey, name: str, kept: str, first: float, other: str, value: float
    ) -> None:
        if (key, name) in self._told:
            return
        self._told.add((key, name))
        log.warning(
            "gpu.sources_differ",
            device=key,
            field=name,
            kept=f"{kept} {first:g}",
            refused=f"{other} {value:g}",
        )


def _merge(readings: list[tuple[str, GpuReading]]) -> tuple[GpuReading, frozenset[str]]:
    """Field by field the first answer, and the later sources that fast fields came from."""
    (_, merged), *others = readings
    fillers: set[str] = set()
    for source, reading in others:
        missing = [name for name in FIELDS if isinstance(getattr(merged, name), Absent)]
        filled = {
            name: getattr(reading, name)
            for name in missing
            if isinstance(getattr(reading, name), Value)
        }
        if filled:
            merged = replace(merged, **filled)
            if filled.keys() - SLOW_FIELDS:
                fillers.add(source)
    return merged, frozenset(fillers)


def _first(readings: list[Reading[float]]) -> Reading[float]:
    for reading in readings:
        if not isinstance(reading, Absent):
            return reading
    return readings[0] if readings else Absent("there is no source of readings")


def _others(
    name: str, kept: Reading[Any], readings: list[tuple[str, GpuReading]]
) -> tuple[Refusal, ...]:
    answered = kept.source if isinstance(kept, Value) else None
    refused: list[Refusal] = []
    for source, one in readings:
        reading = getattr(one, name)
        match reading:
            case Value(value) if source != answered:
                refused.append(Refusal(source, f"it says {value}; another source comes first"))
            case Absent(reason) | NotApplicable(reason):
                refused.append(Refusal(source, reason))
            case _:
                pass
    return tuple(refused)


def _identity(devices: list[Device]) -> Device:
    first = devices[0]
    known: dict[str, str | None] = {}
    for name in _IDENTITY:
        order = reversed(devices) if name in _LIBRARY_FIRST else devices
        known[name] = next((said for one in order if (said := getattr(one, name))), None)
    return replace(
        first, name=known["name"], uuid=known["uuid"], isa=known["isa"], driver=known["driver"]
    )
