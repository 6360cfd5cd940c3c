"""Every source of readings keeps one contract: what gates, sampler and verdicts rely on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.amd import AmdProvider
from mtpd.gpu.base import FIELDS, SLOW_FIELDS, GpuReading, PowerCap
from mtpd.gpu.detect import detect
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.nvml import NvmlProvider
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import DeviceKey
from tests.fakes import sysfs
from tests.fakes.bindings import FakeAmdSmi, FakeNvml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.gpu.base import GpuProvider

GONE = DeviceKey("0000:ff:00.0")
CAPS = ("current_w", "default_w", "min_w", "max_w")


def _values(reading: GpuReading) -> Iterator[object]:
    return (getattr(reading, name) for name in FIELDS)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class ProviderContract:
    """What the rest of the daemon relies on, whichever source answers."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> GpuProvider:
        raise NotImplementedError

    @pytest.fixture
    def provider(self, made: GpuProvider) -> Iterator[GpuProvider]:
        with closing(made):
            yield made

    def test_it_fulfils_the_protocol(self, provider: GpuProvider) -> None:
        assert provider.name

    def test_keys_are_unique_sorted_and_addresses(self, provider: GpuProvider) -> None:
        keys = [device.key for device in provider.devices()]
        assert keys == sorted(set(keys))
        assert all(key == key.lower() for key in keys)

    @pytest.mark.parametrize("slow", [True, False])
    def test_every_field_is_a_value_with_its_source_or_says_why_not(
        self, provider: GpuProvider, *, slow: bool
    ) -> None:
        for device in provider.devices():
            for value in _values(provider.read(device.key, slow=slow)):
                if isinstance(value, Value):
                    assert value.source in provider.name.split("+")
                else:
                    assert isinstance(value, Absent | NotApplicable)
                    assert value.reason

    def test_a_fast_reading_leaves_out_the_slow_fields_only(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            full, fast = provider.read(device.key), provider.read(device.key, slow=False)
            for name in FIELDS:
                if name in SLOW_FIELDS:
                    assert not isinstance(getattr(fast, name), Value)
                elif name not in {"power_w", "busy_percent", "core_mhz", "energy_j"}:
                    assert type(getattr(fast, name)) is type(getattr(full, name))

    def test_used_never_exceeds_total(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            reading = provider.read(device.key)
            total, used = reading.vram_total_bytes, reading.vram_used_bytes
            if isinstance(total, Value) and isinstance(used, Value):
                assert 0 <= used.value <= total.value

    def test_a_device_that_is_gone_is_absent_and_not_zero(self, provider: GpuProvider) -> None:
        why = Absent(f"the device {GONE} is gone")
        assert all(value == why for value in _values(provider.read(GONE)))
        assert provider.processes(GONE) == why
        assert all(getattr(provider.power_cap(GONE), name) == why for name in CAPS)

    def test_limits_are_ordered_where_they_are_known(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            cap = provider.power_cap(device.key)
            assert isinstance(cap, PowerCap)
            least, now, most = (
                reading.value if isinstance(reading, Value) else None
                for reading in (cap.min_w, cap.current_w, cap.max_w)
            )
            assert (least or 0.0) <= (now or least or 0.0) <= (most or float("inf"))

    def test_processes_are_listed_once_by_pid(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            found = provider.processes(device.key)
            assert not isinstance(found, Absent)
            pids = [one.pid for one in found]
            assert pids == sorted(set(pids))
            for one in found:
                for value in (one.vram_bytes, one.gtt_bytes, one.evicted_bytes, one.evicted_ms):
                    assert not isinstance(value, Value) or value.value >= 0

    def test_only_the_processes_asked_for_are_listed(self, provider: GpuProvider) -> None:
        for device in provider.devices():
            none = provider.processes(device.key, pids=())
            assert none == ()

    def test_it_answers_again_after_it_was_closed(self, provider: GpuProvider) -> None:
        before = [device.key for device in provider.devices()]
        provider.close()
        assert [device.key for device in provider.devices()] == before

    def test_a_reading_after_it_was_closed_raises_nothing(self, provider: GpuProvider) -> None:
        keys = [device.key for device in provider.devices()]
        provider.close()
        for key in keys:
            for value in _values(provider.read(key)):
                assert isinstance(value, Value | Absent | NotApplicable)

    def test_no_descriptor_stays_open(self, provider: GpuProvider) -> None:
        before = _open_files()
        for _ in range(3):
            for device in provider.devices():
                provider.read(device.key)
                provider.processes(device.key)
        provider.close()
        assert _open_files() <= before


class TestHost(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path) -> GpuProvider:
        return HostProvider()


class TestThisMachine(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path) -> GpuProvider:
        return detect().provider


@pytest.mark.parametrize("scenario", sysfs.SCENARIOS)
class TestSysfs(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path, scenario: str) -> GpuProvider:
        return SysfsProvider(files=sysfs.build(tmp_path, scenario).files())


class TestAmdSmi(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path) -> GpuProvider:
        sysfs.build(tmp_path, "idle")
        return AmdProvider(module=FakeAmdSmi(), root=tmp_path)


class TestNvml(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path) -> GpuProvider:
        return NvmlProvider(module=FakeNvml())


@pytest.mark.parametrize("scenario", sysfs.SCENARIOS)
class TestLayered(ProviderContract):
    @pytest.fixture
    def made(self, tmp_path: Path, scenario: str) -> GpuProvider:
        tree = sysfs.build(tmp_path, scenario)
        return LayeredProvider(
            (
                SysfsProvider(files=tree.files()),
                AmdProvider(module=FakeAmdSmi(), root=tmp_path),
            )
        )
