"""Several engines on one device: groups, exclusive and persistent, kills, holds."""

from __future__ import annotations

import anyio
import pytest

from mtpd.config.model import Group
from mtpd.errors import ConflictError, EngineError
from mtpd.proxy.outcomes import DrainTimeoutError
from mtpd.proxy.seats import Seat
from mtpd.units import HOST
from tests.fakes.actors import Loads
from tests.fakes.board import Client, arm, bench, clients, until

SMALL = Group(name="small", members=("e",), exclusive=False)
STAYS = Group(name="small", members=("e",), exclusive=False, persistent=True)
TOGETHER = Group(name="t", members=("a", "b"), swap=False)


async def test_a_chat_and_an_embedding_model_are_served_side_by_side_without_a_swap() -> None:
    async with bench(groups=[STAYS]) as made:
        async with clients(made, "a", "e") as (chat, embedding):
            await until(lambda: chat.lease and embedding.lease)
            assert made.serving() == ["a@0", "e@0"]
        for profile in ("e", "a", "e", "a"):
            async with made.board.lease(profile, request_id="1") as lease:
                assert lease.arm == arm(profile)
        assert (made.actor("a").view().starts, made.actor("e").view().starts) == (1, 1)
        assert made.decisions == []


async def test_members_of_a_group_that_does_not_swap_run_together() -> None:
    async with bench(groups=[TOGETHER]) as made, clients(made, "a", "b") as (one, other):
        await until(lambda: one.lease and other.lease)
        assert made.serving() == ["a@0", "b@0"]


async def test_an_exclusive_group_unloads_the_others_and_says_why() -> None:
    async with bench(groups=[SMALL]) as made:
        await made.board.bring_up("e", "a test")
        await made.board.bring_up("a", "a test")
        assert made.serving() == ["a@0"]
        (decision,) = made.decisions
        assert (decision.act, decision.subject) == ("unload", "e")
        assert decision.reason == (
            "e is unloaded: a@0 is brought up in the group (default), which is exclusive"
        )


async def test_a_persistent_engine_stays_when_an_exclusive_group_comes_up() -> None:
    async with bench(groups=[STAYS]) as made:
        await made.board.bring_up("e", "a test")
        await made.board.bring_up("a", "a test")
        await made.board.bring_up("b", "a test")
        assert made.serving() == ["b@0", "e@0"]


async def test_one_that_is_not_exclusive_leaves_an_exclusive_one_alone() -> None:
    async with bench(groups=[SMALL]) as made:
        await made.board.bring_up("a", "a test")
        await made.board.bring_up("e", "a test")
        assert made.serving() == ["a@0", "e@0"]


async def test_a_running_request_ends_before_its_engine_is_unloaded_for_another_group() -> None:
    async with bench(groups=[SMALL]) as made, clients(made, "e") as (running,):
        await until(lambda: running.lease)
        chat = Client(made, "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat.run)
            await until(lambda: made.board._lanes.of("e").state.held)
            await anyio.wait_all_tasks_blocked()
            assert not running.ended
            assert made.serving() == ["e@0"]
            running.finish.set()
            await until(lambda: chat.lease)
            assert made.serving() == ["a@0"]
            chat.finish.set()


async def test_the_end_of_one_engine_leaves_the_other() -> None:
    async with bench(groups=[STAYS]) as made, clients(made, "a", "e") as (chat, embedding):
        await until(lambda: chat.lease and embedding.lease)
        made.actor("a").give_up()
        chat.finish.set()
        await until(lambda: chat.ended)
        assert not embedding.ended
        async with anyio.create_task_group() as tasks:
            again = Client(made, "e")
            tasks.start_soon(again.run)
            embedding.finish.set()
            await until(lambda: again.lease)
            again.finish.set()
        assert made.actor("e").view().starts == 1


async def test_an_unload_by_model_hits_its_own_seat_only() -> None:
    async with bench(groups=[STAYS]) as made:
        await made.board.bring_up("e", "a test")
        await made.board.bring_up("a", "a test")
        await made.board.stop_engine("a", "a test")
        assert made.serving() == ["e@0"]
        await made.board.bring_up("a", "a test")
        await made.board.stop_engine(None, "a test")
        assert made.serving() == []


async def test_one_engine_starts_at_a_time() -> None:
    async with bench(groups=[TOGETHER]) as made, anyio.create_task_group() as tasks:
        made.actor("a").script.append(Loads(gate := anyio.Event()))
        first, second = Client(made, "a"), Client(made, "b")
        tasks.start_soon(first.run)
        await until(lambda: made.actor("a").view().state == "loading")
        tasks.start_soon(second.run)
        await anyio.wait_all_tasks_blocked()
        assert made.actor("b").view().starts == 0
        gate.set()
        await until(lambda: first.lease and second.lease)
        first.finish.set()
        second.finish.set()


async def test_a_hold_has_the_device_alone_and_brings_back_what_is_persistent() -> None:
    async with bench(groups=[STAYS]) as made:
        await made.board.bring_up("e", "a test")
        await made.board.bring_up("a", "a test")
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a", 2))
            assert made.serving() == ["a@2"]
            waiting = Client(made, "e")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(waiting.run)
                await until(lambda: made.board.queue().waiting)
                await anyio.wait_all_tasks_blocked()
                assert made.serving() == ["a@2"]
                waiting.scope.cancel()
        await until(lambda: made.serving() == ["a@2", "e@0"])


async def test_a_hold_does_not_bring_back_what_is_not_persistent() -> None:
    async with bench(groups=[SMALL]) as made:
        await made.board.bring_up("a", "a test")
        await made.board.bring_up("e", "a test")
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a", 2))
        await anyio.wait_all_tasks_blocked()
        assert made.serving() == ["a@2"]
        async with made.board.lease("e", request_id="1"):
            assert made.serving() == ["a@2", "e@0"]


async def test_a_hold_that_cannot_drain_one_seat_lets_the_others_go_on() -> None:
    async with bench(groups=[STAYS]) as made, clients(made, "e") as (running,):
        await until(lambda: running.lease)
        with pytest.raises(DrainTimeoutError):
            async with made.board.hold(reason="measuring", drain_timeout_s=0.01):
                pass
        async with made.board.lease("a", request_id="1"):
            assert made.serving() == ["a@0", "e@0"]
        # An owner that drains is told from one that waits for the device.
        with pytest.raises(DrainTimeoutError):
            await made.board.switch(arm("e", 1), reason="a test", drain_timeout_s=0.01)
        assert not running.ended


async def test_an_exclusive_change_unloads_a_seat_whose_owner_waits_for_the_device() -> None:
    """Two seats that want the device at once: neither waits for the other's lock."""
    exclusive = [Group(name="x", members=("a",)), Group(name="y", members=("b",))]
    async with bench(groups=exclusive) as made, anyio.create_task_group() as tasks:
        await made.board.bring_up("b", "a test")
        made.actor("a").script.append(Loads(gate := anyio.Event()))
        tasks.start_soon(made.board.bring_up, "a", "a test")
        await until(lambda: made.actor("a").view().state == "loading")
        tasks.start_soon(lambda: made.board.switch(arm("b", 1), reason="a test"))
        tasks.start_soon(made.board.bring_up, "c", "a test")
        await anyio.wait_all_tasks_blocked()
        gate.set()
        await until(lambda: made.serving() == ["c@0"])
        assert made.actor("b").history[-2:] == ["stopping b@1", "stopped b@1"]


@pytest.mark.parametrize("by_request", [True, False])
async def test_who_has_the_device_borrows_a_seat_whose_owner_waits_for_it(
    by_request: bool,  # noqa: FBT001 - a column of the table
) -> None:
    beside = [
        Group(name="x", members=("a",), exclusive=False),
        Group(name="y", members=("b", "d"), exclusive=False),
    ]
    async with bench(groups=beside) as made, anyio.create_task_group() as tasks:
        await made.board.bring_up("b", "a test")
        made.actor("a").script.append(Loads(gate := anyio.Event()))
        tasks.start_soon(made.board.bring_up, "a", "a test")
        await until(lambda: made.actor("a").view().state == "loading")
        tasks.start_soon(made.board.bring_up, "c", "a test")
        await anyio.wait_all_tasks_blocked()
        request = Client(made, "d")
        if by_request:
            tasks.start_soon(request.run)
        else:
            tasks.start_soon(lambda: made.board.switch(arm("d"), reason="a test"))
        await anyio.wait_all_tasks_blocked()
        request.finish.set()
        gate.set()
        await until(lambda: made.serving() == ["c@0", "d@0"])
        assert [one.subject for one in made.decisions] == ["a", "b"]


async def test_what_was_unloaded_for_another_is_not_rolled_back_to() -> None:
    async with bench(groups=[SMALL]) as made:
        await made.board.bring_up("e", "a test")
        await made.board.bring_up("a", "a test")
        async with made.board.lease("e", request_id="1"):
            assert made.serving() == ["a@0", "e@0"]


async def test_bringing_up_gives_way_to_requests_for_another_model() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        with pytest.raises(ConflictError, match="b is not brought up"):
            await made.board.bring_up("b", "a test")
        assert (await made.board.bring_up("a", "a test")).state == "ready"
        assert made.serving() == ["a@0"]


async def test_nothing_is_started_once_the_daemon_ends() -> None:
    async with bench() as made:
        await made.board.bring_up("a", "a test")
    with pytest.raises(EngineError):
        await made.board.switch(arm("b"), reason="too late")
    assert made.actor("b").view().starts == 0


async def test_a_seat_that_appears_is_closed_like_the_others_at_the_end() -> None:
    async with bench(groups=[STAYS]) as made:
        made.board.close("the daemon is stopping")
        late = Client(made, "e")
        await late.run()
        assert late.rejected is not None
        assert late.rejected.kind == "closed"
        assert Seat(HOST) not in made.board._lanes.by_seat


async def test_of_several_that_are_ready_the_one_used_last_is_what_serves() -> None:
    async with bench(groups=[STAYS]) as made:
        assert made.board.serving() is None
        for profile in ("a", "e", "a", "e"):
            made.clock.advance(1.0)
            async with made.board.lease(profile, request_id="1"):
                pass
            assert made.board.serving() == arm(profile)


async def test_everybody_who_listens_for_a_waiting_request_hears_it() -> None:
    heard: list[str] = []

    async with bench() as made, anyio.create_task_group() as tasks:

        async def listen(name: str) -> None:
            await made.board.until_waited_for()
            heard.append(name)

        for name in ("first", "second"):
            tasks.start_soon(listen, name)
        await anyio.wait_all_tasks_blocked()
        async with clients(made, "a", "b"):
            await until(lambda: len(heard) == 2)
