"""The samples of one device: in base units, none for what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.gpu.powercap import CapState
from mtpd.types import Value
from tuner.power import Throttle

if TYPE_CHECKING:
    from mtpd.gpu.views import DeviceView, FieldView, HostView
    from mtpd.metrics.families import Families
    from mtpd.types import Reading

__all__ = ["collect_device"]

_FIELDS: Final[dict[str, tuple[str, float, tuple[str, ...]]]] = {
    "vram_total_bytes": ("mtpd_gpu_vram_total_bytes", 1, ()),
    "vram_used_bytes": ("mtpd_gpu_vram_used_bytes", 1, ()),
    "gtt_total_bytes": ("mtpd_gpu_gtt_total_bytes", 1, ()),
    "gtt_used_bytes": ("mtpd_gpu_gtt_used_bytes", 1, ()),
    "edge_c": ("mtpd_gpu_temperature_celsius", 1, ("edge",)),
    "junction_c": ("mtpd_gpu_temperature_celsius", 1, ("junction",)),
    "memory_c": ("mtpd_gpu_temperature_celsius", 1, ("memory",)),
    "power_w": ("mtpd_gpu_power_watts", 1, ()),
    "power_cap_w": ("mtpd_gpu_power_cap_watts", 1, ()),
    "busy_percent": ("mtpd_gpu_busy_ratio", 0.01, ()),
    "memory_busy_percent": ("mtpd_gpu_memory_busy_ratio", 0.01, ()),
    "core_mhz": ("mtpd_gpu_clock_hertz", 1e6, ("core",)),
    "memory_mhz": ("mtpd_gpu_clock_hertz", 1e6, ("memory",)),
    "ecc_uncorrectable": ("mtpd_gpu_ecc_uncorrectable_errors_total", 1, ()),
}
"""Metric, factor to its base unit, and further labels of each field of a reading."""


def collect_device(
    found: Families,
    device: DeviceView,
    *,
    energy: Reading[float] | None,
    budget_bytes: int | None,
) -> None:
    """Add everything of one device.

    Args:
        found: Takes the samples.
        device: As the API shows it.
        energy: Joules that it drew since it is watched.
        budget_bytes: Its memory that engines may take.
    """
    key = device.device
    found.info(
        "mtpd_gpu_info",
        key,
        device.vendor,
        device.name or "",
        device.isa or "",
        device.driver or "",
    )
    found.state("mtpd_gpu_state", device.state, key)
    for field in device.fields:
        _field(found, field, key)
    found.add("mtpd_gpu_vram_budget_bytes", budget_bytes, key)
    found.add("mtpd_gpu_idle_power_watts", device.idle_w.value, key)
    if isinstance(energy, Value):
        found.add("mtpd_gpu_energy_joules_total", energy.value, key)
    found.add("mtpd_gpu_power_cap_declared_watts", device.power_cap.wanted_w, key)
    if device.power_cap.state != CapState.NOT_APPLICABLE:
        found.state("mtpd_gpu_power_cap_state", device.power_cap.state, key)
    if device.host is not None:
        _host(found, device.host)


def _field(found: Families, field: FieldView, key: str) -> None:
    if field.name == "throttle" and field.words:
        for bit in Throttle:
            reason = str(bit.name).lower()
            found.say("mtpd_gpu_throttled", key, reason, yes=reason in field.words)
    elif field.name in _FIELDS and field.value is not None:
        name, factor, labels = _FIELDS[field.name]
        found.add(name, field.value * factor, key, *labels)


def _host(found: Families, host: HostView) -> None:
    found.add("mtpd_host_memory_available_bytes", host.available_bytes)
    found.add("mtpd_host_memory_budget_bytes", host.budget_bytes)
    found.add("mtpd_host_oom_kills_total", host.oom_kills.value)
    found.add("mtpd_host_package_energy_joules_total", host.package_energy_j.value)
