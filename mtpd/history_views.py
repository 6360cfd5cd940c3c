"""What the control API shows of the last hours: plain values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNITS", "DeviceLimitsView", "HistoryView", "MissingView", "SeriesView"]

UNITS: dict[str, str] = {
    "decode_tps": "tokens/s",
    "prompt_tps": "tokens/s",
    "stream_tps": "events/s",
    "requests_in_flight": "requests",
    "requests_waiting": "requests",
    "joules_per_token": "J/token",
    "acceptance": "1",
    "power_w": "W",
    "power_cap_w": "W",
    "edge_c": "°C",
    "junction_c": "°C",
    "vram_used_bytes": "B",
    "gtt_used_bytes": "B",
    "busy_percent": "%",
}
"""Every metric with its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesView:
    """One quantity over time; null where nothing was seen within a step.

    Attributes:
        metric: One of ``UNITS``.
        unit: Its unit.
        device: The device that it is about; None for the daemon's own.
        position: The draft position, from 1; None for all but ``acceptance``.
        mean: Weighted mean of every step, oldest first.
        low: Lowest value of every step.
        high: Highest value.
    """

    metric: str
    unit: str
    device: str | None
    position: int | None
    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingView:
    """A metric of which nothing was seen since the daemon started, with the latest reason."""

    metric: str
    device: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimitsView:
    """Lines to draw beside the series of a device; null where none is declared or known.

    Attributes:
        declared_cap_w: Power cap of the hardware profile.
        gate_edge_c: Edge temperature at or below which a measurement may begin; null for a
            relative gate.
        junction_limit_c: From which the hottest spot is critical.
        vram_total_bytes: Device memory.
    """

    device: str
    declared_cap_w: float | None
    gate_edge_c: float | None
    junction_limit_c: float | None
    vram_total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    """The last hours.

    Attributes:
        at: The present, RFC 3339 in UTC.
        begin: When the first step begins.
        step_s: Length of a step, seconds; the last one is not over yet.
        count: How many.
        limits: Of every device.
        series: Those of which something was seen since the daemon started.
        missing: The others.
    """

    at: str
    begin: str
    step_s: float
    count: int
    limits: tuple[DeviceLimitsView, ...]
    series: tuple[SeriesView, ...]
    missing: tuple[MissingView, ...]
