"""Engines that run otherwise than is configured: drained, then served anew or unloaded."""

from __future__ import annotations

import anyio
import pytest

from mtpd.config.model import Group
from mtpd.errors import EngineError
from mtpd.proxy.outcomes import RejectedError, Renewal, Renewed
from tests.fakes.actors import Fails
from tests.fakes.board import Client, Queue, arm, bench, clients, until

WHY = "the configuration was read again"


async def test_an_engine_that_is_as_configured_is_not_touched() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        made.settings["b"] = "other"
        assert await made.board.renew(WHY) == ()
        assert made.actor("a").view().starts == 1


async def test_an_outdated_engine_is_restarted_once_its_requests_have_ended() -> None:
    async with bench() as made:
        async with clients(made, "a") as (running,), anyio.create_task_group() as tasks:
            await until(lambda: running.lease)
            made.settings["a"], made.chosen["a"] = "other", arm("a", 2)
            found: list[Renewal] = []

            async def renew() -> None:
                found.extend(await made.board.renew(WHY))

            tasks.start_soon(renew)
            await until(lambda: made.board._lanes.of("a").state.held)
            waiting = Client(made, "a")
            tasks.start_soon(waiting.run)
            await until(lambda: made.board.queue().waiting == 1)
            assert made.serving() == ["a@0"]
            assert not running.ended
            running.finish.set()
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 2)
            waiting.finish.set()
        assert found == [Renewal("a", Renewed.RESTARTED, WHY)]
        assert made.serving() == ["a@2"]


async def test_a_model_that_is_gone_is_unloaded_and_not_shown_any_more() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.removed.add("a")
        assert await made.board.renew(WHY) == (Renewal("a", Renewed.UNLOADED, WHY),)
        assert made.board.engines() == ()
        with pytest.raises(RejectedError, match="a is not in the configuration") as caught:
            async with made.board.lease("a", request_id="late"):
                pass
        assert (caught.value.kind, caught.value.status) == ("removed", 404)


async def test_a_model_that_is_gone_and_cannot_be_stopped_takes_nobody_with_it() -> None:
    async with bench(groups=[Group(name="t", members=("a", "b"), swap=False)]) as made:
        async with clients(made, "a") as (running,), anyio.create_task_group() as tasks:
            await until(lambda: running.lease)
            made.removed.add("a")
            made.actor("a").deaf = True
            renewing = anyio.CancelScope()

            async def renew() -> None:
                with renewing:
                    await made.board.renew(WHY)

            tasks.start_soon(renew)
            await until(lambda: made.board._lanes.of("a").state.held)
            renewing.cancel()  # who asked does not wait: it is left to the board
            running.finish.set()
            await until(lambda: made.actor("a").view().state == "wedged")
        async with made.board.lease("b", request_id="other") as lease:
            assert lease.arm == arm("b")


async def test_who_waits_for_a_model_that_is_gone_is_told_and_others_go_on() -> None:
    async with bench() as made:
        async with clients(made, "a", "b") as (running, waiting):
            await until(lambda: running.lease)
            await until(lambda: made.board.queue().waiting == 1)
            made.removed.add("b")
            made.board.forget("b", "b is gone")
            await until(lambda: waiting.rejected)
            assert waiting.rejected is not None
            assert (str(waiting.rejected), waiting.rejected.status) == ("b is gone", 404)
        assert made.serving() == ["a@0"]


async def test_new_settings_that_do_not_start_are_told_and_the_old_ones_are_not_brought_back() -> (
    None
):
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.settings["a"] = "broken"
        made.actor("a").script.append(Fails("config", "unknown KV type"))
        (renewal,) = await made.board.renew(WHY)
        assert (renewal.profile, renewal.outcome) == ("a", Renewed.FAILED)
        assert "unknown KV type" in renewal.why
        assert made.serving() == []
        with pytest.raises(RejectedError, match="unknown KV type"):
            async with made.board.lease("a", request_id="1"):
                pass


async def test_settings_that_cannot_even_be_planned_leave_no_engine_with_the_old_ones() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.settings["a"] = "other"
        made.unplannable["a"] = EngineError("no such file", failure="config")
        (renewal,) = await made.board.renew(WHY)
        assert (renewal.outcome, renewal.why) == (Renewed.FAILED, "no such file")
        assert made.serving() == []


async def test_a_failed_switch_does_not_bring_back_what_is_not_configured_any_more() -> None:
    async with bench() as made:
        await made.board.switch(arm("a", 1), reason="first")
        await made.board.stop_engine(None, "rest")
        await made.board.switch(arm("a", 1), reason="again")
        made.settings["a"] = "other"
        made.actor("b").script.append(Fails("config", "broken", "failed"))
        with pytest.raises(EngineError, match="broken"):
            await made.board.switch(arm("b"), reason="another")
        assert made.serving() == []


async def test_nobody_starts_an_engine_while_the_board_is_settled_and_requests_go_on() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        async with made.board.settled():
            waiting = Client(made, "b")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(waiting.run)
                running.finish.set()
                await until(lambda: running.ended)
                made.removed.add("b")
                made.board.forget("b", "b is gone")
                await until(lambda: waiting.rejected)
        assert made.actor("b").view().starts == 0


async def test_limits_can_be_changed() -> None:
    async with bench() as made, clients(made, "a", "a") as (running, _):
        await until(lambda: running.lease)
        made.board.bound(Queue(max_waiting=1, queue_timeout_s=7.0))
        assert (made.board.queue().limit, made.board.queue().timeout_s) == (1, 7.0)
        with pytest.raises(RejectedError) as caught:
            async with made.board.lease("a", request_id="3"):
                pass
        assert caught.value.kind == "full"
