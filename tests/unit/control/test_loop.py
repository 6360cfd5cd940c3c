"""The whole loop on a simulated card: what it does, what it says, what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.model import Pool
from mtpd.control.contests import Contest
from mtpd.control.tasks import pool_rules
from mtpd.errors import StoreError
from mtpd.events import MachineResumed, MemoryCreeps
from mtpd.operations import Operations
from mtpd.units import MIB
from mtpd.views import GateView
from tests.unit.control.living import Card, living
from tests.unit.control.made import arm
from tuner.classes import Band, Kind, WorkloadClass
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.views import OperationView
    from tests.unit.control.living import House

SHORT = WorkloadClass(kind=Kind.PROSE)
LONG = WorkloadClass(band=Band.LONG, kind=Kind.CODE)


async def work(house: House, *classes: WorkloadClass, rounds: int, gap_s: float = 20.0) -> None:
    """People at work: requests of these classes in turn."""
    for _ in range(rounds):
        for klass in classes:
            house.clock.advance(gap_s)
            await house.serve(klass)


async def test_a_wrong_depth_is_left_in_the_first_quiet_moment(tmp_path: Path) -> None:
    async with living(tmp_path, depth=0) as house:
        await house.measure(apply=False)
        await work(house, SHORT, LONG, rounds=10)
        assert house.board.starts == []
        assert house.live().next.act == "switch"
        assert house.live().next.waits_for == "the card has been idle for 0 s only"
        await house.quiet(180.0)
        assert house.board.starts == [arm("m", 2)]
        await work(house, SHORT, LONG, rounds=20)
        await house.quiet(3600.0)
        assert house.board.starts == [arm("m", 2)]
        (switched,) = await house.own()
        assert switched.act == "switch"
        assert switched.outcome == "m@2 is ready, resident"
        assert house.choices.measured("m") == arm("m", 2)


async def test_observe_says_so_once_and_again_only_when_it_changes_its_mind(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, depth=0, mode="observe") as house:
        await house.measure(apply=False)
        await work(house, SHORT, rounds=30)
        await house.quiet(7200.0)
        (said,) = await house.own()
        assert said.act == "keep"
        assert "would switch to m@2 but the mode is observe" in said.reason
        house.board.arm = arm("m", 2)
        await house.quiet(60.0)
        (_, changed) = await house.own()
        assert changed.reason.startswith("keep m@2: ")
        assert "would" not in changed.reason
        assert house.board.starts == []


async def test_off_learns_and_says_nothing(tmp_path: Path) -> None:
    async with living(tmp_path, depth=0, mode="off") as house:
        await house.measure(apply=False)
        await work(house, SHORT, rounds=10)
        await house.quiet(600.0)
        assert await house.own() == []
        assert house.live().requests == 10
        assert house.live().next.says == "keep m@0: mode is off"


@pytest.mark.parametrize("seed", range(3))
async def test_equal_arms_under_noise_are_never_switched(tmp_path: Path, seed: int) -> None:
    # E of depths 1, 2, 3 is 1 + 0.41 k: every depth is as fast as every other.
    equal = Card(other=(0.41, 0.999, 0.999), noise=0.03)
    async with living(tmp_path, card=equal, depth=1, seed=seed) as house:
        await house.measure(apply=False)
        for _ in range(4):
            await work(house, SHORT, LONG, rounds=12)
            await house.quiet(600.0)
        assert house.board.starts == []
        assert house.tunes.asked == []


async def test_acceptance_that_falls_in_one_class_keeps_the_depth_and_names_the_class(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        for _ in range(3):
            await work(house, SHORT, SHORT, SHORT, LONG, rounds=15)
            await house.quiet(300.0)
        house.card.alphas[LONG] = (0.72, 0.50, 0.40)
        for _ in range(3):
            await work(house, SHORT, SHORT, SHORT, LONG, rounds=10)
            await house.quiet(300.0)
        assert house.board.starts == []
        moved = house.live().moved
        assert moved
        assert all(one == "acceptance has fallen in class long/code/greedy" for one in moved)
        by_name = {one.name: one for one in house.live().classes}
        fallen = by_name["long/code/greedy"].arms[0].alphas[0]
        kept = by_name["short/prose/greedy"].arms[0].alphas[0]
        assert fallen.high < kept.low


async def test_another_mix_within_the_dwell_time_restarts_nothing(tmp_path: Path) -> None:
    # Two drafts pay for code, and one for prose.
    card = Card(alphas={LONG: (0.97, 0.95, 0.93), SHORT: (0.6, 0.05, 0.2)})
    async with living(tmp_path, card=card, depth=0) as house:
        await house.measure(apply=False)
        await work(house, LONG, rounds=20)
        await house.quiet(180.0)
        (first,) = house.board.starts
        assert first.depth >= 2
        began_s = house.clock.now()
        while house.clock.now() - began_s < 1200.0:
            await work(house, SHORT, rounds=8, gap_s=5.0)
            await house.quiet(130.0)
        assert house.board.starts == [first]
        assert house.live().next.arm.depth == 1
        assert "of the dwell time" in house.live().next.waits_for
        await house.quiet(1800.0)
        assert house.board.starts == [first, arm("m", 1)], "afterwards it is done"


async def test_a_cap_that_was_lowered_makes_the_optimum_stale_and_is_measured_when_idle(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        assert house.live().stale == ()
        house.cap_w.append(150.0)
        house.gates.append(GateView(name="power_cap", state="failed", reason="the cap is 150 W"))
        await house.quiet(1500.0)
        assert house.live().stale == ("power_cap_w was 225.0 and is 150.0",)
        assert house.live().next.act == "measure"
        assert house.live().next.waits_for == "the cap is 150 W"
        assert house.tunes.asked == []
        # Declared at last: measured in a quiet moment, and what was found holds.
        house.fields["power_cap_w"] = 150.0
        house.gates.clear()
        await house.quiet(60.0)
        assert [plan.subject for plan in house.tunes.asked] == ["m"]
        await house.look()
        assert house.live().stale == ()
        decided = [one for one in await house.journal.list() if one.act == "measure"]
        assert "power_cap_w was 225.0 and is 150.0" in decided[-1].reason
        assert decided[-1].outcome == "m@2 is ready, resident"


async def test_a_cap_that_is_set_back_is_as_if_nothing_had_been(tmp_path: Path) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.cap_w.append(150.0)
        await house.quiet(600.0)
        house.cap_w.append(225.0)
        await house.quiet(3600.0)
        assert house.live().stale == ()
        assert house.tunes.asked == []


async def test_creeping_memory_is_given_back_in_a_quiet_moment(tmp_path: Path) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.loop.hear(
            MemoryCreeps(
                engine_id="e0",
                profile="m",
                arm="m@2",
                grown_bytes=512 * MIB,
                window_s=600.0,
                full_in_s=2520.0,
            )
        )
        await work(house, SHORT, rounds=5)
        assert house.board.starts == []
        assert house.live().next.act == "restart"
        await house.quiet(180.0)
        assert house.board.starts == [arm("m", 2)]
        (restarted,) = await house.own()
        assert restarted.reason == (
            "restart of m@2 before its memory spills: it grew by 512 MiB in 10 min and the card"
            " is full in 42 min"
        )
        await house.quiet(3600.0)
        assert house.board.starts == [arm("m", 2)], "one creep, one restart"


async def test_a_request_that_comes_first_leaves_everything_as_it_is(tmp_path: Path) -> None:
    async with living(tmp_path, depth=0) as house:
        await house.measure(apply=False)
        await work(house, SHORT, rounds=10)
        house.clock.advance(180.0)
        house.board.free_looks = 1
        await house.loop.step()
        assert house.board.running, "it came between the decision and its effect"
        house.board.free_looks, house.board.running = None, 0
        assert house.board.starts == []
        state = house.traffic.of(house.config.profiles["m"]).state.policy
        assert state.restarts == (), "what was not done costs no restart"
        await house.quiet(60.0)
        assert house.board.starts == [arm("m", 2)]


async def test_a_request_ends_a_measurement_that_the_daemon_began(tmp_path: Path) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.fields["engine"] = "f" * 64
        house.tunes.hangs = True
        house.clock.advance(1500.0)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(house.look)
                await house.tunes.begun.wait()
                house.board.arrives()
        house.board.waiting = 0
        (operation,) = await house.operations.list()
        assert (operation.kind, operation.state) == ("tune", "cancelled")
        decided = [one for one in await house.journal.list() if one.act == "measure"][-1]
        assert decided.outcome is not None
        assert decided.outcome.startswith("aborted, because a request came")
        assert decided.outcome.endswith("1 repetitions kept")
        assert house.live().stale, "what was aborted is not taken for a calibration"


async def test_a_suspend_ends_a_measurement_and_its_journal_says_so(tmp_path: Path) -> None:
    night = MachineResumed(suspended_s=28_800.0, reason="the machine was suspended for 8 h")
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.fields["engine"] = "f" * 64
        house.tunes.hangs = True
        house.clock.advance(1500.0)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(house.look)
                await house.tunes.begun.wait()
                house.loop.hear(night)
        (operation,) = await house.operations.list()
        assert (operation.kind, operation.state) == ("tune", "cancelled")
        assert operation.progress.note.startswith(f"aborted, because {night.reason}")
        decided = [one for one in await house.journal.list() if one.act == "measure"][-1]
        assert decided.outcome == f"aborted, because {night.reason}; 1 repetitions kept"


async def test_a_machine_that_wakes_up_is_not_taken_for_idle(tmp_path: Path) -> None:
    async with living(tmp_path, depth=0) as house:
        await house.measure(apply=False)
        await work(house, SHORT, rounds=10)
        house.clock.advance(100.0)
        house.clock.suspend(28_800.0)
        house.loop.hear(MachineResumed(suspended_s=28_800.0, reason="it slept"))
        house.clock.advance(100.0)
        await house.look()
        assert house.board.starts == [], "somebody has just come back to it"
        await house.quiet(60.0)
        assert house.board.starts == [arm("m", 2)]


async def test_what_cannot_be_done_is_not_tried_again_at_once(tmp_path: Path) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.fields["engine"] = "f" * 64
        house.clock.advance(1500.0)
        workloads = house.config.workloads
        house.config.replace(replace(house.config.now, workloads={}))
        assert not await house.loop.step(), "there is nothing to measure it with"
        assert house.live().next.act == "measure"
        assert house.tunes.asked == []
        house.config.replace(replace(house.config.now, workloads=workloads))
        house.clock.advance(10.0)
        assert await house.loop.step(), "what was done is looked at at once"
        assert [plan.subject for plan in house.tunes.asked] == ["m"]


async def test_a_model_that_failed_has_no_hope_until_its_profile_is_another(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, depth=2) as house:
        await house.measure()
        await work(house, SHORT, rounds=5)
        house.tunes.fails = True
        house.fields["engine"] = "f" * 64
        house.clock.advance(1500.0)
        await house.loop.step()
        assert [plan.subject for plan in house.tunes.asked] == ["m"]
        effects = house.loop._effects
        assert effects.hopeless == {"m"}
        other = replace(house.config.profiles["m"], context=2048)
        house.config.replace(replace(house.config.now, profiles={"m": other}))
        assert effects.hopeless == frozenset()


class Unreadable(Operations):
    """Operations of which the end cannot be read."""

    async def ended(self, operation_id: str) -> OperationView | None:
        await super().ended(operation_id)
        message = "the disk is full"
        raise StoreError(message)


async def test_an_end_that_cannot_be_read_does_not_end_the_loop(tmp_path: Path) -> None:
    async with living(tmp_path, depth=0, operations_type=Unreadable) as house:
        await house.measure(apply=False)
        await work(house, SHORT, rounds=10)
        await house.quiet(240.0)
        assert house.board.starts == [arm("m", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_two_hours_of_mixed_traffic_cost_little_more_than_an_oracle(
    tmp_path: Path, seed: int
) -> None:
    # In the second hour the texts are such that a second draft does not pay any more.
    card = Card(alphas={LONG: (0.95, 0.80, 0.6)}, start_s=20.0)
    async with living(tmp_path, card=card, depth=2, seed=seed) as house:
        await house.measure()
        began_s = house.clock.now()
        half_s, end_s = began_s + 3600.0, began_s + 7200.0
        for until_s in (half_s, end_s):
            while house.clock.now() < until_s:
                await work(house, SHORT, SHORT, LONG, rounds=8, gap_s=3.0)
                await house.quiet(130.0)
            card.other, card.alphas[LONG] = (0.76, 0.38, 0.2), (0.78, 0.35, 0.2)
        turned_s = next(at_s for at_s, _ in house.served if at_s >= half_s)
        oracle_s = house.least_s(began_s, turned_s) + house.least_s(turned_s, 2 * end_s)
        regret = (house.spent_s + card.start_s * len(house.board.starts)) / oracle_s - 1
        assert house.board.starts == [arm("m", 1)], "one switch, and it was not needless"
        assert regret <= 0.02


async def test_a_model_that_a_reload_took_away_since_it_was_compared_is_not_switched_to(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as house:
        pool = Pool(name="both", members=("m", "gone"))
        better = Decision(
            act=Act.SWITCH,
            subject="both",
            arm=arm("gone", 1),
            previous=arm("m", 0),
            reason="gone@1 is better",
            evidence=(),
        )
        contest = Contest(pool=pool, inputs=pool_rules(pool))
        assert not await house.effects.switch_model(better, arm("gone", 1), contest)
        assert house.board.starts == []
        assert await house.own() == []
