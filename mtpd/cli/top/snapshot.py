"""What ``mtpctl top`` shows at one moment, from the status and the last minutes. Pure.

Unknown is null, never 0: a speed that nobody measured lately and a sensor that is silent
have no value here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.cli.render import headed
from mtpd.engine_views import RequestView  # noqa: TC001  # decoders resolve it

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mtpd.history_views import DeviceLimitsView, HistoryView, SeriesView
    from mtpd.views import StatusView

__all__ = ["TopDeviceView", "TopEngineView", "TopView", "snapshot"]

NOW_STEPS: Final = 3
"""Steps of the history within which a reading counts as the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopEngineView:
    """One engine.

    Attributes:
        depth: Of its arm; null where it never ran.
        drafter: Likewise.
        residency: resident, evicted, spilled, host or unknown.
        held_bytes: What it holds; null where nobody knows.
        choice: Who chose its arm: measured, set or not measured; null where it is another.
        next: What the daemon would do with it by itself; null where it says nothing.
    """

    profile: str
    state: str
    depth: int | None
    drafter: str | None
    residency: str
    device: str
    held_bytes: int | None
    choice: str | None
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopDeviceView:
    """One device, as last read within half a minute.

    Attributes:
        power_cap_w: In force, as far as the driver knows.
        gate_edge_c: At or below which a measurement may begin.
    """

    device: str
    vram_used_bytes: float | None
    vram_total_bytes: int | None
    power_w: float | None
    power_cap_w: float | None
    edge_c: float | None
    gate_edge_c: float | None
    busy_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """The daemon at one moment.

    Attributes:
        at: Of the daemon's clock, RFC 3339 in UTC.
        decode_tps: Tokens per second of the latest reply, as the engine timed it; null where
            none ended lately.
        stream_tps: Events per second that all running streams have now; null without one.
        acceptance: Of the latest replies, by draft position; null where none was drafted.
        streams: The open requests, the oldest first.
        decision: The latest one in one sentence.
        operation: What is being done now.
    """

    at: str
    version: str
    mode: str
    uptime_s: float
    engines: tuple[TopEngineView, ...]
    devices: tuple[TopDeviceView, ...]
    decode_tps: float | None
    stream_tps: float | None
    acceptance: tuple[float | None, ...]
    waiting: int
    in_flight: int
    streams: tuple[RequestView, ...]
    decision_id: int | None
    decision: str | None
    operation: str | None


def snapshot(status: StatusView, history: HistoryView) -> TopView:
    """The moment that both were asked at."""
    last = status.last_decision
    now = status.operation
    rates = [one.events_per_s for one in status.requests if one.events_per_s is not None]
    return TopView(
        at=history.at,
        version=status.version,
        mode=status.mode,
        uptime_s=status.uptime_s,
        engines=_engines(status),
        devices=tuple(_device(limits, history.series) for limits in history.limits),
        decode_tps=_latest(history.series, "decode_tps"),
        stream_tps=sum(rates) if rates else None,
        acceptance=_acceptance(history.series),
        waiting=status.queue.waiting,
        in_flight=status.queue.in_flight,
        streams=status.requests,
        decision_id=None if last is None else last.id,
        decision=None if last is None else headed(last.act, last.subject, last.reason),
        operation=None if now is None else f"{now.kind} {now.state} {now.progress.note}".rstrip(),
    )


def _engines(status: StatusView) -> tuple[TopEngineView, ...]:
    held = {one.arm: one.held for one in status.memory}
    chosen = {one.arm: one for one in status.choices}
    following = {one.profile: one.next for one in status.live}
    made = []
    for engine in status.engines:
        need = None if engine.arm is None else held.get(engine.arm)
        choice = None if engine.arm is None else chosen.get(engine.arm)
        then = following.get(engine.profile)
        made.append(
            TopEngineView(
                profile=engine.profile,
                state=engine.state,
                depth=None if engine.arm is None else engine.arm.depth,
                drafter=None if engine.arm is None else engine.arm.drafter,
                residency=engine.residency.state,
                device=engine.device,
                held_bytes=None if need is None else need.count_bytes,
                choice=None
                if choice is None
                else "set"
                if choice.pinned
                else "measured"
                if choice.measured
                else "not measured",
                next=None if then is None else then.says,
            )
        )
    return tuple(made)


def _device(limits: DeviceLimitsView, series: Sequence[SeriesView]) -> TopDeviceView:
    def now(metric: str) -> float | None:
        return _latest(series, metric, device=limits.device, within=NOW_STEPS)

    return TopDeviceView(
        device=limits.device,
        vram_used_bytes=now("vram_used_bytes"),
        vram_total_bytes=limits.vram_total_bytes,
        power_w=now("power_w"),
        power_cap_w=now("power_cap_w"),
        edge_c=now("edge_c"),
        gate_edge_c=limits.gate_edge_c,
        busy_percent=now("busy_percent"),
    )


def _acceptance(series: Sequence[SeriesView]) -> tuple[float | None, ...]:
    """Of every position up to the last one of which anything is known."""
    known = {
        one.position: _last(one.mean)
        for one in series
        if one.metric == "acceptance" and one.position is not None
    }
    deepest = max((place for place, alpha in known.items() if alpha is not None), default=0)
    return tuple(known.get(place) for place in range(1, deepest + 1))


def _latest(
    series: Sequence[SeriesView], metric: str, *, device: str | None = None, within: int = 0
) -> float | None:
    found = (one for one in series if one.metric == metric and one.device in {device, None})
    return next((_last(one.mean[-within:]) for one in found), None)


def _last(values: Iterable[float | None]) -> float | None:
    """The latest value that is one."""
    return next((one for one in reversed(tuple(values)) if one is not None), None)
