from __future__ import annotations

import anyio
import pytest

from mtpd.errors import EngineError
from mtpd.proxy.outcomes import DrainTimeoutError
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import Client, arm, bench, clients, until


async def test_held_requests_flow_after_the_hold_with_what_it_left_running() -> None:
    async with bench() as made:
        async with anyio.create_task_group() as tasks:
            waiting = Client(made, "a")
            async with made.board.hold(reason="measuring") as hold:
                await hold.start(arm("a", 1))
                assert hold.client() == "client of UnixEndpoint(path='/nonexistent')"
                tasks.start_soon(waiting.run)
                await until(lambda: made.board.queue().waiting)
                await hold.start(arm("a", 2))
                await anyio.wait_all_tasks_blocked()
                assert waiting.arm() is None
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 2)
            waiting.finish.set()


async def test_a_hold_starts_an_arm_anew_once() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a"))
            await hold.start(arm("a"))
            assert hold.running.engine_id == "a#2"


async def test_a_hold_waits_for_the_running_request_and_never_cuts_it() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        with pytest.raises(DrainTimeoutError):
            async with made.board.hold(reason="measuring", drain_timeout_s=0.01):
                pass
        assert not running.ended


async def test_a_failed_start_in_a_hold_is_not_rolled_back_and_nothing_stays() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        async with made.board.hold(reason="measuring") as hold:
            made.actor("a").script.append(Fails("crash", "died", "backoff"))
            with pytest.raises(EngineError, match="died"):
                await hold.start(arm("a", 5))
            assert made.serving() == []
            assert made.actor("a").view().state == "stopped"
            with pytest.raises(EngineError):
                hold.client()
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a")


async def test_what_was_wanted_before_a_hold_is_not_started_after_it_for_nobody() -> None:
    async with bench() as made, anyio.create_task_group() as tasks:
        made.actor("b").script.append(Loads(gate := anyio.Event()))
        for_b, for_c = Client(made, "b"), Client(made, "c")
        tasks.start_soon(for_b.run)
        await until(lambda: made.actor("b").view().state == "loading")
        tasks.start_soon(for_c.run)
        await until(lambda: made.board.queue().waiting == 2)

        async def measure() -> None:
            async with made.board.hold(reason="measuring") as hold:
                for_c.scope.cancel()
                await until(lambda: for_c.ended)
                await hold.start(arm("d"))

        tasks.start_soon(measure)
        await anyio.wait_all_tasks_blocked()
        for_b.scope.cancel()
        await until(lambda: for_b.ended)
        gate.set()
        await until(lambda: made.serving() == ["d@0"])
        await anyio.wait_all_tasks_blocked()
        assert made.serving() == ["d@0"]
        assert made.actor("c").view().starts == 0


async def test_a_hold_can_stop_its_engine_and_a_request_brings_it_back_afterwards() -> None:
    async with bench() as made:
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a", 1))
            await hold.stop()
            assert made.serving() == []
            with pytest.raises(EngineError):
                hold.client()
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a")
