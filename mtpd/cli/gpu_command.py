"""``mtpctl gpu``: the device's readings, and who answers for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.padding import Padding

from mtpd.cli.cells import NONE, cell, grid, line, number, size, table
from mtpd.cli.decode import decode_all
from mtpd.cli.session import Session, connected
from mtpd.gpu.views import DeviceView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from mtpd.gpu.views import FieldView, HostView, ReadingView

__all__ = ["device_report", "gpu"]

_NAMES = {
    "vram_total_bytes": "memory, total",
    "vram_used_bytes": "memory, used",
    "gtt_total_bytes": "host, mappable",
    "gtt_used_bytes": "host, mapped",
    "edge_c": "edge",
    "junction_c": "junction",
    "memory_c": "memory, temperature",
    "power_w": "power",
    "power_cap_w": "power cap",
    "energy_j": "energy",
    "busy_percent": "busy",
    "memory_busy_percent": "memory, busy",
    "core_mhz": "clock",
    "memory_mhz": "memory, clock",
    "throttle": "throttled by",
    "ecc_uncorrectable": "memory errors",
}
"""What people call the fields."""


@click.command()
@click.option("--sources", is_flag=True, help="Say for each field why other sources do not count.")
@connected
def gpu(session: Session, *, sources: bool) -> None:
    """Show the device: memory, temperature, power, cap, and who holds its memory."""
    reply = session.client.get("/gpu")
    session.show(
        reply,
        lambda: device_report(decode_all(DeviceView, reply.data, "devices"), sources=sources),
    )


def device_report(devices: Sequence[DeviceView], *, sources: bool = False) -> Group:
    """Every device, one after the other.

    Args:
        devices: What is shown.
        sources: Whether the sources that do not count are listed, too.
    """
    parts: list[RenderableType] = []
    for one in devices:
        parts += [_head(one), *_fields(one), *_processes(one)]
        if sources:
            parts += _refusals(one.fields)
    return Group(*parts)


def _head(one: DeviceView) -> RenderableType:
    made = grid()
    known = (one.name, one.isa, f"driver {one.driver}" if one.driver else None, one.uuid)
    line(made, "device", ", ".join((one.device, *(text for text in known if text))))
    reason = f": {one.reason}" if one.reason else ""
    line(made, "state", f"{one.state}{reason}; read every {one.period_s:g} s")
    line(made, "sources", ", then ".join(one.sources))
    line(made, "power cap", f"{one.power_cap.state.replace('_', ' ')}: {one.power_cap.reason}")
    limits = one.power_cap
    if limits.max_w is not None:
        line(
            made,
            "limits",
            f"{number(limits.min_w, 0)} to {limits.max_w:.0f} W, {number(limits.default_w, 0)} W "
            "after a reset",
        )
    if one.vendor != "cpu":
        line(made, "idle power", _text(one.idle_w, "W"))
    if one.host is not None:
        line(made, "host", _host(one.host))
    return made


def _host(host: HostView) -> str:
    parts = [f"{size(host.available_bytes)} of {size(host.total_bytes)} available"]
    if host.cgroup_bytes.value is not None:
        parts.append(f"{size(int(host.cgroup_bytes.value))} left by its control groups")
    if host.oom_kills.value:
        parts.append(f"killed for memory: {host.oom_kills.value:.0f}")
    return ", ".join(parts)


def _fields(one: DeviceView) -> list[RenderableType]:
    if not any(field.source for field in one.fields):
        reasons = dict.fromkeys(field.reason or "" for field in one.fields)
        return [cell(f"nothing can be read: {'; '.join(reasons)}")] if reasons else []
    made = table("")
    made.add_column("field")
    made.add_column("value", justify="right")
    made.add_column("from")
    made.add_column("why not", overflow="fold")
    for field in one.fields:
        made.add_row(
            cell(_NAMES.get(field.name, field.name.replace("_", " "))),
            cell(" + ".join(field.words) or _amount(field.value, field.unit)),
            cell(field.source or ""),
            cell(field.reason or ""),
        )
    return [made]


def _processes(one: DeviceView) -> list[RenderableType]:
    if one.processes_reason is not None:
        return [cell(f"who holds its memory is not known: {one.processes_reason}")]
    if not one.processes:
        return [cell("no process is seen to hold its memory")]
    made = table("Who holds its memory")
    made.add_column("pid", justify="right")
    made.add_column("name", overflow="fold")
    for head in ("memory", "mapped of host", "evicted"):
        made.add_column(head, justify="right")
    made.add_column("from")
    for process in one.processes:
        made.add_row(
            cell(str(process.pid)),
            cell(process.name or NONE),
            *(
                cell(_amount(reading.value, "bytes"))
                for reading in (process.vram, process.gtt, process.evicted)
            ),
            cell(process.vram.source or ""),
        )
    return [made]


def _refusals(fields: Sequence[FieldView]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for field in fields:
        if field.refused:
            parts.append(cell(f"{field.name}, from {field.source or 'nobody'}"))
            parts += [
                Padding(cell(f"{one.source}: {one.reason}"), (0, 0, 0, 4)) for one in field.refused
            ]
    return parts


def _text(reading: ReadingView, unit: str) -> str:
    if reading.value is None:
        return f"{NONE} ({reading.reason})"
    return _amount(reading.value, unit)


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if unit == "bytes":
        return size(int(value))
    return f"{value:.{0 if value == int(value) else 1}f} {unit}".rstrip()
