"""Whatever stands in the files: never an exception, never a number for what is absent."""

from __future__ import annotations

import errno
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.gpu import cgroup, sysfs_metrics
from mtpd.gpu.amd import AmdProvider
from mtpd.gpu.base import FIELDS
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.nvml import NvmlProvider
from mtpd.gpu.powercap import CapError, apply, judge
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, DeviceKey
from tests.fakes import sysfs
from tests.fakes.bindings import AMD_CALLS, NVML_CALLS, FakeAmdSmi, FakeNvml
from tuner.power import Throttle

if TYPE_CHECKING:
    from mtpd.gpu.base import GpuProvider, GpuReading

CAP = f"{sysfs.hwmon()}/power1_cap"
FIELD_OF = {
    "mem_info_vram_used": "vram_used_bytes",
    "mem_info_gtt_used": "gtt_used_bytes",
    "gpu_busy_percent": "busy_percent",
}
NUMBER = re.compile(rb"\s*-?\d{1,19}\s*")
CODES = (errno.EPERM, errno.EINVAL, errno.EBUSY, errno.ENODEV, errno.EOPNOTSUPP, errno.EIO)

DEVICE_FILES = ("mem_info_vram_used", "mem_info_gtt_used", "gpu_busy_percent", "mem_busy_percent")
SENSOR_FILES = (
    *(f"temp{number}_input" for number in (1, 2, 3)),
    *("power1_input", "power1_cap", "power1_cap_max", "power1_cap_min", "power1_cap_default"),
    *("freq1_input", "freq2_input", "temp1_label", "name"),
)
PATHS = (
    *(f"{sysfs.device()}/{name}" for name in (*DEVICE_FILES, "gpu_metrics", "ras/umc_err_count")),
    *(f"{sysfs.device()}/{name}" for name in ("unique_id", "power/runtime_status", "vendor")),
    *(f"{sysfs.hwmon()}/{name}" for name in SENSOR_FILES),
    f"sys/devices/virtual/kfd/kfd/proc/4242/vram_{sysfs.GPU_ID}",
    "sys/devices/virtual/kfd/kfd/topology/nodes/1/properties",
    "sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id",
    "proc/4242/fdinfo/5",
)

contents = st.one_of(
    st.binary(max_size=120),
    st.integers(-(2**70), 2**70).map(lambda number: f"{number}\n".encode()),
    st.sampled_from(
        [
            b"",
            b"\n",
            b"N/A\n",
            b"65535000\n",
            b"4294967295\n",
            b"-1\n",
            b"1_000\n",
            b"+5\n",
            b"0x10",
        ]
    ),
    st.sampled_from(["٣\n", "1e3\n", "  7  \n", "nan\n", "inf\n", "9" * 5000]).map(str.encode),
)
changes = st.dictionaries(st.sampled_from(PATHS), st.one_of(contents, st.sampled_from(CODES)))
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["power_cap", "clk", "mem", "pid"]), st.integers()),
)


def _check(reading: GpuReading) -> None:
    for name in FIELDS:
        one = getattr(reading, name)
        match one:
            case Value(value):
                assert one.source
                assert isinstance(value, int | float | Throttle)
                assert not isinstance(value, bool)
            case Absent(reason) | NotApplicable(reason):
                assert reason
            case _:
                raise AssertionError(one)
    total, used = reading.vram_total_bytes, reading.vram_used_bytes
    if isinstance(total, Value) and isinstance(used, Value):
        assert 0 <= used.value <= total.value
    for celsius in (reading.edge_c, reading.junction_c, reading.memory_c):
        assert not isinstance(celsius, Value) or -40 <= celsius.value <= 150
    for watts in (reading.power_w, reading.power_cap_w):
        assert not isinstance(watts, Value) or 0 < watts.value <= 2000


def _ask(provider: GpuProvider, key: DeviceKey) -> None:
    provider.devices()
    _check(provider.read(key))
    _check(provider.read(key, slow=False))
    found = provider.processes(key)
    assert isinstance(found, tuple | Absent)
    judge(provider.power_cap(key), wanted_w=150.0)
    provider.close()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> sysfs.Tree:
    return sysfs.build(tmp_path_factory.mktemp("machine"), "serving")


@pytest.fixture(scope="module")
def untouched(tree: sysfs.Tree) -> dict[str, bytes]:
    return {path: (tree.root / path).read_bytes() for path in (*PATHS, CAP)}


@settings(deadline=None, max_examples=80)
@given(changes=changes)
def test_no_content_of_any_file_raises_or_is_taken_for_zero(
    tree: sysfs.Tree, untouched: dict[str, bytes], changes: dict[str, bytes | int]
) -> None:
    tree.heal()
    for path, content in untouched.items():
        change = changes.get(path, content)
        if isinstance(change, int):
            tree.fail(path, change)
        else:
            tree.write(path, change)
    provider = SysfsProvider(files=tree.files())
    reading = provider.read(sysfs.FIRST)
    for path, change in changes.items():
        field = FIELD_OF.get(path.rpartition("/")[2])
        if field and (isinstance(change, int) or not NUMBER.fullmatch(change)):
            assert not isinstance(getattr(reading, field), Value)
    _ask(LayeredProvider((provider, AmdProvider(module=FakeAmdSmi()))), sysfs.FIRST)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_answer_of_amds_library_raises(tree: sysfs.Tree, data: st.DataObject) -> None:
    binding = FakeAmdSmi()
    for call in data.draw(st.sets(st.sampled_from(sorted(AMD_CALLS)))):
        binding.answers[call] = data.draw(anything)
    for name in data.draw(st.sets(st.sampled_from(["used", "edge", "clock", "ecc"]))):
        setattr(binding, name, data.draw(anything))
    binding.broken = data.draw(st.sets(st.sampled_from(sorted(AMD_CALLS))))
    _ask(AmdProvider(module=binding, root=tree.root), sysfs.FIRST)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_answer_of_nvml_raises(data: st.DataObject) -> None:
    binding = FakeNvml()
    for call in data.draw(st.sets(st.sampled_from(sorted(NVML_CALLS)))):
        binding.answers[call] = data.draw(anything)
    binding.used = data.draw(anything)
    _ask(NvmlProvider(module=binding), DeviceKey("0000:3b:00.0"))


@given(data=st.binary(max_size=200))
def test_parsers_take_any_bytes(data: bytes) -> None:
    number = sysfs_metrics.integer(data, 0, 100, where="file")
    assert isinstance(number, Absent) or 0 <= number.value <= 100
    assert isinstance(sysfs_metrics.uncorrectable(data), Value | Absent)
    assert isinstance(sysfs_metrics.throttle(data), Value | Absent)


@given(bits=st.integers(0, 2**32 - 2))
def test_every_throttle_word_has_its_reasons(bits: int) -> None:
    found = sysfs_metrics.throttle(sysfs.gpu_metrics(throttle=bits))
    assert isinstance(found, Value)
    # Bit 0 is none of Vega 20's; it and those above 15 are reasons without a name.
    assert (found.value is Throttle.NONE) == (bits == 0)
    assert (Throttle.POWER in found.value) == bool(bits & sysfs.PPT)


@settings(deadline=None, max_examples=60)
@given(
    status=st.one_of(st.binary(max_size=80), st.just(b"RssAnon:\t12 kB\nRssShmem:\t3 kB\n")),
    group=contents,
    limit=contents,
)
def test_no_file_of_the_host_raises(status: bytes, group: bytes, limit: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = sysfs.no_gpu(Path(folder))
        tree.write("proc/77/status", status)
        tree.write("proc/self/cgroup", b"0::/a/" + group.replace(b"\0", b"") + b"\n")
        tree.write("sys/fs/cgroup/memory.max", limit)
        tree.write("sys/fs/cgroup/memory.current", limit)
        host = HostProvider(Path(folder))
        assert isinstance(host.processes(HOST, pids=(77,)), tuple)
        headroom = cgroup.headroom(Path(folder))
        assert not isinstance(headroom, Value) or headroom.value >= 0
        cgroup.oom_kills(Path(folder))


@settings(deadline=None, max_examples=40)
@given(watts=st.one_of(st.floats(-10, 500), st.integers(-10, 500)))
def test_a_cap_is_set_exactly_or_refused(
    tree: sysfs.Tree, untouched: dict[str, bytes], watts: float
) -> None:
    tree.heal()
    for path, content in untouched.items():
        tree.write(path, content)
    provider = LayeredProvider((SysfsProvider(files=tree.files()),))
    try:
        applied = apply(provider, sysfs.FIRST, watts)
    except CapError:
        assert not 1 <= round(watts) <= 190
        assert tree.read(CAP) == "150000000\n"
    else:
        assert applied.current_w == Value(float(round(watts)), "sysfs")
    provider.close()
