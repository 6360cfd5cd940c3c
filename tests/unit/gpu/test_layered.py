"""Several sources as one: who answers, who is refused, and why."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.gpu.amd import AmdProvider
from mtpd.gpu.base import absent_everywhere
from mtpd.gpu.detect import Refusal, detect
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, MIB, DeviceKey
from tests.fakes import sysfs
from tests.fakes.bindings import FakeAmdSmi, FakeNvml
from tuner.power import Throttle

if TYPE_CHECKING:
    from pathlib import Path


def _layers(tree: sysfs.Tree, binding: FakeAmdSmi) -> LayeredProvider:
    return LayeredProvider(
        (SysfsProvider(files=tree.files()), AmdProvider(module=binding, root=tree.root)),
        refused=(Refusal("nvml", "no driver"),),
    )


def test_files_come_before_the_library(tmp_path: Path) -> None:
    reading = _layers(sysfs.build(tmp_path, "serving"), FakeAmdSmi()).read(sysfs.FIRST)
    assert reading.power_w == Value(149.0, "sysfs")
    assert reading.throttle == Value(Throttle.POWER, "sysfs")


def test_the_library_fills_what_the_files_lack(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    tree.fail(f"{sysfs.hwmon()}/temp1_input", errno.EINVAL)
    tree.write(f"{sysfs.device()}/gpu_metrics", b"")
    reading = _layers(tree, FakeAmdSmi()).read(sysfs.FIRST)
    assert reading.edge_c == Value(71, "amdsmi")
    assert reading.throttle == Value(Throttle.UNSPECIFIED, "amdsmi")
    assert reading.junction_c == Value(86.0, "sysfs")


def test_a_fast_reading_asks_only_who_was_needed(tmp_path: Path) -> None:
    tree, binding = sysfs.build(tmp_path, "serving"), FakeAmdSmi()
    layers = _layers(tree, binding)
    layers.read(sysfs.FIRST)
    binding.asked.clear()
    layers.read(sysfs.FIRST, slow=False)
    assert binding.asked == []
    tree.fail(f"{sysfs.hwmon()}/temp1_input", errno.EINVAL)
    layers.read(sysfs.FIRST)
    assert layers.read(sysfs.FIRST, slow=False).edge_c == Value(71, "amdsmi")


def test_sources_that_contradict_each_other_are_told_once_and_the_first_is_kept(
    tmp_path: Path,
) -> None:
    tree, binding = sysfs.build(tmp_path, "serving"), FakeAmdSmi()
    binding.used = 12_000 * MIB
    layers = _layers(tree, binding)
    with capture_logs() as logs:
        used = [layers.read(sysfs.FIRST).vram_used_bytes for _ in range(3)]
    assert used == [Value(15_404 * MIB, "sysfs")] * 3
    differ = [entry["field"] for entry in logs if entry["event"] == "gpu.sources_differ"]
    assert differ == ["vram_used_bytes"]


@pytest.mark.parametrize("used_mib", [14_000, 15_404, 17_000])
def test_a_tenth_of_difference_is_tolerated(tmp_path: Path, used_mib: int) -> None:
    tree, binding = sysfs.build(tmp_path, "serving"), FakeAmdSmi()
    tree.vram(15_404 * MIB)
    binding.used = min(used_mib * MIB, sysfs.VRAM_TOTAL)
    with capture_logs() as logs:
        _layers(tree, binding).read(sysfs.FIRST)
    assert not [entry for entry in logs if entry["event"] == "gpu.sources_differ"]


def test_clocks_and_load_may_differ_between_two_moments(tmp_path: Path) -> None:
    tree, binding = sysfs.build(tmp_path, "serving"), FakeAmdSmi()
    tree.sensors(busy_percent=3, core_mhz=809)
    with capture_logs() as logs:
        _layers(tree, binding).read(sysfs.FIRST)
    assert not [entry for entry in logs if entry["event"] == "gpu.sources_differ"]


def test_every_field_says_who_answers_and_why_others_do_not(tmp_path: Path) -> None:
    layers = _layers(sysfs.build(tmp_path, "serving"), FakeAmdSmi())
    by_field = {one.field: one for one in layers.explain(sysfs.FIRST)}
    power, energy = by_field["power_w"], by_field["energy_j"]
    assert power.reading == Value(149.0, "sysfs")
    assert power.refused == (
        Refusal("amdsmi", "amdsmi reports the impossible value 0"),
        Refusal("nvml", "no driver"),
    )
    assert energy.reading == Absent("the driver of this card has no energy counter")
    assert [one.provider for one in energy.refused] == ["sysfs", "amdsmi", "nvml"]
    edge = by_field["edge_c"].refused[0]
    assert edge == Refusal("amdsmi", "it says 71; another source comes first")


def test_a_question_that_does_not_arise_is_an_answer(tmp_path: Path) -> None:
    layers = LayeredProvider((HostProvider(), HostProvider()))
    assert layers.read(HOST).edge_c == NotApplicable("there is no GPU")
    assert layers.power_cap(HOST).current_w == NotApplicable("there is no GPU")


def test_without_sources_nothing_is_known() -> None:
    nobody = LayeredProvider(())
    key = DeviceKey("0000:03:00.0")
    assert nobody.read(key) == absent_everywhere("there is no source of readings")
    assert nobody.processes(key) == Absent("there is no source of readings")
    assert nobody.power_cap(key).max_w == Absent("there is no source of readings")


def test_names_come_from_the_library_and_serial_numbers_from_files(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.answers["amdsmi_get_gpu_enumeration_info"] = {"hip_uuid": "GPU-0000000000000000"}
    (device,) = _layers(sysfs.build(tmp_path, "idle"), binding).devices()
    assert device.name == "AMD Radeon Pro VII"
    assert device.uuid == f"GPU-{sysfs.SERIAL}"


def test_each_limit_is_taken_from_who_knows_it(tmp_path: Path) -> None:
    layers = _layers(sysfs.build(tmp_path, "old_kernel"), FakeAmdSmi())
    cap = layers.power_cap(sysfs.FIRST)
    assert cap.current_w == Value(150.0, "sysfs")
    assert cap.min_w == Value(0, "amdsmi")


def test_processes_come_from_the_first_who_can_list_them(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "vulkan_client")
    found = _layers(tree, FakeAmdSmi()).processes(sysfs.FIRST)
    assert not isinstance(found, Absent)
    assert [one.vram_bytes for one in found] == [Value(14_680 * MIB, "fdinfo")]


# --- detection -------------------------------------------------------------------------------


def test_detection_layers_the_library_behind_the_files(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")
    found = detect(root=tmp_path, load_amd=FakeAmdSmi, load_nvml=lambda: Absent("none"))
    assert found.provider.name == "sysfs+amdsmi"
    assert [device.key for device in found.devices] == [sysfs.FIRST, sysfs.SECOND]
    assert found.has_gpu
    assert found.refused == (Refusal("nvml", "the cards of this machine are AMD's"),)


def test_detection_does_without_the_library_and_says_why(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    found = detect(root=tmp_path, load_amd=lambda: Absent("KeyError"), load_nvml=FakeNvml)
    assert found.provider.name == "sysfs"
    assert Refusal("amdsmi", "KeyError") in found.provider.explain(sysfs.FIRST)[0].refused


def test_detection_without_a_card_is_the_host_and_says_why(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "no_gpu")
    found = detect(root=tmp_path, load_amd=FakeAmdSmi, load_nvml=lambda: Absent("no NVIDIA driver"))
    assert found.provider.name == "host"
    assert [device.key for device in found.devices] == [HOST]
    assert not found.has_gpu
    assert [(one.provider, one.reason) for one in found.refused] == [
        ("sysfs", "it sees no device"),
        ("amdsmi", "it sees no device"),
        ("nvml", "no NVIDIA driver"),
    ]


def test_detection_finds_an_nvidia_card(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "no_gpu")
    found = detect(root=tmp_path, load_amd=lambda: Absent("none"), load_nvml=FakeNvml)
    assert (found.provider.name, found.has_gpu) == ("nvml", True)
