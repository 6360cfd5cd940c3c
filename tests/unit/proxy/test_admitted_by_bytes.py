"""Engines beside each other by what they need: what goes, what stays, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.model import Group
from mtpd.errors import EngineError
from mtpd.proxy.beside import NoRoomError
from mtpd.proxy.room import Need, Source
from mtpd.types import Absent
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import Client, arm, bench, clients, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.types import LaunchPlan

MIB = 2**20
ALL = ("a", "b", "c", "d", "e")
FREELY = Group(name="free", members=ALL, swap=False, exclusive=False)


class Card:
    """A card of so many MiB, on which each engine holds what it needs.

    Attributes:
        needs: MiB of a profile; 3 for those not named, None where it is not known.
        asked: Running profiles at every question.
        down: Profiles whose engines hold nothing for the moment.
    """

    def __init__(self, total: int, **needs: int | None) -> None:
        self.total, self.needs = total, needs
        self.asked: list[list[str]] = []
        self.down: set[str] = set()

    def mib(self, profile: str) -> int | None:
        return self.needs.get(profile, 3)

    async def need(self, plan: LaunchPlan) -> Need | Absent:
        return self.held(plan)

    async def free(self, running: Sequence[LaunchPlan]) -> int:
        profiles = [one.arm.profile for one in running]
        self.asked.append(profiles)
        return (self.total - sum(self.mib(p) or 0 for p in profiles if p not in self.down)) * MIB

    def held(self, plan: LaunchPlan) -> Need | Absent:
        mib = self.mib(plan.arm.profile)
        return Absent("nobody said it") if mib is None else Need(mib * MIB, Source.MEASURED)


async def test_what_fits_runs_beside_the_others() -> None:
    async with bench(groups=[FREELY], account=Card(9)) as made:
        for profile in ("a", "b", "c"):
            await made.board.bring_up(profile, "a test")
        assert made.serving() == ["a@0", "b@0", "c@0"]
        assert made.decisions == []


async def test_over_the_budget_the_least_recently_used_goes() -> None:
    async with bench(groups=[FREELY], account=Card(9)) as made:
        for profile in ("a", "b", "c", "b", "a"):
            made.clock.advance(1.0)
            async with made.board.lease(profile, request_id="1"):
                pass
        made.clock.advance(1.0)
        async with made.board.lease("d", request_id="1"):
            assert made.serving() == ["a@0", "b@0", "d@0"]
        (decision,) = made.decisions
        assert decision.subject == "c"
        assert decision.reason == (
            "c is unloaded: d@0 needs 3 MiB of memory (measured) and 0 MiB are free"
        )


async def test_a_running_request_is_never_cut_for_memory() -> None:
    async with bench(groups=[FREELY], account=Card(3)) as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        waiting = Client(made, "b")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.run)
            await until(lambda: made.board._lanes.of("a").state.held)
            await anyio.wait_all_tasks_blocked()
            assert not running.ended
            assert made.serving() == ["a@0"]
            running.finish.set()
            await until(lambda: waiting.lease)
            assert made.serving() == ["b@0"]
            waiting.finish.set()


async def test_an_idle_one_goes_in_place_of_a_busy_one() -> None:
    async with bench(groups=[FREELY], account=Card(6)) as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        made.clock.advance(5.0)
        await made.board.bring_up("b", "a test")
        async with made.board.lease("c", request_id="1"):
            assert made.serving() == ["a@0", "c@0"]
        assert not running.ended


async def test_beside_a_persistent_one_that_leaves_too_little_it_is_refused() -> None:
    stays = Group(name="stays", members=("e",), exclusive=False, persistent=True)
    async with bench(groups=[stays], account=Card(9, e=5, a=6)) as made:
        await made.board.bring_up("e", "a test")
        said = (
            "a@0 needs 6 MiB of memory (measured) and 4 MiB are free,"
            " beside e (5 MiB measured, persistent)"
        )
        with pytest.raises(NoRoomError, match="6 MiB") as caught:
            await made.board.bring_up("a", "a test")
        assert str(caught.value) == said
        refused = Client(made, "a")
        await refused.run()
        assert refused.rejected is not None
        assert str(refused.rejected) == said
        assert (refused.rejected.status, refused.rejected.retry_after_s) == (503, 1)
        assert made.actor("a").view().starts == 0
        async with made.board.lease("b", request_id="1"):
            assert made.serving() == ["b@0", "e@0"]
        with pytest.raises(NoRoomError):
            await made.board.bring_up("a", "a test")
        assert made.serving() == ["b@0", "e@0"], "what served still does"
        await made.board.stop_engine("e", "a test")
        async with made.board.lease("a", request_id="1"):
            assert made.serving() == ["a@0"], "as soon as there is room"
        await made.board.bring_up("b", "a test")
        await made.board.bring_up("e", "a test")
        await made.board.switch(arm("a"), reason="a test", force=True)
        assert made.serving() == ["a@0", "e@0"], "an operator may"


async def test_what_a_dying_engine_gives_back_is_kept_for_its_restart() -> None:
    card = Card(9, a=6, b=6)
    async with bench(groups=[FREELY], account=card) as made:
        await made.board.bring_up("a", "a test")
        made.actor("a").end()
        card.down.add("a")
        await made.board.bring_up("b", "a test")
        assert [one.subject for one in made.decisions] == ["a"], "or both would hold the card"


async def test_an_unknown_need_is_loaded_alone() -> None:
    async with bench(groups=[FREELY], account=Card(90, c=None)) as made:
        for profile in ("a", "b", "c"):
            await made.board.bring_up(profile, "a test")
        assert made.serving() == ["c@0"]
        assert [one.subject for one in made.decisions] == ["a", "b"]
        assert made.decisions[0].reason == (
            "a is unloaded: c@0 is not loaded beside others: what it needs is not known"
            " (nobody said it)"
        )
        await made.board.bring_up("a", "a test")
        assert made.serving() == ["a@0", "c@0"], "what runs is seen in what is free"


async def test_what_the_engine_of_the_same_seat_gives_back_counts() -> None:
    swaps = Group(name="swaps", members=("a", "b"), exclusive=False)
    stays = Group(name="stays", members=("e",), exclusive=False, persistent=True)
    async with bench(groups=[swaps, stays], account=Card(7, a=3, b=4, e=3)) as made:
        for profile in ("e", "a", "b"):
            await made.board.bring_up(profile, "a test")
        assert made.serving() == ["b@0", "e@0"]


async def test_memory_is_kept_for_one_that_starts_again_after_a_crash() -> None:
    stays = Group(name="stays", members=("e",), exclusive=False, persistent=True)
    card = Card(6, a=4)
    async with bench(groups=[stays], account=card) as made:
        await made.board.bring_up("e", "a test")
        made.actor("e").crash()
        card.down.add("e")
        with pytest.raises(NoRoomError, match=r"4 MiB of memory \(measured\) and 3 MiB are free"):
            await made.board.bring_up("a", "a test")


async def test_the_card_is_asked_again_after_each_that_goes() -> None:
    card = Card(9, d=9)
    async with bench(groups=[FREELY], account=card) as made:
        for profile in ("a", "b", "c"):
            made.clock.advance(1.0)
            async with made.board.lease(profile, request_id="1"):
                pass
        card.asked.clear()
        await made.board.bring_up("d", "a test")
        assert card.asked == [["a", "b", "c"], ["b", "c"], ["c"]]
        assert made.serving() == ["d@0"]


async def test_a_start_that_fails_after_others_went_brings_none_of_them_back() -> None:
    async with bench(groups=[FREELY], account=Card(3)) as made:
        await made.board.bring_up("a", "a test")
        made.actor("b").script.append(Fails())
        refused = Client(made, "b")
        await refused.run()
        assert refused.rejected is not None
        assert made.serving() == []
        async with made.board.lease("a", request_id="1"):
            assert made.serving() == ["a@0"]


async def test_two_that_do_not_fit_together_take_turns_under_requests() -> None:
    async with bench(groups=[FREELY], account=Card(3)) as made, anyio.create_task_group() as tasks:
        made.actor("a").script.append(Loads(gate := anyio.Event()))
        first, second, third = (Client(made, profile) for profile in ("a", "b", "a"))
        tasks.start_soon(first.run)
        await until(lambda: made.actor("a").view().state == "loading")
        tasks.start_soon(second.run)
        tasks.start_soon(third.run)
        await anyio.wait_all_tasks_blocked()
        gate.set()
        for client in (first, second, third):
            client.finish.set()
        await until(lambda: first.ended and second.ended and third.ended)
        assert [one.rejected for one in (first, second, third)] == [None, None, None]


async def test_what_a_process_holds_that_cannot_be_ended_counts_as_taken() -> None:
    """It holds its own place, and its memory, and nothing else."""
    alone = [Group(name=name, members=(name,), exclusive=False) for name in "abc"]
    async with bench(groups=alone, account=Card(9, a=5, b=4, c=6)) as made:
        await made.board.bring_up("a", "a test")
        made.actor("a").deaf = True
        with pytest.raises(EngineError, match="a is wedged"):
            await made.board.stop_engine("a", "a test")
        said = "c@0 needs 6 MiB of memory (measured) and 4 MiB are free, beside a (5 MiB measured, "
        for _ in range(2):
            with pytest.raises(NoRoomError) as caught:
                await made.board.bring_up("c", "a test")
            assert str(caught.value) == f"{said}cannot be ended)"
            assert caught.value.hint is not None
            assert "reboot" in caught.value.hint
        assert made.actor("c").view().starts == 0
        async with made.board.lease("b", request_id="1"):
            assert made.serving() == ["b@0"]
        with pytest.raises(EngineError, match="a is wedged"):
            await made.board.bring_up("a", "a test")
        assert made.actor("a").view().starts == 1


async def test_an_exclusive_group_does_not_wait_for_a_process_that_cannot_be_ended() -> None:
    small = Group(name="small", members=("e",), exclusive=False)
    async with bench(groups=[small], account=Card(9, e=5)) as made:
        await made.board.bring_up("e", "a test")
        made.actor("e").deaf = True
        with pytest.raises(EngineError, match="e is wedged"):
            await made.board.bring_up("a", "a test")
        await made.board.bring_up("a", "a test")
        assert made.serving() == ["a@0"]
