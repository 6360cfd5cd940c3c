"""The gauges of a device: in base units; absent ones have no series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.load import load
from mtpd.control.telemetry import Telemetry
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Value
from mtpd.units import MIB
from tests.fakes import sysfs
from tests.fakes.clock import FakeClock
from tests.unit.metrics.held import metrics, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

HARDWARE = load(None, overrides={"budget.hardware": "gfx906-16g-150w"}).hardware


async def shown(
    tree: sysfs.Tree | None, *, read: bool = True, **changes: Any
) -> Mapping[tuple[str, str], float]:
    """The samples of the device by name and the value of its last label, or ""."""
    provider = LayeredProvider(
        (HostProvider() if tree is None else SysfsProvider(files=tree.files()),)
    )
    telemetry = Telemetry(
        card=Card(device=provider.devices()[0], power_cap_w=None, provider=provider),
        hardware=HARDWARE,
        clock=FakeClock(),
        publish=lambda _event: None,
        serving=lambda: True,
        machine=Path("/") if tree is None else tree.root,
    )
    try:
        if read:
            await telemetry.sampler.fresh()
        found = metrics(snapshot(devices=await telemetry.devices(), **changes))
    finally:
        telemetry.close()
    return {
        (sample.name, next(reversed([v for k, v in sample.labels.items() if k != "device"]), "")): (
            sample.value
        )
        for family in found.registry.collect()
        for sample in family.samples
        if sample.name.startswith(("mtpd_gpu_", "mtpd_host_"))
    }


async def test_gauges_are_in_base_units(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "throttle_thermal")
    found = await shown(
        tree,
        energy_j={sysfs.FIRST: Value(12.5, "integrated")},
        budget_bytes={sysfs.FIRST: 15_000 * MIB},
    )
    assert found["mtpd_gpu_vram_total_bytes", ""] == sysfs.VRAM_TOTAL
    assert found["mtpd_gpu_vram_used_bytes", ""] == 15_404 * MIB
    assert found["mtpd_gpu_vram_budget_bytes", ""] == 15_000 * MIB
    assert found["mtpd_gpu_gtt_total_bytes", ""] == sysfs.GTT_TOTAL
    assert found["mtpd_gpu_temperature_celsius", "edge"] == 71
    assert found["mtpd_gpu_temperature_celsius", "junction"] == 86
    assert found["mtpd_gpu_busy_ratio", ""] == pytest.approx(0.99)
    assert found["mtpd_gpu_clock_hertz", "core"] == 1343e6
    assert found["mtpd_gpu_throttled", "thermal"] == 1
    assert found["mtpd_gpu_throttled", "current"] == 0
    assert found["mtpd_gpu_state", "answering"] == 1
    assert found["mtpd_gpu_state", "gone"] == 0
    assert found["mtpd_gpu_power_cap_declared_watts", ""] == 150
    assert found["mtpd_gpu_power_cap_state", "declared"] == 1
    assert found["mtpd_gpu_power_cap_state", "wrong"] == 0
    assert found["mtpd_gpu_energy_joules_total", ""] == 12.5
    assert [one for (name, _), one in found.items() if name == "mtpd_gpu_info"] == [1]


async def test_a_lost_cap_is_wrong(tmp_path: Path) -> None:
    found = await shown(sysfs.build(tmp_path, "cap_lost"))
    assert found["mtpd_gpu_power_cap_watts", ""] == 190
    assert found["mtpd_gpu_power_cap_state", "wrong"] == 1


async def test_a_malformed_card_has_fewer_gauges_and_no_zeros(tmp_path: Path) -> None:
    found = await shown(sysfs.build(tmp_path, "malformed"))
    assert {name for name, _ in found if name.startswith("mtpd_gpu_")} == {
        "mtpd_gpu_info",
        "mtpd_gpu_state",
        "mtpd_gpu_vram_total_bytes",
        "mtpd_gpu_gtt_total_bytes",
        "mtpd_gpu_power_cap_declared_watts",
        "mtpd_gpu_power_cap_state",
    }
    assert found["mtpd_gpu_power_cap_state", "unknown"] == 1


async def test_without_a_card_there_is_no_gauge_of_one() -> None:
    found = await shown(None)
    assert {name for name, _ in found if name.startswith("mtpd_gpu_")} == {
        "mtpd_gpu_info",
        "mtpd_gpu_state",
        "mtpd_gpu_power_cap_declared_watts",
    }
    assert found["mtpd_host_memory_available_bytes", ""] > 0


async def test_joules_of_the_processor_are_the_hosts(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write("sys/class/powercap/intel-rapl:0/name", "package-0\n")
    tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "7\n")
    tree.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "100\n")
    found = await shown(tree)
    assert found["mtpd_host_package_energy_joules_total", ""] == 0
    assert ("mtpd_host_oom_kills_total", "") not in found
