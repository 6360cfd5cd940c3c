"""A device, watched: as the API, Prometheus and a calibration see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.config.load import load
from mtpd.control.telemetry import Telemetry
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider, Refusal
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.units import MIB
from mtpd.views import encode
from tests.fakes import sysfs
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.gpu.views import DeviceView

HARDWARE = load(None, overrides={"budget.hardware": "gfx906-16g-150w"}).hardware


@pytest.fixture
def watch() -> Iterator[Callable[[sysfs.Tree | None], Telemetry]]:
    made: list[Telemetry] = []

    def start(tree: sysfs.Tree | None) -> Telemetry:
        if tree is None:
            provider = LayeredProvider((HostProvider(),))
        else:
            refused = (Refusal("amdsmi", "it cannot be imported"),)
            provider = LayeredProvider((SysfsProvider(files=tree.files()),), refused=refused)
        made.append(
            Telemetry(
                card=Card(device=provider.devices()[0], power_cap_w=None, provider=provider),
                hardware=HARDWARE,
                clock=FakeClock(),
                publish=lambda _event: None,
                serving=lambda: True,
                machine=Path("/") if tree is None else tree.root,
            )
        )
        return made[-1]

    yield start
    for one in made:
        one.close()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _shown(telemetry: Telemetry) -> DeviceView:
    (device,) = await telemetry.devices()
    encode(device)  # every part has a place in JSON
    return device


async def test_a_card_is_shown_with_sources_cap_and_holders(
    tmp_path: Path, watch: Callable[[sysfs.Tree | None], Telemetry]
) -> None:
    telemetry = watch(sysfs.build(tmp_path, "throttle_thermal"))
    await telemetry.sampler.fresh()
    device = await _shown(telemetry)
    assert (device.device, device.isa, device.state) == (sysfs.FIRST, "gfx906", "answering")
    fields = {one.name: one for one in device.fields}
    used, throttle, energy = (fields[name] for name in ("vram_used_bytes", "throttle", "energy_j"))
    assert (used.value, used.unit, used.source) == (15_404 * MIB, "bytes", "sysfs")
    assert [(one.source, one.reason) for one in used.refused] == [
        ("amdsmi", "it cannot be imported")
    ]
    assert (throttle.words, throttle.value) == (("power", "thermal"), None)
    assert (energy.value, energy.reason) == (
        None,
        "the driver of this card has no energy counter",
    )
    assert (device.power_cap.state, device.power_cap.wanted_w) == ("declared", 150.0)
    (holder,) = device.processes
    assert (holder.pid, holder.vram.value, holder.vram.source) == (4242, 14_680 * MIB, "kfd")


async def test_the_machine_around_a_card_is_shown(
    tmp_path: Path, watch: Callable[[sysfs.Tree | None], Telemetry]
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write("sys/fs/cgroup/memory.max", "2000\n")
    tree.write("sys/fs/cgroup/memory.current", "500\n")
    tree.write("sys/class/powercap/intel-rapl:0/name", "package-0\n")
    tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "7\n")
    tree.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "100\n")
    host = (await _shown(watch(tree))).host
    assert host is not None
    assert 0 < host.available_bytes <= host.total_bytes
    assert host.budget_bytes == host.cgroup_bytes.value == 1500
    assert (host.package_energy_j.value, host.package_energy_j.source) == (0.0, "cpu_package")
    assert host.oom_kills.reason == "no control group counts them"


async def test_a_card_that_is_gone_has_reasons_and_no_numbers(
    tmp_path: Path, watch: Callable[[sysfs.Tree | None], Telemetry]
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    telemetry = watch(tree)
    tree.vanish()
    await telemetry.sampler.fresh()
    device = await _shown(telemetry)
    assert device.state == "gone"
    assert {one.value for one in device.fields} == {None}
    assert device.processes_reason == f"the device {sysfs.FIRST} is gone"
    assert device.power_cap.state == "unknown"


async def test_at_the_end_nothing_stays_open(
    tmp_path: Path, watch: Callable[[sysfs.Tree | None], Telemetry]
) -> None:
    before = _open_files()
    telemetry = watch(sysfs.build(tmp_path, "idle"))
    await telemetry.sampler.fresh()
    assert _open_files() > before
    telemetry.close()
    assert _open_files() <= before


async def test_the_host_is_shown_as_without_a_card(
    watch: Callable[[sysfs.Tree | None], Telemetry],
) -> None:
    device = await _shown(watch(None))
    assert (device.device, device.power_cap.state) == ("host", "not_applicable")
    assert {one.reason for one in device.fields} == {"there is no GPU"}
