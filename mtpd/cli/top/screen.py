"""How ``mtpctl top`` shows a moment: a screen, or one line. Pure of input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from mtpd.cli.cells import (
    ALPHA,
    NONE,
    arm_text,
    clock_text,
    duration,
    grid,
    line,
    number,
    percent,
    size,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.top.snapshot import TopDeviceView, TopEngineView, TopView
    from mtpd.engine_views import RequestView

__all__ = ["moment_line", "screen"]

STREAMS: Final = 6
"""Open requests that are shown, the oldest first."""
_BAR: Final = 20
_CHOICES: Final = {"set": "set by an operator"}


def screen(view: TopView, *, foot: str | None = None) -> Group:
    """The moment on one screen, with a line below it."""
    head = Text.assemble(
        (f"mtpd {view.version}", "bold"),
        f"  up {duration(view.uptime_s)}  tuning {view.mode}  {clock_text(view.at)}",
    )
    made = grid()
    several = len({engine.device for engine in view.engines}) > 1
    for engine in view.engines:
        line(made, "engine", _engine(engine, place=several))
        if engine.next is not None:
            line(made, "  next", engine.next)
    line(made, "speed", _speed(view))
    line(made, "accepted", _accepted(view))
    for device in view.devices:
        for name, text in _device(device):
            line(made, name, text)
    line(made, "queue", f"{view.waiting} waiting, {view.in_flight} in flight")
    for name, text in _streams(view):
        line(made, name, text)
    if view.operation is not None:
        line(made, "operation", view.operation)
    if view.decision is not None:
        line(made, "decision", f"{view.decision_id}: {view.decision}")
    below = () if foot is None else (Text(""), Text(foot, style="dim"))
    return Group(head, made, *below)


def moment_line(view: TopView) -> str:
    """The moment on one line, for pipes and files."""
    engines = "; ".join(
        f"{arm_text(one.profile, one.depth)} {one.state} {one.residency}" for one in view.engines
    )
    parts = [
        clock_text(view.at),
        engines or "no engine",
        f"{number(view.decode_tps, 1)} tok/s",
        _alphas(view) if view.acceptance else f"{ALPHA} {NONE}",
        *(
            f"{size(_whole(one.vram_used_bytes))} {number(one.power_w, 0)} W"
            f" {number(one.edge_c, 0)} °C"
            for one in view.devices
        ),
        f"queue {view.waiting}+{view.in_flight}",
        f"decision {NONE if view.decision_id is None else view.decision_id}",
    ]
    return "  ".join(parts)


def _engine(one: TopEngineView, *, place: bool) -> Text:
    text = Text.assemble((arm_text(one.profile, one.depth), "bold"), "  ")
    text.append(state(one.state)).append("  ").append(state(one.residency))
    if place:
        text.append(f"  on {one.device}")
    if one.choice is not None:
        text.append(f"  {_CHOICES.get(one.choice, one.choice)}")
    return text.append("" if one.held_bytes is None else f"  holds {size(one.held_bytes)}")


def _speed(view: TopView) -> str:
    reply = "no reply ended lately"
    if view.decode_tps is not None:
        reply = f"{view.decode_tps:.1f} tok/s in the latest reply"
    return reply if view.stream_tps is None else f"{reply}, {view.stream_tps:.1f}/s being sent"


def _accepted(view: TopView) -> str:
    return "nothing drafted lately" if not view.acceptance else _alphas(view)


def _alphas(view: TopView) -> str:
    return " ".join(
        f"{ALPHA}{place} {percent(alpha, 0)}" for place, alpha in enumerate(view.acceptance, 1)
    )


def _device(one: TopDeviceView) -> Iterator[tuple[str, str]]:
    if one.vram_used_bytes is not None or one.vram_total_bytes is not None:
        total = size(one.vram_total_bytes)
        yield "memory", f"{_bar(one)}{size(_whole(one.vram_used_bytes))} of {total}"
    if one.power_w is not None or one.power_cap_w is not None:
        cap = "" if one.power_cap_w is None else f", cap {one.power_cap_w:.0f} W"
        yield "power", f"{number(one.power_w, 0)} W{cap}, busy {_busy(one)}"
    if one.edge_c is not None:
        gate = "" if one.gate_edge_c is None else f", measures at or below {one.gate_edge_c:.0f} °C"
        yield "edge", f"{one.edge_c:.0f} °C{gate}"


def _busy(one: TopDeviceView) -> str:
    return NONE if one.busy_percent is None else f"{one.busy_percent:.0f}%"


def _bar(one: TopDeviceView) -> str:
    """How full the memory is; nothing where that is not known."""
    if one.vram_used_bytes is None or not one.vram_total_bytes:
        return ""
    filled = min(_BAR, round(_BAR * one.vram_used_bytes / one.vram_total_bytes))
    return f"{'█' * filled}{'░' * (_BAR - filled)}  "


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def _streams(view: TopView) -> Iterator[tuple[str, str]]:
    for index, one in enumerate(view.streams[:STREAMS]):
        yield "streams" if index == 0 else "", _stream(one)
    if len(view.streams) > STREAMS:
        yield "", f"and {len(view.streams) - STREAMS} more"


def _stream(one: RequestView) -> str:
    since = one.age_s if one.running_s is None else one.running_s
    text = f"{arm_text(one.profile, one.depth)} {one.state} {duration(since)}"
    if one.events is not None:
        text += f", {one.events} events, {number(one.events_per_s, 1)}/s"
    if one.priority != "normal":
        text += f", {one.priority} priority"
    return text if one.caller is None else f"{text}, {one.caller}"
