"""A card as the API shows it: a Radeon Pro VII that serves under its cap."""

from __future__ import annotations

from mtpd.gpu.views import (
    DeviceView,
    FieldView,
    HostView,
    PowerCapView,
    ProcessView,
    ReadingView,
    RefusalView,
)
from mtpd.units import MIB

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
