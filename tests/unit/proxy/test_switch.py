from __future__ import annotations

import anyio
import pytest

from mtpd.errors import BinaryError, EngineError
from mtpd.proxy.outcomes import DrainTimeoutError, RejectedError
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import Client, Queue, arm, bench, clients, until
from tests.fakes.patience import SOON_S


async def test_the_first_request_starts_the_chosen_arm_of_its_profile() -> None:
    async with bench() as made:
        made.chosen["a"] = arm("a", 2)
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a", 2)
            assert lease.engine_id == "a#1"
            assert made.board.queue().in_flight == 1
        assert made.board.queue().in_flight == 0
        assert made.actor("a").history == ["loading a@2", "ready a@2"]


async def test_another_model_stops_the_first_only_after_its_request_ended() -> None:
    async with bench() as made:
        async with clients(made, "a", "b") as (first, second):
            await until(lambda: first.lease)
            await until(lambda: made.board.queue().waiting == 1)
            assert made.serving() == ["a@0"]
            first.finish.set()
            await until(lambda: second.lease)
            assert made.serving() == ["b@0"]
        assert made.actor("a").history[-1] == "stopped a@0"


async def test_a_switch_drains_changes_the_depth_and_lets_the_waiters_in() -> None:
    async with bench() as made:
        async with clients(made, "a") as (running,), anyio.create_task_group() as tasks:
            await until(lambda: running.lease)
            tasks.start_soon(lambda: made.board.switch(arm("a", 3), reason="chosen"))
            await until(lambda: made.board._lanes.of("a").state.held)
            waiting = Client(made, "a")
            tasks.start_soon(waiting.run)
            await until(lambda: made.board.queue().waiting == 1)
            assert made.serving() == ["a@0"]
            running.finish.set()
            await until(lambda: waiting.lease)
            assert waiting.lease is not None
            assert waiting.lease.arm == arm("a", 3)
            waiting.finish.set()
        assert made.serving() == ["a@3"]


async def test_a_switch_to_what_runs_changes_nothing_and_drains_nobody() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        view = await made.board.switch(arm("a"), reason="again")
        assert view.state == "ready"
        assert made.actor("a").view().starts == 1


async def test_a_switch_to_the_same_arm_of_another_model_file_starts_that_file() -> None:
    async with bench() as made:
        await made.board.switch(arm("a", 1), reason="first")
        made.fingerprints["a"] = "of the new file"
        await made.board.switch(arm("a", 1), reason="the file was replaced")
        assert made.actor("a").view().starts == 2
        await made.board.switch(arm("a", 1), reason="again")
        assert made.actor("a").view().starts == 2
        assert made.serving() == ["a@1"]


async def test_a_switch_to_what_serves_is_refused_when_its_file_is_gone_and_it_goes_on() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.unplannable["a"] = EngineError("no such file", failure="config")
        with pytest.raises(EngineError, match="no such file"):
            await made.board.switch(arm("a"), reason="again")
        assert made.serving() == ["a@0"]
        assert made.actor("a").view().starts == 1


async def test_a_switch_that_may_not_cut_gives_up_and_requests_flow_again() -> None:
    async with bench(slots=2) as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        with pytest.raises(DrainTimeoutError, match="1 request"):
            await made.board.switch(arm("a", 1), reason="tuner", drain_timeout_s=0.01)
        assert made.serving() == ["a@0"]
        async with made.board.lease("a", request_id="2") as lease:
            assert lease.arm == arm("a")


async def test_a_forced_switch_cuts_what_still_runs() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        await made.board.switch(arm("a", 1), reason="now", force=True, drain_timeout_s=0.01)
        assert running.ended
        assert made.serving() == ["a@1"]


async def test_whoever_forces_without_a_patience_does_not_wait() -> None:
    async with bench() as made:
        async with clients(made, "a") as (running,):
            await until(lambda: running.lease)
            with anyio.fail_after(5):
                await made.board.switch(arm("a", 1), reason="now", force=True)
            assert running.ended
            assert made.serving() == ["a@1"]
        async with clients(made, "a") as (running,):
            await until(lambda: running.lease)
            with anyio.fail_after(5):
                await made.board.stop_engine("a", "now", force=True)
            assert running.ended
        assert made.serving() == []


async def test_a_failed_switch_brings_the_old_arm_back_and_says_why() -> None:
    async with bench() as made:
        await made.board.switch(arm("a", 1), reason="first")
        made.actor("b").script.append(Fails("oom_vram", "cudaMalloc failed", "backoff"))
        with pytest.raises(EngineError, match="cudaMalloc failed") as caught:
            await made.board.switch(arm("b"), reason="second")
        assert caught.value.failure == "oom_vram"
        assert made.serving() == ["a@1"]
        assert made.actor("b").view().state == "stopped"
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a", 1)


async def test_a_failed_depth_is_rolled_back_and_its_waiters_are_served() -> None:
    async with bench() as made:
        await made.board.switch(arm("a", 1), reason="first")
        gate = anyio.Event()
        made.actor("a").script.extend([Fails(), Loads(gate)])
        async with anyio.create_task_group() as tasks:

            async def failing() -> None:
                with pytest.raises(EngineError, match="truncated"):
                    await made.board.switch(arm("a", 2), reason="deeper")

            tasks.start_soon(failing)
            await until(lambda: made.actor("a").history[-1] == "loading a@1")
            waiting = Client(made, "a")
            tasks.start_soon(waiting.run)
            await until(lambda: made.board.queue().waiting)
            gate.set()
            await until(lambda: waiting.lease)
            waiting.finish.set()
        assert made.serving() == ["a@1"]


async def test_an_arm_that_cannot_be_planned_leaves_the_engine_alone() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.unplannable["b"] = BinaryError("this build lacks --spec-type")
        with pytest.raises(BinaryError):
            await made.board.switch(arm("b"), reason="second")
        with pytest.raises(RejectedError, match="lacks --spec-type"):
            async with made.board.lease("b", request_id="1"):
                pass
        async with made.board.lease("a", request_id="2"):
            assert made.actor("a").view().starts == 1


async def test_a_request_for_a_broken_profile_is_told_at_once_and_does_not_stop_the_good_one() -> (
    None
):
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.actor("b").script.append(Fails())
        for _ in range(3):
            with anyio.fail_after(5), pytest.raises(RejectedError) as caught:
                async with made.board.lease("b", request_id="1"):
                    pass
            assert str(caught.value) == "the model file is truncated"
            assert caught.value.status == 503
            assert caught.value.retry_after_s == 60
        await until(lambda: made.serving() == ["a@0"])
        assert made.actor("a").view().starts == 2
        assert made.actor("b").view().starts == 1


async def test_a_broken_profile_is_tried_again_after_a_while() -> None:
    async with bench() as made:
        made.actor("b").script.append(Fails())
        with pytest.raises(RejectedError):
            async with made.board.lease("b", request_id="1"):
                pass
        made.clock.advance(61)
        async with made.board.lease("b", request_id="2"):
            assert made.serving() == ["b@0"]


async def test_the_first_start_that_crashes_keeps_its_waiters_until_a_restart_succeeds() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("crash", "died", "backoff"))
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.actor("a").view().state == "backoff")
            await until(made.board.engines)
            await anyio.wait_all_tasks_blocked()
            assert made.board.queue().waiting == 1
            made.actor("a").recover()
            await until(lambda: waiting.lease)
            assert waiting.lease is not None
            assert waiting.lease.engine_id == "a#2"


async def test_a_restart_that_succeeds_while_nobody_looks_is_noticed() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("crash", "died", "backoff"))
        made.connecting = anyio.Event()
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.actor("a").view().state == "backoff")
            await anyio.wait_all_tasks_blocked()
            made.actor("a").recover()
            made.connecting.set()
            await until(lambda: waiting.lease)
            assert waiting.lease is not None
            assert waiting.lease.engine_id == "a#2"


async def test_an_engine_that_dies_while_it_is_connected_to_serves_nobody() -> None:
    async with bench() as made:
        made.connecting = anyio.Event()
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.actor("a").view().state == "ready")
            await anyio.wait_all_tasks_blocked()
            made.actor("a").crash()
            made.connecting.set()
            await anyio.wait_all_tasks_blocked()
            made.actor("a").recover()
            await until(lambda: waiting.lease)
            assert waiting.lease is not None
            assert waiting.lease.engine_id == "a#2"


async def test_requests_wait_while_a_crashed_engine_is_restarted() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.actor("a").crash()
        async with clients(made, "a") as (waiting,):
            await anyio.wait_all_tasks_blocked()
            assert made.board.queue().waiting == 1
            made.actor("a").recover()
            await until(lambda: waiting.lease)
            assert waiting.lease is not None
            assert waiting.lease.engine_id == "a#2"


async def test_an_engine_that_gives_up_turns_its_waiters_away_with_its_reason() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.actor("a").crash()
        async with clients(made, "a") as (waiting,):
            await anyio.wait_all_tasks_blocked()
            made.actor("a").give_up("it died too often")
            await until(lambda: waiting.ended)
            assert str(waiting.rejected) == "it died too often"


async def test_a_hanging_engine_is_let_go_of_so_that_it_can_end() -> None:
    async with bench() as made, clients(made, "a") as (running,):
        await until(lambda: running.lease)
        made.actor("a").hang()
        await until(lambda: running.ended)
        assert made.board.queue().in_flight == 0


async def test_the_65th_waiter_is_turned_away_at_once() -> None:
    async with bench() as made:
        made.actor("a").script.append(Loads(gate := anyio.Event()))
        async with clients(made, *["a"] * 64) as waiting:
            await until(lambda: made.board.queue().waiting == 64)
            with anyio.fail_after(SOON_S), pytest.raises(RejectedError) as caught:
                async with made.board.lease("a", request_id="65"):
                    pass
            assert caught.value.kind == "full"
            assert caught.value.retry_after_s >= 1
            gate.set()
            for client in waiting:
                client.finish.set()
            await until(lambda: all(client.ended for client in waiting))
            assert all(client.lease for client in waiting)


async def test_a_waiter_is_turned_away_when_its_time_is_up_on_the_daemons_clock() -> None:
    async with bench() as made:
        made.actor("a").script.append(Loads(anyio.Event()))
        async with clients(made, "a") as (waiting,):
            made.clock.advance(119)
            made.board.tick()
            assert made.board.queue().waiting == 1
            made.clock.advance(1)
            made.board.tick()
            await until(lambda: waiting.ended)
            assert waiting.rejected is not None
            assert waiting.rejected.kind == "deadline"


async def test_the_board_itself_ends_the_wait_when_it_is_due() -> None:
    async with bench(limits=Queue(queue_timeout_s=0.05)) as made:
        made.actor("a").script.append(Loads(anyio.Event()))
        async with clients(made, "a") as (waiting,):
            made.clock.advance(0.05)
            await until(lambda: waiting.ended)
            assert waiting.rejected is not None


async def test_a_client_that_leaves_the_queue_is_forgotten() -> None:
    async with bench() as made, clients(made, "a", "a") as (first, second):
        await until(lambda: first.lease)
        second.scope.cancel()
        await until(lambda: second.ended)
        assert made.board.queue().waiting == 0
        first.finish.set()
        await until(lambda: first.ended)
        assert second.lease is None


async def test_a_depth_that_cannot_be_planned_keeps_the_present_one_and_its_waiters() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.unplannable["a"] = BinaryError("the binary is gone")
        with pytest.raises(BinaryError):
            await made.board.switch(arm("a", 4), reason="deeper")
        async with made.board.lease("a", request_id="1") as lease:
            assert (lease.arm, lease.engine_id) == (arm("a"), "a#1")


async def test_when_the_roll_back_fails_as_well_everybody_is_told_why() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.actor("a").script.append(Fails(reason="the device is lost"))
        made.actor("b").script.append(Fails())
        with pytest.raises(EngineError, match="truncated"):
            await made.board.switch(arm("b"), reason="second")
        with pytest.raises(RejectedError, match="the device is lost"):
            async with made.board.lease("a", request_id="1"):
                pass
        with pytest.raises(RejectedError, match="truncated"):
            async with made.board.lease("b", request_id="2"):
                pass


async def test_an_engine_that_cannot_be_stopped_keeps_another_from_starting() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        made.actor("a").deaf = True
        with pytest.raises(EngineError):
            await made.board.switch(arm("b"), reason="second")
        assert made.actor("b").view().starts == 0
        with pytest.raises(RejectedError):
            async with made.board.lease("b", request_id="1"):
                pass


async def test_a_stopped_engine_comes_back_for_the_next_request() -> None:
    async with bench() as made:
        await made.board.switch(arm("a"), reason="first")
        await made.board.stop_engine("b", "not that one")
        assert made.serving() == ["a@0"]
        await made.board.stop_engine("a", "unload")
        assert made.serving() == []
        async with made.board.lease("a", request_id="1"):
            assert made.actor("a").view().starts == 2


async def test_a_cancelled_switch_leaves_no_engine_behind_and_the_queue_open() -> None:
    async with bench() as made:
        made.actor("a").script.append(Loads(anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: made.board.switch(arm("a", 1), reason="slow"))
            await until(lambda: made.actor("a").view().state == "loading")
            tasks.cancel_scope.cancel()
        assert made.actor("a").view().state == "stopped"
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a")


async def test_switches_that_contradict_each_other_are_done_one_after_the_other() -> None:
    async with bench() as made:
        async with anyio.create_task_group() as tasks:
            for depth in (1, 2, 3):
                tasks.start_soon(lambda d=depth: made.board.switch(arm("a", d), reason="x"))  # type: ignore[misc]  # a default binds the loop variable
        assert made.serving() == ["a@3"]
        assert made.actor("a").view().starts == 3


async def test_at_the_end_waiters_are_turned_away_and_running_requests_cut() -> None:
    async with bench() as made:
        async with clients(made, "a", "a") as (running, waiting):
            await until(lambda: running.lease)
            await until(lambda: made.board.queue().waiting)
            made.board.close("the daemon is stopping")
            await until(lambda: waiting.ended and running.ended)
            assert waiting.rejected is not None
            assert waiting.rejected.kind == "closed"
        with pytest.raises(RejectedError):
            async with made.board.lease("never-seen", request_id="1"):
                pass
