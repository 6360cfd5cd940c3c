"""The host: group 19 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu import cgroup
from mtpd.gpu.host import HostMemory, HostProvider
from mtpd.gpu.rapl import PackageEnergy
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, MIB

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import ProcessMemory

NO_LIMIT = NotApplicable("no control group limits the memory")


class Machine:
    """The files of a machine's control groups and energy counters."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def group(self, path: str, *, most: str, used: int, high: str = "max", idle: int = 0) -> None:
        folder = f"sys/fs/cgroup/{path}"
        self.write(f"{folder}/memory.max", f"{most}\n")
        self.write(f"{folder}/memory.high", f"{high}\n")
        self.write(f"{folder}/memory.current", f"{used}\n")
        self.write(f"{folder}/memory.stat", f"anon 5\ninactive_file {idle}\nactive_file 9\n")

    def package(self, number: int, *, name: str, count_uj: int, most_uj: int = 999_999) -> None:
        folder = f"sys/class/powercap/intel-rapl:{number}"
        self.write(f"{folder}/name", f"{name}\n")
        self.write(f"{folder}/energy_uj", f"{count_uj}\n")
        self.write(f"{folder}/max_energy_range_uj", f"{most_uj}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.write("proc/self/cgroup", "0::/system.slice/mtpd.service\n")
    return made


# --- control groups, version 2 ---------------------------------------------------------------


def test_a_limit_leaves_what_is_not_used_and_what_can_be_dropped(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="1000", used=700, idle=200)
    assert cgroup.headroom(machine.root) == Value(500, "cgroup")


def test_the_tightest_ancestor_decides(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="max", used=100)
    machine.group("system.slice", most="1000", high="800", used=700)
    machine.group("", most="5000", used=900)
    assert cgroup.headroom(machine.root) == Value(100, "cgroup")


def test_no_limit_is_not_no_memory(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="max", used=100)
    assert cgroup.headroom(machine.root) == NO_LIMIT


def test_more_used_than_allowed_leaves_nothing(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="1000", used=1200)
    assert cgroup.headroom(machine.root) == Value(0, "cgroup")


@pytest.mark.parametrize("text", ["", "lots", "-5"])
def test_a_limit_or_use_that_makes_no_sense_is_absent(machine: Machine, text: str) -> None:
    machine.group("system.slice/mtpd.service", most=text, used=1)
    assert isinstance(cgroup.headroom(machine.root), Absent)
    machine.group("system.slice/mtpd.service", most="1000", used=1)
    machine.write("sys/fs/cgroup/system.slice/mtpd.service/memory.current", text)
    assert isinstance(cgroup.headroom(machine.root), Absent)


def test_a_limit_that_cannot_be_read_is_absent(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="1000", used=1)
    path = machine.root / "sys/fs/cgroup/system.slice/mtpd.service/memory.max"
    path.unlink()
    path.mkdir()
    assert isinstance(cgroup.headroom(machine.root), Absent)


def test_a_use_that_cannot_be_read_is_absent_and_nothing_droppable_is_none(
    machine: Machine,
) -> None:
    machine.group("system.slice/mtpd.service", most="1000", used=700)
    folder = machine.root / "sys/fs/cgroup/system.slice/mtpd.service"
    (folder / "memory.stat").unlink()
    assert cgroup.headroom(machine.root) == Value(300, "cgroup")
    (folder / "memory.current").unlink()
    assert isinstance(cgroup.headroom(machine.root), Absent)


def test_killings_for_memory_are_counted(machine: Machine) -> None:
    machine.group("system.slice/mtpd.service", most="max", used=1)
    events = "sys/fs/cgroup/system.slice/mtpd.service/memory.events"
    machine.write(events, "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert cgroup.oom_kills(machine.root) == Value(2, "cgroup")


# --- control groups, version 1, and none -----------------------------------------------------


def test_version_1_is_read_beside_an_empty_version_2(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("proc/self/cgroup", "7:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    folder = "sys/fs/cgroup/memory/docker/abc"
    machine.write(f"{folder}/memory.limit_in_bytes", "2000\n")
    machine.write(f"{folder}/memory.usage_in_bytes", "1500\n")
    machine.write(f"{folder}/memory.stat", "cache 9\ntotal_inactive_file 100\n")
    machine.write(f"{folder}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert cgroup.headroom(tmp_path) == Value(600, "cgroup")
    assert cgroup.oom_kills(tmp_path) == Value(1, "cgroup")


def test_a_machine_without_control_groups_has_no_known_limit(tmp_path: Path) -> None:
    assert cgroup.headroom(tmp_path) == NO_LIMIT
    assert isinstance(cgroup.oom_kills(tmp_path), Absent)


def test_this_machine_can_be_asked() -> None:
    memory = HostProvider().memory()
    assert 0 < memory.available_bytes <= memory.total_bytes
    assert 0 <= memory.budget_bytes <= memory.available_bytes


def test_the_budget_is_what_is_there_and_allowed() -> None:
    memory = HostMemory(
        total_bytes=100, available_bytes=60, cgroup_bytes=Value(40, "cgroup"), oom_kills=NO_LIMIT
    )
    assert memory.budget_bytes == 40
    unlimited = HostMemory(
        total_bytes=100, available_bytes=60, cgroup_bytes=NO_LIMIT, oom_kills=NO_LIMIT
    )
    assert unlimited.budget_bytes == 60


# --- processes -------------------------------------------------------------------------------


def _listed(host: HostProvider, pid: int) -> tuple[ProcessMemory, ...]:
    found = host.processes(HOST, pids=(pid,))
    assert not isinstance(found, Absent)
    return found


def test_a_mapped_file_is_not_memory_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x" * (24 * MIB))

    def own() -> int:
        (found,) = _listed(HostProvider(), os.getpid())
        assert isinstance(found.vram_bytes, Value)
        assert found.vram_bytes.source == "rss"
        return found.vram_bytes.value

    before = own()
    with (tmp_path / "model").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert sum(mapped[at] for at in range(0, 24 * MIB, 4096)) > 0
        assert own() - before < 8 * MIB
        mapped.close()
    taken = b"y" * (96 * MIB)
    assert own() - before > 64 * MIB
    assert len(taken) == 96 * MIB


def test_a_process_that_is_gone_or_just_ended_has_no_memory(tmp_path: Path) -> None:
    host = HostProvider(tmp_path)
    assert _listed(host, 5) == ()
    Machine(tmp_path).write("proc/6/status", "Name:\tllama-server\nState:\tZ (zombie)\n")
    found = _listed(host, 6)
    assert [(one.name, one.vram_bytes) for one in found] == [
        ("llama-server", Absent("status holds no RssAnon"))
    ]
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/7/status").mkdir()
    (unreadable,) = _listed(host, 7)
    assert unreadable.vram_bytes == Absent("EISDIR")


def test_nothing_of_the_host_is_gated() -> None:
    reading = HostProvider().read(HOST)
    assert reading.edge_c == reading.power_cap_w == NotApplicable("there is no GPU")


# --- energy of the processor -----------------------------------------------------------------


def test_packages_are_added_and_their_parts_are_not(machine: Machine) -> None:
    machine.package(0, name="package-0", count_uj=100)
    machine.package(1, name="package-1", count_uj=100)
    machine.write("sys/class/powercap/intel-rapl:0:0/name", "core\n")
    machine.package(2, name="psys", count_uj=100)
    machine.write("sys/class/powercap/intel-rapl:3/energy_uj", "5")  # without a name
    energy = PackageEnergy(machine.root)
    assert energy.read() == Value(0.0, "cpu_package")
    machine.package(0, name="package-0", count_uj=500_100)
    machine.package(1, name="package-1", count_uj=250_100)
    machine.package(2, name="psys", count_uj=900_000)
    assert energy.read() == Value(0.75, "cpu_package")


def test_a_counter_that_wraps_goes_on(machine: Machine) -> None:
    machine.package(0, name="package-0", count_uj=900_000)
    energy = PackageEnergy(machine.root)
    energy.read()
    machine.package(0, name="package-0", count_uj=100_000)
    assert energy.read() == Value(0.2, "cpu_package")


@pytest.mark.parametrize("name", ["energy_uj", "max_energy_range_uj"])
def test_a_counter_that_cannot_be_read_is_absent_and_recovers(machine: Machine, name: str) -> None:
    machine.package(0, name="package-0", count_uj=100)
    energy = PackageEnergy(machine.root)
    assert energy.read() == Value(0.0, "cpu_package")
    path = machine.root / "sys/class/powercap/intel-rapl:0" / name
    path.write_text("nonsense")
    assert isinstance(energy.read(), Absent)
    path.unlink()
    assert energy.read() == Absent(f"{name}: ENOENT")
    machine.package(0, name="package-0", count_uj=500_100)
    assert energy.read() == Value(0.5, "cpu_package")


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    assert isinstance(PackageEnergy(tmp_path).read(), Absent)
