"""What engines hold of the machine's memory, measured when they are loaded and when asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.host import HostMemory
from mtpd.supervise.host_keeper import HostKeeper
from mtpd.supervise.needs import Needs
from mtpd.types import Absent, NotApplicable, OpaqueStart, ProcessMemory
from mtpd.units import MIB, EngineId
from tests.fakes.supervision import plan_of
from tests.fakes.telemetry import holding

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from mtpd.types import LaunchPlan

ENGINE = EngineId("e1")
PID, CHILD = 4711, 4712
MEMORY = HostMemory(
    total_bytes=8_000 * MIB,
    available_bytes=4_000 * MIB,
    cgroup_bytes=NotApplicable("no limit"),
    oom_kills=Absent("not counted"),
)


class Machine:
    """Processes and what each holds of its own; None where that cannot be read."""

    def __init__(self) -> None:
        self.needs = Needs()
        self.mib: dict[int, int | None] = {PID: 100}
        self.hidden = False
        self.kept = HostKeeper(
            self.needs, memory=lambda: MEMORY, processes=self.processes, pids=self.pids
        )

    def pids(self, engine_id: EngineId) -> tuple[int, ...]:
        return tuple(self.mib) if engine_id == ENGINE else ()

    def processes(self, pids: Collection[int]) -> tuple[ProcessMemory, ...] | Absent:
        if self.hidden:
            return Absent("a test")
        return tuple(self.process(pid) for pid in pids)

    def process(self, pid: int) -> ProcessMemory:
        mib = self.mib[pid]
        if mib is None:
            return ProcessMemory(pid=pid, name=None, vram_bytes=Absent("it has just ended"))
        return holding(pid, mib)


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    return plan_of("llama-server", path=tmp_path / "e.sock")


async def test_all_processes_of_an_engine_count_once_it_is_loaded(plan: LaunchPlan) -> None:
    machine = Machine()
    machine.mib[CHILD] = 20
    assert await machine.kept.admit(ENGINE, plan) is None
    assert machine.kept.took(ENGINE) is None, "it is not loaded yet"
    assert machine.kept.held("tiny") is None
    assert await machine.kept.look(ENGINE, PID) is None, "there is no card to see"
    assert machine.kept.took(ENGINE) == machine.kept.held("tiny") == 120 * MIB
    assert machine.needs.of("f", plan.arm) == 120 * MIB
    assert machine.needs.of("g", plan.arm) is None
    await machine.kept.released(ENGINE, PID, None, reset=False)
    assert machine.kept.took(ENGINE) is machine.kept.held("tiny") is None
    assert machine.needs.of("f", plan.arm) == 120 * MIB, "the next start takes as much"


async def test_what_is_used_later_counts_when_memory_is_counted_next(plan: LaunchPlan) -> None:
    machine = Machine()
    await machine.kept.admit(ENGINE, plan)
    machine.mib[PID] = 400
    assert await machine.kept.memory_now() == MEMORY
    assert machine.kept.held("tiny") is None, "what a load takes meanwhile is not all of it"
    machine.mib[PID] = 100
    await machine.kept.look(ENGINE, PID)
    machine.mib[PID] = 150
    await machine.kept.memory_now()
    assert machine.kept.held("tiny") == machine.needs.of("f", plan.arm) == 150 * MIB
    machine.mib[PID] = 130
    await machine.kept.memory_now()
    assert machine.kept.held("tiny") == 130 * MIB
    assert machine.needs.of("f", plan.arm) == 150 * MIB, "at most"


@pytest.mark.parametrize("mib", [{PID: None}, {PID: 100, CHILD: None}, {}])
async def test_what_cannot_be_read_is_not_known(
    plan: LaunchPlan, mib: dict[int, int | None]
) -> None:
    machine = Machine()
    machine.mib = mib
    await machine.kept.admit(ENGINE, plan)
    await machine.kept.look(ENGINE, PID)
    machine.hidden = True
    await machine.kept.look(ENGINE, PID)
    assert machine.kept.took(ENGINE) is None
    assert machine.needs.of("f", plan.arm) is None


async def test_a_program_whose_memory_may_be_a_containers_is_not_measured(
    plan: LaunchPlan,
) -> None:
    machine = Machine()
    await machine.kept.admit(ENGINE, replace(plan, opaque=OpaqueStart(check=None)))
    await machine.kept.look(ENGINE, PID)
    assert machine.kept.took(ENGINE) is None
    assert machine.needs.of("f", plan.arm) is None


async def test_a_start_that_came_to_nothing_leaves_nothing(plan: LaunchPlan) -> None:
    machine = Machine()
    await machine.kept.admit(ENGINE, plan)
    machine.kept.withdrawn(ENGINE)
    machine.kept.withdrawn(ENGINE)
    await machine.kept.look(ENGINE, PID)
    assert machine.kept.took(ENGINE) is None
