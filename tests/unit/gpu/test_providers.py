"""Every source of readings keeps the same contract; each knows its own traps."""

from __future__ import annotations

import errno
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.gpu import amd, nvml
from mtpd.gpu.amd import AmdProvider
from mtpd.gpu.base import GpuReading
from mtpd.gpu.detect import detect
from mtpd.gpu.host import HostProvider
from mtpd.gpu.nvml import NvmlProvider
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, MIB, DeviceKey
from tests.fakes import sysfs
from tests.fakes.bindings import FakeAmdSmi, FakeNvml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtpd.gpu.base import GpuProvider

GONE = DeviceKey("0000:ff:00.0")


class ProviderContract:
    """What control and the gates rely on, whichever source answers."""

    @pytest.fixture
    def provider(self, tmp_path: Path) -> GpuProvider:
        raise NotImplementedError

    def test_keys_are_unique_and_sorted(self, provider: GpuProvider) -> None:
        keys = [device.key for device in provider.devices()]
        assert keys == sorted(set(keys))

    def test_every_field_is_a_value_with_its_source_or_says_why_not(
        self, provider: GpuProvider
    ) -> None:
        for device in provider.devices():
            reading = provider.read(device.key)
            for field in fields(GpuReading):
                value = getattr(reading, field.name)
                if isinstance(value, Value):
                    assert value.source == provider.name
                else:
                    assert isinstance(value, Absent | NotApplicable)
                    assert value.reason

    def test_used_never_exceeds_total(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            reading = provider.read(device.key)
            total, used = reading.vram_total_bytes, reading.vram_used_bytes
            if isinstance(total, Value) and isinstance(used, Value):
                assert 0 <= used.value <= total.value

    def test_a_device_that_is_gone_is_absent_and_not_zero(self, provider: GpuProvider) -> None:
        reading = provider.read(GONE)
        for field in fields(GpuReading):
            assert getattr(reading, field.name) == Absent(f"the device {GONE} is gone")


class TestHost(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> GpuProvider:
        return HostProvider()

    def test_nothing_of_the_host_is_gated(self) -> None:
        reading = HostProvider().read(HOST)
        assert all(
            getattr(reading, field.name) == NotApplicable("there is no GPU")
            for field in fields(reading)
        )

    def test_memory_is_what_the_kernel_says(self) -> None:
        host = HostProvider()
        assert 0 < host.memory().available_bytes <= host.memory().total_bytes
        own = host.resident_bytes(psutil.Process().pid)
        assert isinstance(own, Value)
        assert own.value > MIB
        assert host.resident_bytes(2**22 + 1) == Absent("process 4194305: NoSuchProcess")


class TestThisMachine(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> GpuProvider:
        return detect().provider


@pytest.mark.parametrize("scenario", sysfs.SCENARIOS)
class TestSysfs(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path, scenario: str) -> GpuProvider:
        tree = sysfs.build(tmp_path, scenario)
        return SysfsProvider(root=tmp_path, read=tree.read)


class TestAmdSmi(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> GpuProvider:
        sysfs.build(tmp_path, "idle")
        return AmdProvider(module=FakeAmdSmi(), root=tmp_path)


class TestNvml(ProviderContract):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> GpuProvider:
        return NvmlProvider(module=FakeNvml())


def _read(folder: Path, scenario: str) -> GpuReading:
    tree = sysfs.build(folder, scenario)
    return SysfsProvider(root=folder, read=tree.read).read(sysfs.FIRST)


IDLE = GpuReading(
    vram_total_bytes=Value(sysfs.VRAM_TOTAL, "sysfs"),
    vram_used_bytes=Value(11444224, "sysfs"),
    gtt_used_bytes=Value(14680064, "sysfs"),
    edge_c=Value(38.0, "sysfs"),
    junction_c=Value(40.0, "sysfs"),
    power_w=Value(21.0, "sysfs"),
    power_cap_w=Value(150.0, "sysfs"),
)


@pytest.mark.parametrize("scenario", ["idle", "new_kernel"])
def test_sysfs_reads_every_field_in_its_unit(tmp_path: Path, scenario: str) -> None:
    assert _read(tmp_path, scenario) == IDLE


def test_sysfs_shows_what_spilled_into_host_memory(tmp_path: Path) -> None:
    reading = _read(tmp_path, "spilled")
    assert reading.gtt_used_bytes == Value(3_000 * MIB, "sysfs")
    assert reading.vram_used_bytes == Value(15_404 * MIB, "sysfs")


def test_sysfs_passes_over_other_vendors_and_connectors(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")
    devices = SysfsProvider(root=tmp_path).devices()
    assert [device.key for device in devices] == [sysfs.FIRST, sysfs.SECOND]


def test_sysfs_finds_a_card_under_another_number_after_it_came_back(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path)
    link = tmp_path / "sys/class/drm/card1"
    link.rename(link.with_name("card5"))
    assert provider.read(sysfs.FIRST) == IDLE
    link.with_name("card5").unlink()
    assert provider.devices() == ()


def test_sysfs_never_takes_what_is_malformed_for_a_number(tmp_path: Path) -> None:
    assert _read(tmp_path, "malformed") == GpuReading(
        vram_total_bytes=Value(sysfs.VRAM_TOTAL, "sysfs"),
        vram_used_bytes=Absent("mem_info_vram_used holds ''"),
        gtt_used_bytes=Absent("mem_info_gtt_used holds the impossible value -1"),
        edge_c=Absent("temp1_input holds the impossible value 65535000"),
        junction_c=Absent("temp2_input holds 'N/A'"),
        power_w=Absent("sysfs reports the impossible value 4294.97"),
        power_cap_w=Absent("power1_cap holds ''"),
    )


def test_sysfs_does_not_wake_a_sleeping_card(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "suspended")
    touched: list[str] = []

    def read(path: Path) -> str:
        touched.append(path.name)
        return tree.read(path)

    reading = SysfsProvider(root=tmp_path, read=read).read(sysfs.FIRST)
    asleep = Absent("the card is asleep; reading this sensor would wake it")
    assert reading == replace(
        IDLE, edge_c=asleep, junction_c=asleep, power_w=asleep, power_cap_w=asleep
    )
    assert not [name for name in touched if name.startswith(("temp", "power1"))]


def test_sysfs_names_the_error_of_each_file(tmp_path: Path) -> None:
    reading = _read(tmp_path, "in_reset")
    assert reading.vram_used_bytes == IDLE.vram_used_bytes
    assert reading.edge_c == Absent("temp1_input: EPERM")
    assert reading.power_cap_w == Absent("power1_cap: EPERM")


@pytest.mark.parametrize(
    "code", [errno.EPERM, errno.EINVAL, errno.EBUSY, errno.EOPNOTSUPP, errno.ENODEV]
)
def test_sysfs_survives_any_error_of_any_file(tmp_path: Path, code: int) -> None:
    tree = sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path, read=tree.read)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and not path.is_symlink():
            tree.fail(str(path.relative_to(tmp_path)), code)
            provider.read(sysfs.FIRST)
    assert provider.devices() == ()


@given(text=st.text(max_size=20))
def test_sysfs_gives_a_possible_temperature_or_none(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    tree = sysfs.build(folder, "idle")

    def read(path: Path) -> str:
        return text if path.name == "temp1_input" else tree.read(path)

    edge = SysfsProvider(root=folder, read=read).read(sysfs.FIRST).edge_c
    assert isinstance(edge, Absent) or (isinstance(edge, Value) and -40 <= edge.value <= 150)


def _amd(folder: Path, binding: FakeAmdSmi) -> GpuReading:
    sysfs.build(folder, "idle")
    return AmdProvider(module=binding, root=folder).read(sysfs.FIRST)


def test_amdsmi_gives_what_the_library_really_knows(tmp_path: Path) -> None:
    reading = _amd(tmp_path, FakeAmdSmi())
    assert reading == GpuReading(
        vram_total_bytes=Value(sysfs.VRAM_TOTAL, "amdsmi"),
        vram_used_bytes=Value(15_404 * MIB, "amdsmi"),
        gtt_used_bytes=Value(14680064, "amdsmi"),
        edge_c=Value(71, "amdsmi"),
        junction_c=Value(86, "amdsmi"),
        power_w=Absent("amdsmi reports the impossible value 0"),
        power_cap_w=Value(150.0, "amdsmi"),
    )


def test_amdsmi_takes_a_cap_in_watts_as_older_releases_give_it(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.cap = 150
    assert _amd(tmp_path, binding).power_cap_w == Value(150, "amdsmi")


@pytest.mark.parametrize("edge", ["N/A", 65535, None, 4294967295])
def test_amdsmi_takes_no_placeholder_for_a_temperature(tmp_path: Path, edge: object) -> None:
    binding = FakeAmdSmi()
    binding.edge = edge
    assert isinstance(_amd(tmp_path, binding).edge_c, Absent)


def test_amdsmi_takes_no_zero_for_used_memory(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.used = 0
    assert isinstance(_amd(tmp_path, binding).vram_used_bytes, Absent)


def test_amdsmi_failing_in_one_call_leaves_the_other_fields(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.broken = {"amdsmi_get_temp_metric"}
    reading = _amd(tmp_path, binding)
    assert reading.edge_c == Absent("amdsmi: AmdSmiError: amdsmi_get_temp_metric")
    assert reading.power_cap_w == Value(150.0, "amdsmi")


@pytest.mark.parametrize("address", ["7fd52f33:48:08.0", "0000:44:00.0", ""])
def test_amdsmi_believes_no_address_that_is_not_there(tmp_path: Path, address: str) -> None:
    sysfs.build(tmp_path, "idle")
    assert AmdProvider(module=FakeAmdSmi(address), root=tmp_path).devices() == ()


@pytest.mark.parametrize("error", [KeyError, AttributeError, OSError, ImportError])
def test_amdsmi_that_cannot_be_imported_is_a_reason_and_prints_nothing(
    error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    def binding() -> object:
        print("Unable to find libamd_smi.so library")  # noqa: T201 - as the binding does
        raise error("libamd_smi.so")

    loaded = amd.load(binding=binding)
    assert isinstance(loaded, Absent)
    assert "libamd_smi.so" in loaded.reason
    assert "install" in loaded.reason
    assert capsys.readouterr().out == ""


def test_amdsmi_that_cannot_be_initialised_is_a_reason() -> None:
    binding = FakeAmdSmi()
    binding.broken = {"amdsmi_init"}
    assert isinstance(amd.load(binding=lambda: binding), Absent)


def test_nvml_reads_every_field_in_its_unit() -> None:
    key = DeviceKey("0000:3b:00.0")
    provider = NvmlProvider(module=FakeNvml())
    assert [(one.key, one.name) for one in provider.devices()] == [(key, "NVIDIA H200")]
    reading = provider.read(key)
    assert reading.vram_used_bytes == Value(9_370_000_000, "nvml")
    assert (reading.edge_c, reading.power_w, reading.power_cap_w) == (
        Value(34, "nvml"),
        Value(89.0, "nvml"),
        Value(700.0, "nvml"),
    )


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("nvmlDeviceGetMemoryInfo", {"vram_total_bytes", "vram_used_bytes"}),
        ("nvmlDeviceGetTemperature", {"edge_c"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetPowerManagementLimit", {"power_cap_w"}),
    ],
)
def test_nvml_failing_in_one_call_leaves_the_other_fields(call: str, lost: set[str]) -> None:
    binding = FakeNvml()
    binding.broken = {call}
    reading = NvmlProvider(module=binding).read(DeviceKey("0000:3b:00.0"))
    absent = {
        field.name for field in fields(reading) if isinstance(getattr(reading, field.name), Absent)
    }
    assert absent == lost


def test_nvml_that_sees_no_card_any_more_has_no_devices() -> None:
    binding = FakeNvml()
    binding.broken = {"nvmlDeviceGetCount"}
    assert NvmlProvider(module=binding).devices() == ()


def _missing() -> object:
    raise ImportError("No module named 'pynvml'")


def _without_driver() -> object:
    binding = FakeNvml()
    binding.broken = {"nvmlInit"}
    return binding


@pytest.mark.parametrize("binding", [_missing, _without_driver])
def test_nvml_that_cannot_be_loaded_is_a_reason_with_advice(
    binding: Callable[[], object],
) -> None:
    loaded = nvml.load(binding=binding)
    assert isinstance(loaded, Absent)
    assert "mtpd[nvidia]" in loaded.reason


def test_detection_prefers_sysfs_and_loads_no_library(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")

    def never() -> object:
        raise AssertionError

    found = detect(root=tmp_path, load_amd=never, load_nvml=never)
    assert found.provider.name == "sysfs"
    assert [device.key for device in found.devices] == [sysfs.FIRST, sysfs.SECOND]
    assert found.has_gpu
    assert found.refused == ()


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
