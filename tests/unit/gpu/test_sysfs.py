"""AMD cards through files: groups 1 to 9 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.base import FIELDS, NOT_ASKED, GpuReading, PowerCap
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, Value
from mtpd.units import MIB
from tests.fakes import sysfs
from tuner.power import Throttle

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import Reading

ASLEEP = Absent("the card is asleep; reading this sensor would wake it")


def _value(value: float | Throttle) -> Value[object]:
    return Value(value, "sysfs")


IDLE = {
    "vram_total_bytes": _value(sysfs.VRAM_TOTAL),
    "vram_used_bytes": _value(11444224),
    "gtt_total_bytes": _value(sysfs.GTT_TOTAL),
    "gtt_used_bytes": _value(14680064),
    "edge_c": _value(38.0),
    "junction_c": _value(40.0),
    "memory_c": _value(39.0),
    "power_w": _value(21.0),
    "power_cap_w": _value(150.0),
    "energy_j": Absent("the driver of this card has no energy counter"),
    "busy_percent": _value(0.0),
    "memory_busy_percent": _value(0.0),
    "core_mhz": _value(809.0),
    "memory_mhz": _value(350.0),
    "throttle": _value(Throttle.NONE),
    "ecc_uncorrectable": _value(0),
}


def _fields(reading: GpuReading) -> dict[str, object]:
    return {name: getattr(reading, name) for name in FIELDS}


def _read(folder: Path, scenario: str, *, slow: bool = True) -> GpuReading:
    tree = sysfs.build(folder, scenario)
    return SysfsProvider(files=tree.files()).read(sysfs.FIRST, slow=slow)


# --- group 1: discovery ----------------------------------------------------------------------


def test_other_vendors_connectors_and_sensors_are_passed_over(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")
    devices = SysfsProvider(root=tmp_path).devices()
    assert [device.key for device in devices] == [sysfs.FIRST, sysfs.SECOND]


def test_a_card_is_known_by_serial_instruction_set_and_driver(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    (device,) = SysfsProvider(root=tmp_path).devices()
    assert device.junction_limit_c == 105.0
    assert (device.uuid, device.isa, device.driver) == (f"GPU-{sysfs.SERIAL}", "gfx906", "6.16.13")


def test_a_card_of_the_vendor_without_the_driver_is_passed_over(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.remove(f"{sysfs.device()}/mem_info_vram_total")
    assert SysfsProvider(root=tmp_path).devices() == ()


def test_two_cards_have_readings_of_their_own(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")
    provider = SysfsProvider(root=tmp_path)
    assert provider.read(sysfs.FIRST).edge_c == _value(38.0)
    assert provider.read(sysfs.SECOND).edge_c == _value(41.0)


def test_sensors_are_found_under_another_number(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path)
    assert _fields(provider.read(sysfs.FIRST)) == IDLE
    tree.renumber()
    assert _fields(provider.read(sysfs.FIRST)) == IDLE


def test_a_card_without_kfd_is_read_all_the_same(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    (tmp_path / "sys/class/kfd/kfd").unlink()
    provider = SysfsProvider(root=tmp_path)
    assert provider.devices()[0].isa is None
    assert _fields(provider.read(sysfs.FIRST)) == IDLE


# --- groups 2 and 3: units, and power under both names ---------------------------------------


@pytest.mark.parametrize("scenario", ["idle", "old_kernel"])
def test_every_field_is_read_in_its_unit(tmp_path: Path, scenario: str) -> None:
    assert _fields(_read(tmp_path, scenario)) == IDLE


def test_the_old_name_of_power_counts_where_the_new_one_fails(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write(f"{sysfs.hwmon()}/power1_average", "33000000\n")
    provider = SysfsProvider(files=tree.files())
    assert provider.read(sysfs.FIRST).power_w == _value(21.0)
    tree.fail(f"{sysfs.hwmon()}/power1_input", errno.EOPNOTSUPP)
    assert provider.read(sysfs.FIRST).power_w == _value(33.0)


@pytest.mark.parametrize(
    ("scenario", "name"), [("idle", "power1_input"), ("old_kernel", "power1_average")]
)
def test_a_running_card_that_draws_nothing_is_not_believed(
    tmp_path: Path, scenario: str, name: str
) -> None:
    tree = sysfs.build(tmp_path, scenario)
    tree.write(f"{sysfs.hwmon()}/{name}", "0\n")
    assert isinstance(SysfsProvider(root=tmp_path).read(sysfs.FIRST).power_w, Absent)


def test_memory_that_spilled_into_the_host_is_shown(tmp_path: Path) -> None:
    reading = _read(tmp_path, "spilled")
    assert reading.gtt_used_bytes == _value(3_000 * MIB)
    assert reading.vram_used_bytes == _value(15_404 * MIB)


def test_errors_of_the_memory_are_counted(tmp_path: Path) -> None:
    assert _read(tmp_path, "ecc_error").ecc_uncorrectable == _value(1)


# --- groups 4 and 5: impossible values, and errors by file -----------------------------------


def test_what_is_malformed_is_absent_with_a_reason_and_the_rest_is_there(tmp_path: Path) -> None:
    reading = _read(tmp_path, "malformed")
    assert _fields(reading) == {
        "vram_total_bytes": _value(sysfs.VRAM_TOTAL),
        "vram_used_bytes": Absent("mem_info_vram_used holds ''"),
        "gtt_total_bytes": _value(sysfs.GTT_TOTAL),
        "gtt_used_bytes": Absent("mem_info_gtt_used holds the impossible value -1"),
        "edge_c": Absent("edge holds the impossible value 65535000"),
        "junction_c": Absent("junction: EINVAL"),
        "memory_c": Absent("memory holds 'N/A'"),
        "power_w": Absent("sysfs reports the impossible value 4294.97"),
        "power_cap_w": Absent("power1_cap holds ''"),
        "energy_j": Absent("the driver of this card has no energy counter"),
        "busy_percent": Absent("gpu_busy_percent holds the impossible value 137"),
        "memory_busy_percent": Absent("mem_busy_percent: ENOTSUP"),
        "core_mhz": Absent("freq1_input: EBUSY"),
        "memory_mhz": Absent("freq2_input: ENODEV"),
        "throttle": Absent("gpu_metrics ends after 3 bytes"),
        "ecc_uncorrectable": Absent("umc_err_count holds 'Query currently inaccessible'"),
    }


def test_more_used_than_there_is_is_impossible(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.vram(sysfs.VRAM_TOTAL + 1)
    assert isinstance(SysfsProvider(root=tmp_path).read(sysfs.FIRST).vram_used_bytes, Absent)


def test_spaces_around_a_number_do_no_harm(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write(f"{sysfs.device()}/mem_info_vram_used", "  11444224 \n")
    assert SysfsProvider(root=tmp_path).read(sysfs.FIRST).vram_used_bytes == _value(11444224)


@pytest.mark.parametrize(
    "code", [errno.EPERM, errno.EINVAL, errno.EBUSY, errno.EOPNOTSUPP, errno.ENODEV, errno.EIO]
)
@pytest.mark.parametrize(
    ("path", "field"),
    [
        (f"{sysfs.device()}/mem_info_gtt_used", "gtt_used_bytes"),
        (f"{sysfs.hwmon()}/temp1_input", "edge_c"),
        (f"{sysfs.hwmon()}/power1_input", "power_w"),
        (f"{sysfs.hwmon()}/power1_cap", "power_cap_w"),
        (f"{sysfs.device()}/gpu_metrics", "throttle"),
        (f"{sysfs.device()}/ras/umc_err_count", "ecc_uncorrectable"),
    ],
)
def test_a_file_that_fails_costs_its_field_and_no_other(
    tmp_path: Path, path: str, field: str, code: int
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.fail(path, code)
    found = _fields(SysfsProvider(files=tree.files()).read(sysfs.FIRST))
    failed = found.pop(field)
    assert isinstance(failed, Absent)
    assert errno.errorcode[code] in failed.reason
    assert found == {name: value for name, value in IDLE.items() if name != field}


# --- group 6: a card that goes, and comes back -----------------------------------------------


def test_a_card_that_vanishes_is_gone_and_read_again_when_it_is_back(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path)
    assert provider.read(sysfs.FIRST).edge_c == _value(38.0)
    tree.vanish()
    why = Absent(f"the device {sysfs.FIRST} is gone")
    assert set(_fields(provider.read(sysfs.FIRST)).values()) == {why}
    assert provider.processes(sysfs.FIRST) == why
    sysfs.card(tree, number=4, edge_c=51)
    assert provider.read(sysfs.FIRST).edge_c == _value(51.0)


def test_a_kept_file_is_opened_anew_after_a_reset(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    files = tree.files()
    provider = SysfsProvider(files=files)
    assert provider.read(sysfs.FIRST).edge_c == _value(38.0)
    sysfs.reset(tree)
    assert provider.read(sysfs.FIRST).edge_c == Absent("edge: EPERM")
    tree.heal()
    tree.sensors(edge_c=47)
    assert provider.read(sysfs.FIRST).edge_c == _value(47.0)


def test_a_file_that_was_replaced_is_read_under_its_name(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path)
    provider.read(sysfs.FIRST)
    path = tmp_path / sysfs.device() / "mem_info_vram_used"
    path.with_name("new").write_text("123\n")
    path.with_name("new").rename(path)
    assert provider.read(sysfs.FIRST).vram_used_bytes == _value(123)


@pytest.mark.parametrize(
    ("file", "field"),
    [
        ("power1_cap", "power_cap_w"),
        ("power1_input", "power_w"),
        ("temp1_input", "edge_c"),
        ("temp2_label", "junction_c"),
        ("../../gpu_busy_percent", "busy_percent"),
        ("../../mem_info_vram_used", "vram_used_bytes"),
        ("../../mem_info_vram_total", "vram_total_bytes"),
    ],
)
def test_a_file_that_was_missed_once_is_read_when_it_is_back(
    tmp_path: Path, file: str, field: str
) -> None:
    sysfs.build(tmp_path, "idle")
    provider = SysfsProvider(root=tmp_path)
    before = getattr(provider.read(sysfs.FIRST), field)
    assert isinstance(before, Value)
    path = tmp_path / sysfs.hwmon() / file
    said = path.read_bytes()
    path.unlink()
    (tmp_path / sysfs.device() / "gpu_metrics").unlink()  # makes it look the card up anew
    for _ in range(2):
        assert isinstance(getattr(provider.read(sysfs.FIRST), field), Absent)
    path.write_bytes(said)
    assert getattr(provider.read(sysfs.FIRST), field) == before


def test_what_a_card_lacks_for_good_costs_no_search_at_each_reading(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    (tmp_path / sysfs.hwmon() / "power1_average").unlink(missing_ok=True)
    files = tree.files()
    provider = SysfsProvider(files=files)
    provider.read(sysfs.FIRST)
    files.reads.clear()
    provider.read(sysfs.FIRST)
    assert not [path for path in files.reads if path.endswith("/vendor")]


def test_sensors_that_appear_later_are_found(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    kept = tmp_path / "kept"
    shutil.move(tmp_path / sysfs.hwmon(), kept)
    provider = SysfsProvider(root=tmp_path)
    assert isinstance(provider.read(sysfs.FIRST).edge_c, Absent)
    shutil.move(kept, tmp_path / sysfs.hwmon())
    assert provider.read(sysfs.FIRST).edge_c == _value(38.0)
    tree.vram(7)
    assert provider.read(sysfs.FIRST).vram_used_bytes == _value(7)


# --- group 7: a sleeping card ----------------------------------------------------------------


@pytest.mark.parametrize("status", ["suspended", "suspending", "resuming"])
def test_a_sleeping_card_is_not_woken(tmp_path: Path, status: str) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write(f"{sysfs.device()}/power/runtime_status", f"{status}\n")
    files = tree.files()
    provider = SysfsProvider(files=files)
    reading = _fields(provider.read(sysfs.FIRST))
    memory = {"vram_total_bytes", "vram_used_bytes", "gtt_total_bytes", "gtt_used_bytes"}
    assert {name: reading[name] for name in memory} == {name: IDLE[name] for name in memory}
    assert {reading[name] for name in FIELDS if name not in memory} == {ASLEEP}
    assert provider.power_cap(sysfs.FIRST).current_w == ASLEEP
    waking = ("_input", "_average", "power1_cap", "busy_percent", "gpu_metrics", "umc_err_count")
    assert not [path for path in files.reads if path.endswith(waking)]


# --- group 8: gpu_metrics --------------------------------------------------------------------


def _throttle(folder: Path, data: bytes) -> Reading[Throttle]:
    tree = sysfs.build(folder, "idle")
    tree.write(f"{sysfs.device()}/gpu_metrics", data)
    return SysfsProvider(root=folder).read(sysfs.FIRST).throttle


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, Throttle.NONE),
        (sysfs.PPT, Throttle.POWER),
        (sysfs.PPT | sysfs.HOTSPOT, Throttle.POWER | Throttle.THERMAL),
        (1 << 11, Throttle.CURRENT),
        (1 << 15, Throttle.FIRMWARE),
        (1 << 20, Throttle.UNSPECIFIED),
        *((1 << bit, Throttle.THERMAL) for bit in range(1, 11)),
    ],
)
def test_power_and_heat_are_told_apart(tmp_path: Path, bits: int, reasons: Throttle) -> None:
    assert _throttle(tmp_path, sysfs.gpu_metrics(throttle=bits)) == _value(reasons)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x50\x00\x01",
        sysfs.gpu_metrics()[:79],
        sysfs.gpu_metrics(version=(1, 3)),
        sysfs.gpu_metrics(throttle=0xFFFFFFFF),
        b"\x60" + sysfs.gpu_metrics()[1:],
    ],
)
def test_metrics_of_another_layout_say_nothing(tmp_path: Path, data: bytes) -> None:
    assert isinstance(_throttle(tmp_path, data), Absent)


def test_a_fast_reading_does_not_touch_the_costly_files(tmp_path: Path) -> None:
    files = sysfs.build(tmp_path, "serving").files()
    reading = SysfsProvider(files=files).read(sysfs.FIRST, slow=False)
    assert reading.throttle == reading.ecc_uncorrectable == NOT_ASKED
    assert not [path for path in files.reads if path.endswith(("gpu_metrics", "umc_err_count"))]


# --- group 9: the clock where the table of levels says nothing --------------------------------


def test_the_clock_needs_no_starred_level(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    for text in ("0: 809Mhz \n1: 1000Mhz \n", "0: 1343Mhz * (DPM disabled)\n"):
        tree.write(f"{sysfs.device()}/pp_dpm_sclk", text)
        assert SysfsProvider(root=tmp_path).read(sysfs.FIRST).core_mhz == _value(809.0)


# --- group 11, the reading side: limits ------------------------------------------------------


def test_the_limits_are_read_in_watts(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    assert SysfsProvider(root=tmp_path).power_cap(sysfs.FIRST) == PowerCap(
        current_w=Value(150.0, "sysfs"),
        default_w=Value(190.0, "sysfs"),
        min_w=Value(0.0, "sysfs"),
        max_w=Value(190.0, "sysfs"),
        supported=True,
    )


def test_an_empty_minimum_of_older_kernels_is_absent(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "old_kernel")
    cap = SysfsProvider(root=tmp_path).power_cap(sysfs.FIRST)
    assert cap.min_w == Absent("power1_cap_min holds ''")
    assert cap.current_w == Value(150.0, "sysfs")
