"""A card as the API shows it: a Radeon Pro VII that serves under its cap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.gpu.views import (
    DeviceView,
    FieldView,
    HostView,
    PowerCapView,
    ProcessView,
    ReadingView,
    RefusalView,
)
from mtpd.history_views import (
    UNITS,
    DeviceLimitsView,
    HistoryView,
    MissingView,
    SeriesView,
)
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

NOTHING_SAID = ReadingView(value=None, source=None, reason="this source does not count it")


def field(
    name: str,
    value: float | None,
    unit: str,
    *,
    words: tuple[str, ...] = (),
    reason: str | None = None,
    refused: tuple[RefusalView, ...] = (),
) -> FieldView:
    return FieldView(
        name=name,
        unit=unit,
        value=value,
        words=words,
        source=None if reason else "sysfs",
        reason=reason,
        refused=refused,
    )


def history(metrics: AbstractSet[str] | None = None) -> HistoryView:
    """Four steps of a card that took a request, was not read in between, and rests again."""
    steps: dict[str, tuple[float | None, ...]] = {
        "decode_tps": (None, 44.9, None, None),
        "requests_in_flight": (0.0, 1.0, 0.5, 0.0),
        "power_w": (21.0, 149.0, None, 22.0),
        "edge_c": (41.0, 71.0, None, 66.0),
    }
    return HistoryView(
        at="2026-11-29T12:00:05.000Z",
        begin="2026-11-29T11:59:30.000Z",
        step_s=10.0,
        count=4,
        limits=(
            DeviceLimitsView(
                device="0000:03:00.0",
                declared_cap_w=150.0,
                gate_edge_c=44.0,
                junction_limit_c=105.0,
                vram_total_bytes=16_368 * MIB,
            ),
        ),
        series=tuple(
            SeriesView(
                metric=name,
                unit=UNITS[name],
                device="0000:03:00.0" if name in {"power_w", "edge_c"} else None,
                position=None,
                mean=found,
                low=found,
                high=found,
            )
            for name, found in steps.items()
            if metrics is None or name in metrics
        ),
        missing=(MissingView(metric="junction_c", device="0000:03:00.0", reason="no such sensor"),),
    )


def card() -> DeviceView:
    return DeviceView(
        device="0000:03:00.0",
        vendor="amd",
        name="AMD Radeon Pro VII",
        uuid="GPU-2172c0de5eed0906",
        isa="gfx906",
        driver="6.16.13",
        sources=("sysfs", "amdsmi"),
        state="answering",
        reason="",
        period_s=1.0,
        idle_w=ReadingView(value=21.0, source="sampler", reason=None),
        fields=(
            field("vram_used_bytes", 15_404 * MIB, "bytes"),
            field("edge_c", 71.0, "°C"),
            field(
                "power_w",
                149.0,
                "W",
                refused=(RefusalView(source="amdsmi", reason="it reports the impossible value 0"),),
            ),
            field("energy_j", None, "J", reason="the driver of this card has no energy counter"),
            field("busy_percent", 99.5, "%"),
            field("throttle", None, "", words=("power",)),
            field("ecc_uncorrectable", 0.0, ""),
        ),
        power_cap=PowerCapView(
            state="observed",
            reason="the power cap is 150 W, and the card drew 149 W on average",
            wanted_w=150.0,
            current_w=150.0,
            default_w=190.0,
            min_w=0.0,
            max_w=190.0,
        ),
        processes=(
            ProcessView(
                pid=4242,
                name="llama-server",
                vram=ReadingView(value=14_680 * MIB, source="kfd", reason=None),
                gtt=ReadingView(value=18 * MIB, source="fdinfo", reason=None),
                evicted=NOTHING_SAID,
            ),
        ),
        processes_reason=None,
        host=HostView(
            total_bytes=24_105 * MIB,
            available_bytes=19_456 * MIB,
            budget_bytes=12_000 * MIB,
            cgroup_bytes=ReadingView(value=12_000 * MIB, source="cgroup", reason=None),
            oom_kills=ReadingView(value=1.0, source="cgroup", reason=None),
            package_energy_j=NOTHING_SAID,
        ),
    )
