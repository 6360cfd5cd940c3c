"""The account of a card: memory comes back at once, late, or never; the card hangs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.engine.memory_look import Figure, taken
from mtpd.errors import EngineError
from mtpd.supervise.keeper import CardKeeper
from mtpd.supervise.needs import Needs
from mtpd.types import Absent, FailureClass, Value
from mtpd.units import MIB, EngineId
from tests.fakes.supervision import plan_of
from tests.fakes.telemetry import Panel, Seen, holding

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.engine.memory_look import MemoryLook
    from mtpd.types import LaunchPlan

ENGINE = EngineId("e1")
PID = 4711


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    return plan_of("llama-server", path=tmp_path / "e.sock")


async def only_pid(_engine: EngineId) -> tuple[int, ...]:
    return (PID,)


def keeper(panel: Panel) -> CardKeeper:
    return CardKeeper(panel, clock=panel.clock, sleep=panel.sleep, pids=only_pid)


async def loaded(panel: Panel, kept: CardKeeper, plan: LaunchPlan) -> MemoryLook:
    """An engine that took 14000 MiB; returns the card before it."""
    before = await kept.admit(ENGINE, plan)
    panel.vram_mib = 14_011
    panel.clients = [holding(PID, 14_000)]
    await kept.look(ENGINE, PID)
    return before


def gone(panel: Panel) -> None:
    panel.vram_mib, panel.clients = 11, []


async def test_the_look_before_a_start_is_its_baseline_and_the_one_after_knows_the_engine(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    now = await kept.look(ENGINE, PID)
    assert (before.vram_used_bytes.value, now.vram_used_bytes.value) == (  # type: ignore[union-attr]
        11 * MIB,
        14_011 * MIB,
    )
    assert now.engine == {PID}
    assert (await kept.following(ENGINE, PID)).engine == {PID}


def room_of(kept: CardKeeper) -> int | None:
    """A function, because mypy would narrow the property across awaits."""
    return kept.room_bytes


async def test_room_is_what_is_free_and_what_the_engine_itself_holds(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = keeper(panel)
    assert room_of(kept) is None, "nothing was read yet"
    before = await loaded(panel, kept, plan)
    free = (16_368 - 11) * MIB
    assert room_of(kept) == free
    panel.clients = [holding(PID, 14_000), holding(99, 300, name="firefox")]
    panel.vram_mib = 14_311
    await kept.following(ENGINE, PID)
    assert room_of(kept) == free - 300 * MIB
    panel.clients, panel.vram_mib = [holding(PID, 14_000)], 14_011
    await kept.following(ENGINE, PID)
    assert room_of(kept) == free
    # The driver goes on counting what it moved to the host, so the engine's share is not known.
    panel.clients = [holding(PID, 14_000), holding(99, 300, name="firefox")]
    panel.vram_mib, panel.gtt_mib = 13_311, 1_014
    await kept.following(ENGINE, PID)
    assert room_of(kept) == free - 300 * MIB
    panel.gtt_mib = 14
    panel.clients, panel.vram_mib = None, 9_000  # whose memory it was that fell cannot be seen
    await kept.following(ENGINE, PID)
    assert room_of(kept) == free
    gone(panel)
    panel.vram_mib = 61
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert room_of(kept) == free - 50 * MIB
    panel.vram_mib = None
    await panel.fresh()
    assert room_of(kept) is None


async def test_the_end_of_another_engine_says_nothing_of_the_room_of_the_present_one(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    old = await kept.admit(EngineId("e0"), plan)
    await kept.look(EngineId("e0"), 4710)
    await loaded(panel, kept, plan)
    gone(panel)
    await kept.released(EngineId("e0"), 4710, old, reset=False)
    panel.vram_mib = 14_011
    await panel.fresh()
    assert room_of(kept) == (16_368 - 11) * MIB


async def test_memory_that_is_back_at_once_is_seen_three_times_before_it_counts(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    gone(panel)
    reads, began = panel.reads, panel.clock.now()
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert panel.reads - reads == 3
    assert panel.clock.now() - began == pytest.approx(0.2)


async def test_memory_that_flickers_is_not_back(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    gone(panel)
    panel.at(0.15, lambda: setattr(panel, "vram_mib", 500))
    panel.at(1.0, lambda: setattr(panel, "vram_mib", 60))
    began = panel.clock.now()
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert panel.clock.now() - began == pytest.approx(1.2, abs=0.11)


async def test_memory_that_is_three_seconds_late_is_waited_for_without_a_warning(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.at(3.0, lambda: gone(panel))
    began = panel.clock.now()
    with capture_logs() as logs:
        assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert panel.clock.now() - began == pytest.approx(3.2, abs=0.11)
    assert [entry["event"] for entry in logs] == ["vram.released"]


async def test_a_process_that_the_driver_still_lists_is_not_gone(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.vram_mib, panel.clients = 11, [holding(PID, 0)]
    panel.at(2.0, lambda: gone(panel))
    began = panel.clock.now()
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert panel.clock.now() - began > 2.0


async def test_memory_that_never_comes_back_ends_the_wait_with_the_list_of_holders(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.clients = [holding(PID, 9_000), holding(99, 300, name="Xorg")]
    began = panel.clock.now()
    with capture_logs() as logs:
        cause = await kept.released(ENGINE, PID, before, reset=False)
    assert panel.clock.now() - began == pytest.approx(30.0, abs=0.2)
    assert cause is not None
    assert cause.failure is FailureClass.VRAM_UNRECOVERED
    assert "13700 MiB" in cause.reason
    assert "4711 llama-server 9000 MiB; 99 Xorg 300 MiB; 4711 MiB that no visible" in cause.reason
    assert [entry["event"] for entry in logs] == ["vram.slow"]


async def test_no_load_goes_onto_a_card_that_is_not_free_but_one_that_fits_what_is(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    await kept.released(ENGINE, PID, before, reset=False)
    for memory_bytes in (None, 2_358 * MIB):
        with pytest.raises(EngineError, match="4711 llama-server") as caught:
            await kept.admit(ENGINE, replace(plan, memory_bytes=memory_bytes))
        assert caught.value.failure == FailureClass.VRAM_UNRECOVERED
    small = await kept.admit(EngineId("e2"), replace(plan, memory_bytes=2_357 * MIB))
    # The small one gives its own back, the old debt stays.
    assert await kept.released(EngineId("e2"), 5, small, reset=False) is None
    with pytest.raises(EngineError):
        await kept.admit(ENGINE, plan)
    gone(panel)
    await kept.admit(ENGINE, plan)
    panel.vram_mib = 14_011
    await kept.admit(ENGINE, plan)  # what others take later is no debt


async def test_what_another_program_took_meanwhile_is_its_own(plan: LaunchPlan) -> None:
    panel = Panel()
    panel.clients = [holding(99, 100, name="firefox")]
    kept = keeper(panel)
    before = await kept.admit(ENGINE, plan)
    panel.vram_mib, panel.clients = 911, [holding(99, 1_000, name="firefox")]
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    panel.clients = None
    cause = await kept.released(ENGINE, PID, before, reset=False)
    assert cause is not None
    assert "cannot be seen: fdinfo: permission denied" in cause.reason


async def test_counters_that_fail_hold_nobody_up(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.vram_mib = None
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert isinstance((await kept.admit(ENGINE, plan)).vram_used_bytes, Absent)
    assert await kept.released(ENGINE, PID, None, reset=False) is None


async def test_a_card_in_a_reset_is_waited_for_and_a_lost_cap_is_said(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.answers, panel.cap_w = False, 190.0
    gone(panel)
    panel.at(5.0, lambda: setattr(panel, "answers", True))
    with capture_logs() as logs:
        assert await kept.released(ENGINE, PID, before, reset=True) is None
    (lost,) = [entry for entry in logs if entry["event"] == "gpu.cap_lost"]
    assert (lost["cap_w"], lost["before_w"]) == (190.0, 150.0)


async def test_a_card_that_stays_silent_has_failed_and_takes_no_start_until_it_answers(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    panel.answers = False
    gone(panel)
    began = panel.clock.now()
    cause = await kept.released(ENGINE, PID, before, reset=True)
    assert panel.clock.now() - began == pytest.approx(60.0, abs=0.2)
    assert cause is not None
    assert cause.failure is FailureClass.GPU_FAILED
    with pytest.raises(EngineError, match="not answered") as caught:
        await kept.admit(ENGINE, plan)
    assert caught.value.failure == FailureClass.GPU_FAILED
    panel.answers = True
    await kept.admit(ENGINE, plan)


async def test_a_card_that_never_had_a_sensor_is_not_taken_for_a_hung_one(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    panel.answers = False
    kept = keeper(panel)
    before = await kept.admit(ENGINE, plan)
    assert await kept.released(ENGINE, PID, before, reset=True) is None


async def test_a_process_that_died_before_anybody_looked_is_waited_for_by_its_pid(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await kept.admit(ENGINE, plan)
    panel.clients = [holding(PID, 30)]
    panel.at(2.0, lambda: gone(panel))
    began = panel.clock.now()
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert panel.clock.now() - began > 2.0


async def test_a_card_that_is_known_not_to_be_free_is_looked_at_once_a_second(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = keeper(panel)
    before = await loaded(panel, kept, plan)
    await kept.released(ENGINE, PID, before, reset=False)
    reads = panel.reads
    assert await kept.released(ENGINE, PID, before, reset=False) is not None
    assert 29 <= panel.reads - reads <= 32
    panel.at(2.5, lambda: gone(panel))
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    await kept.admit(ENGINE, plan)


async def test_a_serving_engine_is_looked_at_once_a_second_however_often_others_read(
    plan: LaunchPlan,
) -> None:
    class Measuring(Panel):
        async def following(self) -> Seen:
            await self.sleep(0.1)
            return await self.fresh()

    panel = Measuring()
    kept = keeper(panel)
    await loaded(panel, kept, plan)
    times = [(await kept.following(ENGINE, PID)).at_s for _ in range(4)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= 0.89
    assert max(gaps) <= 1.01


OTHER = EngineId("e2")
OTHER_PID = 4712


async def pids_of_both(engine: EngineId) -> tuple[int, ...]:
    return (PID,) if engine == ENGINE else (OTHER_PID,)


async def test_a_start_waits_until_the_engine_before_it_is_loaded(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = CardKeeper(panel, clock=panel.clock, sleep=panel.sleep, pids=pids_of_both)
    await kept.admit(ENGINE, plan)
    seen: list[MemoryLook] = []

    async def admit_other() -> None:
        seen.append(await kept.admit(OTHER, plan))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(admit_other)
        await anyio.wait_all_tasks_blocked()
        assert not seen
        panel.vram_mib, panel.clients = 5_011, [holding(PID, 5_000)]
        await kept.look(ENGINE, PID)
    (before,) = seen
    assert before.beside_bytes == 5_000 * MIB
    assert before.vram_used_bytes == Value(11 * MIB, "sysfs")
    assert kept.held(plan.key.profile) is None, "the second is not loaded yet"


async def test_a_start_does_not_wait_for_an_engine_that_died_while_it_loaded(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = CardKeeper(panel, clock=panel.clock, sleep=panel.sleep, pids=pids_of_both)
    before = await kept.admit(ENGINE, plan)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.admit, OTHER, plan)
        await anyio.wait_all_tasks_blocked()
        assert await kept.released(ENGINE, PID, before, reset=False) is None
        with anyio.fail_after(10):
            while kept.profiles == frozenset():
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("visible", [True, False])
async def test_two_engines_are_told_apart_whoever_ends_first(
    plan: LaunchPlan,
    visible: bool,  # noqa: FBT001 - a column of the table
) -> None:
    panel = Panel()
    needs = Needs()
    kept = CardKeeper(panel, clock=panel.clock, needs=needs, sleep=panel.sleep, pids=pids_of_both)
    other = replace(plan, key=replace(plan.key, profile="other"), fingerprint="another")

    def holds(mine: int, others: int) -> None:
        panel.vram_mib = 11 + mine + others
        both = [(PID, mine), (OTHER_PID, others)]
        panel.clients = [holding(pid, mib) for pid, mib in both if mib] if visible else None

    before = await kept.admit(ENGINE, plan)
    holds(5_000, 0)
    await kept.look(ENGINE, PID)
    other_before = await kept.admit(OTHER, other)
    holds(5_000, 3_000)
    await kept.look(OTHER, OTHER_PID)
    assert (kept.held(plan.key.profile), kept.held("other")) == (5_000 * MIB, 3_000 * MIB)
    assert (kept.took(ENGINE), kept.took(OTHER)) == (5_000 * MIB, 3_000 * MIB)
    assert needs.of(plan.fingerprint, plan.arm) == 5_000 * MIB
    assert needs.of("another", plan.arm) == 3_000 * MIB
    assert await kept.free_now() == (16_368 - 8_011) * MIB
    assert room_of(kept) == (16_368 - 11) * MIB
    holds(0, 3_000)
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert kept.profiles == {"other"}
    now = await kept.following(OTHER, OTHER_PID)
    assert now.beside_bytes == 0
    found = taken(other_before, now)
    assert isinstance(found, Figure)
    assert found.count == 3_000 * MIB
    holds(0, 0)
    assert await kept.released(OTHER, OTHER_PID, other_before, reset=False) is None
    assert kept.profiles == frozenset()


async def test_a_serving_engine_is_not_looked_at_while_the_memory_of_another_moves(
    plan: LaunchPlan,
) -> None:
    panel = Panel()
    kept = CardKeeper(panel, clock=panel.clock, sleep=panel.sleep, pids=pids_of_both)
    await loaded(panel, kept, plan)
    await kept.admit(OTHER, replace(plan, memory_bytes=0))
    moved = panel.clock.now() + 50.0
    panel.at(50.0, lambda: kept.withdrawn(OTHER))
    assert (await kept.following(ENGINE, PID)).at_s >= moved


async def test_the_wait_for_another_engine_that_loads_is_bounded(plan: LaunchPlan) -> None:
    panel = Panel()
    kept = CardKeeper(panel, clock=panel.clock, sleep=panel.sleep, pids=pids_of_both, turn_s=0.01)
    before = await loaded(panel, kept, plan)
    await kept.admit(OTHER, replace(plan, memory_bytes=0))
    gone(panel)
    assert await kept.released(ENGINE, PID, before, reset=False) is None
    assert kept.profiles == {plan.key.profile}, "only the one that loads"
