"""AMD's library: groups 16 and 17 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu import amd
from mtpd.gpu.amd import AmdProvider
from mtpd.gpu.base import FIELDS, NOT_ASKED, GpuReading, PowerCap
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import MIB
from tests.fakes import sysfs
from tests.fakes.bindings import AMD_CALLS, FakeAmdSmi
from tuner.power import Throttle

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import Reading


def _read(folder: Path, binding: FakeAmdSmi, *, slow: bool = True) -> GpuReading:
    sysfs.build(folder, "idle")
    return AmdProvider(module=binding, root=folder).read(sysfs.FIRST, slow=slow)


def _value(value: float | Throttle) -> Value[object]:
    return Value(value, "amdsmi")


# --- group 16: the import --------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError, AttributeError, OSError, ImportError, ValueError])
def test_a_binding_that_cannot_be_imported_is_a_reason_and_prints_nothing(
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


def test_a_binding_without_its_driver_is_a_reason() -> None:
    binding = FakeAmdSmi()
    binding.broken = {"amdsmi_init"}
    assert isinstance(amd.load(binding=lambda: binding), Absent)


def test_a_binding_that_fails_at_its_first_call_is_a_reason() -> None:
    class Late(FakeAmdSmi):
        def amdsmi_init(self) -> None:
            raise OSError("AMD SMI shared library could not be loaded")

    assert isinstance(amd.load(binding=Late), Absent)


def test_the_installed_binding_is_asked_for_real(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = amd.load(), amd.load()
    # Without a library it fails alike every time, and silently.
    assert not isinstance(first, Absent) or "amdsmi" in first.reason
    assert type(first) is type(second)
    assert capsys.readouterr().out == ""


def test_the_binding_beside_rocm_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "amdsmi"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from tests.fakes.bindings import AmdSmiError as AmdSmiException\n"
        "where = __file__\n"
        "def amdsmi_init(): pass\n"
    )
    monkeypatch.setattr(amd, "FOLDERS", (tmp_path / "none", tmp_path))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    loaded = amd.load()
    assert not isinstance(loaded, Absent)
    assert loaded.where == str(package / "__init__.py")
    monkeypatch.delitem(sys.modules, "amdsmi")


def test_a_binding_that_breaks_while_it_is_imported_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "amdsmi"
    package.mkdir()
    (package / "__init__.py").write_text("raise KeyError('libamd_smi.so')\n")
    monkeypatch.setattr(amd, "FOLDERS", (tmp_path,))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    assert isinstance(amd.load(), Absent)
    assert "amdsmi" not in sys.modules


# --- group 17: the values --------------------------------------------------------------------


def test_what_the_library_really_knows_of_a_gfx906(tmp_path: Path) -> None:
    reading = _read(tmp_path, FakeAmdSmi())
    assert {name: getattr(reading, name) for name in FIELDS} == {
        "vram_total_bytes": _value(sysfs.VRAM_TOTAL),
        "vram_used_bytes": _value(15_404 * MIB),
        "gtt_total_bytes": _value(sysfs.GTT_TOTAL),
        "gtt_used_bytes": _value(14680064),
        "edge_c": _value(71),
        "junction_c": _value(86),
        "memory_c": _value(74),
        "power_w": Absent("amdsmi reports the impossible value 0"),
        "power_cap_w": _value(150.0),
        "energy_j": Absent("amdsmi answers '4294967295'"),
        "busy_percent": _value(99),
        "memory_busy_percent": _value(63),
        "core_mhz": _value(1343),
        "memory_mhz": _value(1000),
        "throttle": _value(Throttle.UNSPECIFIED),
        "ecc_uncorrectable": _value(0),
    }


def test_the_identity_of_a_card(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    (device,) = AmdProvider(module=FakeAmdSmi(), root=tmp_path).devices()
    assert (device.name, device.isa) == ("AMD Radeon Pro VII", "gfx906")
    assert (device.uuid, device.driver) == ("GPU-2172c0de5eed0906", "6.16.13")


@pytest.mark.parametrize("edge", ["N/A", 65535, None, 4294967295, True])
def test_no_placeholder_is_taken_for_a_temperature(tmp_path: Path, edge: object) -> None:
    binding = FakeAmdSmi()
    binding.edge = edge
    assert isinstance(_read(tmp_path, binding).edge_c, Absent)


def test_no_zero_is_taken_for_used_memory(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.used = 0
    assert isinstance(_read(tmp_path, binding).vram_used_bytes, Absent)


@pytest.mark.parametrize(
    ("said", "watts"),
    [
        ({"socket_power": 0, "current_socket_power": 148, "average_socket_power": 0}, 148),
        ({"socket_power": 147}, 147),
        ({"average_socket_power": 146, "current_socket_power": "N/A"}, 146),
        ({"socket_power": 4294967295}, None),
        ({}, None),
        ("nonsense", None),
    ],
)
def test_power_is_taken_from_any_release_but_never_as_zero(
    tmp_path: Path, said: object, watts: float | None
) -> None:
    binding = FakeAmdSmi()
    binding.answers["amdsmi_get_power_info"] = said
    found = _read(tmp_path, binding).power_w
    assert found == _value(watts) if watts else isinstance(found, Absent)


@pytest.mark.parametrize("name", ["energy_accumulator", "power"])
def test_a_real_energy_counter_is_read_in_joules(tmp_path: Path, name: str) -> None:
    binding = FakeAmdSmi()
    binding.answers["amdsmi_get_energy_count"] = {name: 1_000_000, "counter_resolution": 15.3}
    assert _read(tmp_path, binding).energy_j == _value(15.3)


@pytest.mark.parametrize(
    ("said", "watts"),
    [
        (150, 150.0),
        (150_000_000, 150.0),
        (2000, 2000.0),
        (2001, None),
        (10_001, None),
        (2_000_000_001, None),
        (0, None),
        ("N/A", None),
        (None, None),
    ],
)
def test_a_cap_is_watts_or_microwatts_by_release(
    tmp_path: Path, said: object, watts: float | None
) -> None:
    sysfs.build(tmp_path, "idle")
    binding = FakeAmdSmi()
    binding.answers["amdsmi_get_power_cap_info"] = {"power_cap": said, "max_power_cap": 190}
    cap = AmdProvider(module=binding, root=tmp_path).power_cap(sysfs.FIRST)
    assert cap.current_w == _value(watts) if watts else isinstance(cap.current_w, Absent)
    assert cap.max_w == _value(190)
    assert isinstance(cap.min_w, Absent)


def test_the_limits_of_the_card(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    assert AmdProvider(module=FakeAmdSmi(), root=tmp_path).power_cap(sysfs.FIRST) == PowerCap(
        current_w=Value(150.0, "amdsmi"),
        default_w=Value(190.0, "amdsmi"),
        min_w=Value(0, "amdsmi"),
        max_w=Value(190.0, "amdsmi"),
    )


def test_the_clock_of_releases_before_6_2(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.clock = {"cur_clk": 1200}
    assert _read(tmp_path, binding).core_mhz == _value(1200)


@pytest.mark.parametrize("call", sorted(AMD_CALLS))
def test_a_release_without_a_call_leaves_the_rest(tmp_path: Path, call: str) -> None:
    binding = FakeAmdSmi()
    del binding.answers[call]  # as a KeyError from deep inside the binding
    reading = _read(tmp_path, binding)
    assert reading.vram_total_bytes == _value(sysfs.VRAM_TOTAL)
    assert reading.edge_c == _value(71)


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("amdsmi_get_temp_metric", {"edge_c", "junction_c", "memory_c"}),
        ("amdsmi_get_clock_info", {"core_mhz", "memory_mhz"}),
        ("amdsmi_get_gpu_memory_total", {"vram_total_bytes", "gtt_total_bytes"}),
        ("amdsmi_get_gpu_ecc_count", {"ecc_uncorrectable"}),
        ("amdsmi_get_gpu_metrics_info", {"throttle"}),
        ("amdsmi_get_gpu_activity", {"busy_percent", "memory_busy_percent"}),
        ("amdsmi_get_power_cap_info", {"power_cap_w"}),
    ],
)
def test_failing_in_one_call_leaves_the_other_fields(
    tmp_path: Path, call: str, lost: set[str]
) -> None:
    binding = FakeAmdSmi()
    whole = _read(tmp_path, binding)
    binding.broken = {call}
    reading = AmdProvider(module=binding, root=tmp_path).read(sysfs.FIRST)
    changed = {name for name in FIELDS if getattr(reading, name) != getattr(whole, name)}
    assert changed == lost
    assert all(isinstance(getattr(reading, name), Absent) for name in lost)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (False, _value(Throttle.NONE)),
        (True, _value(Throttle.UNSPECIFIED)),
        ("N/A", Absent("amdsmi answers 'N/A'")),
    ],
)
def test_throttling_has_no_reason_here(
    tmp_path: Path, said: object, found: Reading[Throttle]
) -> None:
    binding = FakeAmdSmi()
    binding.answers["amdsmi_get_gpu_metrics_info"] = {"throttle_status": said}
    assert _read(tmp_path, binding).throttle == found


def test_a_fast_reading_leaves_the_costly_calls_out(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    assert _read(tmp_path, binding, slow=False).throttle == NOT_ASKED
    assert not {"amdsmi_get_gpu_metrics_info", "amdsmi_get_gpu_ecc_count"} & set(binding.asked)


@pytest.mark.parametrize("address", ["7fd52f33:48:08.0", "0000:44:00.0", "", "../etc"])
def test_no_address_is_believed_that_is_not_there(tmp_path: Path, address: str) -> None:
    sysfs.build(tmp_path, "idle")
    assert AmdProvider(module=FakeAmdSmi(address), root=tmp_path).devices() == ()


def test_a_library_that_lists_nothing_has_no_devices(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    binding = FakeAmdSmi()
    binding.broken = {"amdsmi_get_processor_handles"}
    assert AmdProvider(module=binding, root=tmp_path).devices() == ()


def test_a_sleeping_card_is_not_asked(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "suspended")
    binding = FakeAmdSmi()
    reading = AmdProvider(module=binding, root=tmp_path).read(sysfs.FIRST)
    assert all(isinstance(getattr(reading, name), Absent) for name in FIELDS)
    assert set(binding.asked) == {"amdsmi_get_processor_handles"}


def test_processes_are_counted_by_kfds_number(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    binding = FakeAmdSmi()
    provider = AmdProvider(module=binding, root=tmp_path)
    assert provider.processes(sysfs.FIRST) == (
        ProcessMemory(
            pid=4242,
            name="llama-server",
            vram_bytes=Value(14_680 * MIB, "amdsmi"),
            evicted_ms=Value(0, "amdsmi"),
        ),
    )
    binding.answers["amdsmi_get_gpu_process_list"] = [{"pid": 7, "mem": "N/A"}, "junk", {}]
    found = provider.processes(sysfs.FIRST)
    assert not isinstance(found, Absent)
    assert [type(one.vram_bytes) for one in found] == [Absent]
    binding.broken = {"amdsmi_get_gpu_process_list"}
    assert isinstance(provider.processes(sysfs.FIRST), Absent)


def test_closing_twice_does_no_harm(tmp_path: Path) -> None:
    binding = FakeAmdSmi()
    binding.broken = {"amdsmi_shut_down"}
    provider = AmdProvider(module=binding, root=tmp_path)
    provider.close()
    provider.close()
