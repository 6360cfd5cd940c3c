"""What ``GET /mtpd/v1/gpu`` and ``mtpctl gpu`` show of a device: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mtpd.gpu.powercap import judge
from mtpd.types import Absent, Value
from tuner.power import Throttle

if TYPE_CHECKING:
    from mtpd.gpu.base import Device, PowerCap
    from mtpd.gpu.host import HostMemory
    from mtpd.gpu.layered import FieldSources
    from mtpd.gpu.sampler import Sampler
    from mtpd.types import ProcessMemory, Reading

__all__ = [
    "DeviceView",
    "FieldView",
    "HostView",
    "PowerCapView",
    "ProcessView",
    "ReadingView",
    "RefusalView",
    "host_view",
    "view",
]

_UNITS: Final = {
    "bytes": "bytes",
    "c": "°C",
    "w": "W",
    "j": "J",
    "mhz": "MHz",
    "percent": "%",
    "uncorrectable": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingView:
    """A number, or why there is none.

    Attributes:
        value: None where it is not known or does not apply.
        source: Who answered, or None.
        reason: Why there is no value, or None.
    """

    value: float | None
    source: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView:
    """A source that does not count for a field.

    Attributes:
        source: Its name.
        reason: What it says instead, or why it is not asked.
    """

    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldView:
    """One field of a reading.

    Attributes:
        name: As in docs/gpu.md.
        unit: bytes, °C, W, J, MHz, %, or "" for words and counts.
        value: None where it is not known or does not apply.
        words: In place of a value: the reasons of throttling.
        source: Who answered, or None.
        reason: Why there is no value, or None.
        refused: The other sources.
    """

    name: str
    unit: str
    value: float | None
    words: tuple[str, ...]
    source: str | None
    reason: str | None
    refused: tuple[RefusalView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCapView:
    """The power cap.

    Attributes:
        state: not_applicable, unsupported, unknown, undeclared, wrong, declared, observed.
        reason: One sentence.
        wanted_w: What the hardware profile declares, or None.
        current_w: In force, as far as the driver knows.
        default_w: After a boot or a reset.
        min_w: Lowest that can be asked for.
        max_w: Highest that can be asked for.
    """

    state: str
    reason: str
    wanted_w: float | None
    current_w: float | None
    default_w: float | None
    min_w: float | None
    max_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A process that holds memory of the device."""

    pid: int
    name: str | None
    vram: ReadingView
    gtt: ReadingView
    evicted: ReadingView


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The machine's own memory, which engines without a card and spilled layers use.

    Attributes:
        total_bytes: Built in.
        available_bytes: What the kernel could give without swapping.
        budget_bytes: What an engine may take: no more than the control groups allow.
        cgroup_bytes: What they still allow; a reason where nothing limits them.
        oom_kills: Processes that were killed for memory so far.
        package_energy_j: Joules of the processor since the first look, never a card's.
    """

    total_bytes: int
    available_bytes: int
    budget_bytes: int
    cgroup_bytes: ReadingView
    oom_kills: ReadingView
    package_energy_j: ReadingView


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """A device with its newest reading.

    Attributes:
        device: PCI address, or "host".
        vendor: amd, nvidia or cpu.
        name: Of the card, or None.
        uuid: By which engines are pinned to it, or None.
        isa: Instruction set, or None.
        driver: Version, or None.
        sources: Who is asked, the most trusted first.
        state: unseen, answering, silent, gone or stale.
        reason: What could not be read, or "".
        period_s: Seconds between two readings now.
        idle_w: What it draws while it computes nothing.
        fields: Every field of the reading, with its source.
        power_cap: The cap and how far it is trusted.
        processes: Who holds its memory.
        processes_reason: Why nobody can be listed, or None.
        host: The machine around it; None where it cannot be read now.
    """

    device: str
    vendor: str
    name: str | None
    uuid: str | None
    isa: str | None
    driver: str | None
    sources: tuple[str, ...]
    state: str
    reason: str
    period_s: float
    idle_w: ReadingView
    fields: tuple[FieldView, ...]
    power_cap: PowerCapView
    processes: tuple[ProcessView, ...]
    processes_reason: str | None
    host: HostView | None


def host_view(memory: HostMemory, energy: Value[float] | Absent) -> HostView:
    """The machine's memory as the API shows it."""
    return HostView(
        total_bytes=memory.total_bytes,
        available_bytes=memory.available_bytes,
        budget_bytes=memory.budget_bytes,
        cgroup_bytes=_reading(memory.cgroup_bytes),
        oom_kills=_reading(memory.oom_kills),
        package_energy_j=_reading(energy),
    )


async def view(
    device: Device,
    sampler: Sampler,
    *,
    sources: tuple[str, ...],
    wanted_w: float | None,
    host: HostView | None,
) -> DeviceView:
    """Read a device anew, and show it.

    Args:
        device: What it is.
        sampler: Reads it.
        sources: Who is asked.
        wanted_w: The declared cap, or None.
        host: The machine around it.
    """
    explained = await sampler.explain()
    cap = await sampler.power_cap()
    processes = await sampler.processes()
    return DeviceView(
        device=device.key,
        vendor=device.vendor,
        name=device.name,
        uuid=device.uuid,
        isa=device.isa,
        driver=device.driver,
        sources=sources,
        state=sampler.state.name,
        reason=sampler.state.reason,
        period_s=sampler.period_s,
        idle_w=_reading(sampler.idle_w),
        fields=() if isinstance(explained, Absent) else tuple(_field(one) for one in explained),
        power_cap=_cap(cap, sampler, wanted_w),
        processes=()
        if isinstance(processes, Absent)
        else tuple(_process(one) for one in processes),
        processes_reason=processes.reason if isinstance(processes, Absent) else None,
        host=host,
    )


def _field(one: FieldSources) -> FieldView:
    words: tuple[str, ...] = ()
    shown = _reading(one.reading)
    if isinstance(one.reading, Value) and isinstance(one.reading.value, Throttle):
        words = tuple(str(bit.name).lower() for bit in one.reading.value) or ("none",)
    return FieldView(
        name=one.field,
        unit=_UNITS.get(one.field.rpartition("_")[2], ""),
        value=shown.value,
        words=words,
        source=shown.source,
        reason=shown.reason,
        refused=tuple(RefusalView(source=no.provider, reason=no.reason) for no in one.refused),
    )


def _cap(cap: PowerCap, sampler: Sampler, wanted_w: float | None) -> PowerCapView:
    verdict = judge(cap, wanted_w=wanted_w, held=sampler.cap_held())
    return PowerCapView(
        state=verdict.state.value,
        reason=verdict.reason,
        wanted_w=wanted_w,
        current_w=_reading(cap.current_w).value,
        default_w=_reading(cap.default_w).value,
        min_w=_reading(cap.min_w).value,
        max_w=_reading(cap.max_w).value,
    )


def _process(one: ProcessMemory) -> ProcessView:
    return ProcessView(
        pid=one.pid,
        name=one.name,
        vram=_reading(one.vram_bytes),
        gtt=_reading(one.gtt_bytes),
        evicted=_reading(one.evicted_bytes),
    )


def _reading(reading: Reading[Any]) -> ReadingView:
    if isinstance(reading, Value):
        number = None if isinstance(reading.value, Throttle) else reading.value
        return ReadingView(value=number, source=reading.source, reason=None)
    return ReadingView(value=None, source=None, reason=reading.reason)
