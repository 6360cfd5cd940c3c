"""NVIDIA cards: the units of NVML, and what it does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu import nvml
from mtpd.gpu.base import FIELDS, PowerCap
from mtpd.gpu.nvml import NvmlProvider
from mtpd.types import Absent, NotApplicable, ProcessMemory, Value
from mtpd.units import DeviceKey
from tests.fakes.bindings import FakeNvml
from tuner.power import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = DeviceKey("0000:3b:00.0")


def _value(value: float | Throttle) -> Value[object]:
    return Value(value, "nvml")


def _listed(found: tuple[ProcessMemory, ...] | Absent) -> tuple[ProcessMemory, ...]:
    assert not isinstance(found, Absent)
    return found


def test_every_field_is_read_in_its_unit() -> None:
    reading = NvmlProvider(module=FakeNvml()).read(KEY)
    assert {name: getattr(reading, name) for name in FIELDS} == {
        "vram_total_bytes": _value(150_754_820_096 - 676_331_520),
        "vram_used_bytes": _value(9_370_000_000),
        "gtt_total_bytes": NotApplicable("NVIDIA cards have no GTT"),
        "gtt_used_bytes": NotApplicable("NVIDIA cards have no GTT"),
        "edge_c": _value(34),
        "junction_c": NotApplicable("NVML has no junction sensor"),
        "memory_c": _value(43),
        "power_w": _value(89.0),
        "power_cap_w": _value(700.0),
        "energy_j": _value(5000.0),
        "busy_percent": _value(97),
        "memory_busy_percent": _value(61),
        "core_mhz": _value(1980),
        "memory_mhz": _value(1980),
        "throttle": _value(Throttle.POWER),
        "ecc_uncorrectable": _value(0),
    }


def test_the_identity_of_a_card() -> None:
    (device,) = NvmlProvider(module=FakeNvml()).devices()
    assert (device.key, device.name, device.driver) == (KEY, "NVIDIA H200", "580.159.04")
    assert device.uuid == "GPU-7a3b1c2d-0000-1111-2222-333344445555"


def test_the_limits_of_the_card() -> None:
    assert NvmlProvider(module=FakeNvml()).power_cap(KEY) == PowerCap(
        current_w=Value(700.0, "nvml"),
        default_w=Value(700.0, "nvml"),
        min_w=Value(200.0, "nvml"),
        max_w=Value(700.0, "nvml"),
    )


@pytest.mark.parametrize(("milliwatts", "watts"), [(2_000_000, 2000.0), (2_000_001, None)])
def test_no_card_may_draw_more_than_two_kilowatts(milliwatts: int, watts: float | None) -> None:
    binding = FakeNvml()
    binding.answers["nvmlDeviceGetPowerManagementLimit"] = milliwatts
    found = NvmlProvider(module=binding).read(KEY).power_cap_w
    assert found == _value(watts) if watts else isinstance(found, Absent)


def test_an_idle_card_may_use_nothing() -> None:
    binding = FakeNvml()
    binding.used = 0
    assert NvmlProvider(module=binding).read(KEY).vram_used_bytes == _value(0)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x0, Throttle.NONE),
        (0x1, Throttle.NONE),
        (0x4, Throttle.POWER),
        (0x8, Throttle.FIRMWARE),
        (0x20, Throttle.THERMAL),
        (0x44, Throttle.POWER | Throttle.THERMAL),
        (0x80, Throttle.POWER),
    ],
)
def test_power_and_heat_are_told_apart(bits: int, reasons: Throttle) -> None:
    binding = FakeNvml()
    binding.answers["nvmlDeviceGetCurrentClocksEventReasons"] = bits
    assert NvmlProvider(module=binding).read(KEY).throttle == _value(reasons)


def test_older_bindings_call_the_reasons_by_another_name() -> None:
    binding = FakeNvml()
    older = SimpleNamespace(
        NVMLError=binding.NVMLError,
        nvmlMemory_v2=2,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: f"handle-{index}",
        nvmlDeviceGetPciInfo=binding.nvmlDeviceGetPciInfo,
    )
    assert isinstance(NvmlProvider(module=older).read(KEY).throttle, Absent)
    older.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _handle: 0x40
    assert NvmlProvider(module=older).read(KEY).throttle == _value(Throttle.THERMAL)


def test_a_memory_sensor_that_is_not_there_is_absent() -> None:
    binding = FakeNvml()
    field = SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(uiVal=0))
    binding.answers["nvmlDeviceGetFieldValues"] = [field]
    assert NvmlProvider(module=binding).read(KEY).memory_c == Absent("NVML answers 'error 3'")


def test_processes_of_both_kinds_are_listed_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242/comm").write_text("llama-server\n")
    binding = FakeNvml()
    provider = NvmlProvider(module=binding, proc=tmp_path)
    assert provider.processes(KEY) == (
        ProcessMemory(pid=4242, name="llama-server", vram_bytes=Value(9_500_000_000, "nvml")),
        ProcessMemory(pid=4343, name=None, vram_bytes=Absent("NVML answers 'None'")),
    )
    (listed,) = _listed(provider.processes(KEY, pids=(4343,)))
    assert listed.pid == 4343
    binding.broken = {"nvmlDeviceGetGraphicsRunningProcesses"}
    found = provider.processes(KEY)
    assert not isinstance(found, Absent)
    assert [one.pid for one in found] == [4242]
    binding.broken = {"nvmlDeviceGetComputeRunningProcesses"}
    assert isinstance(provider.processes(KEY), Absent)


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("nvmlDeviceGetMemoryInfo", {"vram_total_bytes", "vram_used_bytes"}),
        ("nvmlDeviceGetTemperature", {"edge_c"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetPowerManagementLimit", {"power_cap_w"}),
        ("nvmlDeviceGetTotalEnergyConsumption", {"energy_j"}),
        ("nvmlDeviceGetUtilizationRates", {"busy_percent", "memory_busy_percent"}),
        ("nvmlDeviceGetFieldValues", {"memory_c"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_uncorrectable"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle"}),
    ],
)
def test_failing_in_one_call_leaves_the_other_fields(call: str, lost: set[str]) -> None:
    binding = FakeNvml()
    binding.broken = {call}
    reading = NvmlProvider(module=binding).read(KEY)
    absent = {name for name in FIELDS if isinstance(getattr(reading, name), Absent)}
    assert absent == lost


def test_no_text_is_taken_for_a_number() -> None:
    binding = FakeNvml()
    binding.answers["nvmlDeviceGetPowerUsage"] = "N/A"
    binding.answers["nvmlDeviceGetTemperature"] = True
    reading = NvmlProvider(module=binding).read(KEY)
    assert isinstance(reading.power_w, Absent)
    assert isinstance(reading.edge_c, Absent)


def test_a_card_that_falls_off_the_bus_is_looked_for_again() -> None:
    binding = FakeNvml()
    provider = NvmlProvider(module=binding)
    assert provider.read(KEY).edge_c == _value(34)
    binding.broken = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCount"}
    assert isinstance(provider.read(KEY).vram_total_bytes, Absent)
    assert provider.read(KEY).edge_c == Absent(f"the device {KEY} is gone")
    binding.broken = set()
    assert provider.read(KEY).edge_c == _value(34)


def test_a_machine_without_cards_any_more_has_no_devices() -> None:
    binding = FakeNvml()
    binding.broken = {"nvmlDeviceGetCount"}
    assert NvmlProvider(module=binding).devices() == ()


def test_a_name_that_cannot_be_read_is_none() -> None:
    binding = FakeNvml()
    binding.broken = {"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion"}
    (device,) = NvmlProvider(module=binding).devices()
    assert (device.name, device.uuid, device.driver) == (None, None, None)


def _missing() -> object:
    raise ImportError("No module named 'pynvml'")


def _without_driver() -> object:
    binding = FakeNvml()
    binding.broken = {"nvmlInit"}
    return binding


@pytest.mark.parametrize("binding", [_missing, _without_driver])
def test_a_binding_that_cannot_be_loaded_is_a_reason_with_advice(
    binding: Callable[[], object],
) -> None:
    loaded = nvml.load(binding=binding)
    assert isinstance(loaded, Absent)
    assert "mtpd[nvidia]" in loaded.reason


def test_closing_never_fails() -> None:
    binding = FakeNvml()
    binding.broken = {"nvmlShutdown"}
    NvmlProvider(module=binding).close()
