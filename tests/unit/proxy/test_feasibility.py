"""Arms that do not stay on the device: never served, remembered, left when it shows later."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from mtpd.errors import EngineError
from mtpd.proxy.feasibility import Feasibility, MisfitError
from mtpd.proxy.outcomes import RejectedError
from mtpd.types import Evidence, Verdict
from mtpd.units import MIB
from tests.fakes.actors import Fails
from tests.fakes.board import Bench, Client, arm, bench, clients, until
from tuner.types import Arm, Evicted, Resident, Spilled, Unknown

RESIDENT = Verdict(residency=Resident(), reason="all layers are offloaded")
EVICTED = Verdict(residency=Evicted(1), reason="1 layer of the model runs on the CPU")
SPILLED = Verdict(residency=Spilled(2**30), reason="1024 MiB are in host memory")
BAD = [EVICTED, SPILLED]


def starts(made: Bench, profile: str = "a") -> list[str]:
    """Every arm that was loaded, in order."""
    history = made.actor(profile).history
    return [line.removeprefix("loading ") for line in history if line.startswith("loading")]


def too_deep(made: Bench, verdict: Verdict, *, depth: int = 3, profile: str = "a") -> None:
    """Depths from ``depth`` on do not fit, the others do."""
    made.actor(profile).verdicts = {d: verdict if d >= depth else RESIDENT for d in range(6)}


@pytest.mark.parametrize("verdict", BAD)
async def test_a_switch_to_a_depth_that_does_not_fit_is_rolled_back_and_never_tried_again(
    verdict: Verdict,
) -> None:
    async with bench() as made:
        too_deep(made, verdict)
        await made.board.switch(arm("a", 2), reason="first")
        with pytest.raises(MisfitError, match="a@3 does not fit"):
            await made.board.switch(arm("a", 3), reason="deeper")
        assert made.serving() == ["a@2"]
        assert starts(made) == ["a@2", "a@3", "a@2"]
        for _ in range(2):
            with pytest.raises(MisfitError, match="as an earlier start showed"):
                await made.board.switch(arm("a", 3), reason="deeper")
        assert starts(made) == ["a@2", "a@3", "a@2"]
        made.fingerprints["a"] = "of another binary"
        too_deep(made, verdict, depth=4)
        await made.board.switch(arm("a", 3), reason="deeper")
        assert made.serving() == ["a@3"]


async def test_a_refusal_quotes_the_line_that_decided() -> None:
    line = "load_tensors: offloaded 65/66 layers to GPU"
    quoted = replace(EVICTED, evidence=(Evidence(line=line, says="layers on the device"),))
    async with bench() as made:
        too_deep(made, quoted)
        with pytest.raises(MisfitError) as refused:
            await made.board.switch(arm("a", 3), reason="deeper")
    assert str(refused.value).endswith(f"; layers on the device: {line}")


async def test_requests_wait_through_the_roll_back_and_none_is_served_by_what_does_not_fit() -> (
    None
):
    async with bench() as made:
        too_deep(made, EVICTED)
        await made.board.switch(arm("a", 2), reason="first")
        served: list[str] = []

        async def client() -> None:
            async with made.board.lease("a", request_id="1") as lease:
                served.append(str(lease.arm))

        async with anyio.create_task_group() as tasks:

            async def deeper() -> None:
                with pytest.raises(MisfitError):
                    await made.board.switch(arm("a", 3), reason="deeper")

            tasks.start_soon(deeper)
            await until(lambda: "loading a@3" in made.actor("a").history)
            for _ in range(5):
                tasks.start_soon(client)
        assert served == ["a@2"] * 5


async def test_a_request_is_served_by_the_deepest_depth_that_was_resident_instead() -> None:
    async with bench() as made:
        too_deep(made, EVICTED)
        made.chosen["a"] = arm("a", 4)
        for depth in (1, 2):
            await made.board.switch(arm("a", depth), reason="measured")
        await made.board.stop_engine("a", "unload")
        for _ in range(2):
            async with made.board.lease("a", request_id="1") as lease:
                assert lease.arm == arm("a", 2)
        assert starts(made) == ["a@1", "a@2", "a@4", "a@2"]


async def test_without_any_depth_known_to_fit_a_request_is_served_by_depth_0() -> None:
    async with bench() as made:
        too_deep(made, EVICTED, depth=1)
        made.chosen["a"] = arm("a", 4)
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a")
        assert starts(made) == ["a@4", "a@0"]


async def test_a_model_that_fits_at_no_depth_is_refused_once_and_then_without_a_start() -> None:
    async with bench() as made:
        too_deep(made, EVICTED, depth=0)
        made.chosen["a"] = arm("a", 2)
        await made.board.switch(arm("b"), reason="first")
        for _ in range(2):
            with pytest.raises(RejectedError, match="does not fit: 1 layer"):
                async with made.board.lease("a", request_id="1"):
                    pass
            made.clock.advance(61)
        await until(lambda: made.serving() == ["b@0"])
        assert starts(made) == ["a@2", "a@0"]


async def test_requests_for_another_model_that_does_not_fit_get_a_depth_of_it_that_does() -> None:
    async with bench() as made:
        too_deep(made, SPILLED, profile="b")
        made.chosen["b"] = arm("b", 3)
        await made.board.switch(arm("a"), reason="first")
        async with anyio.create_task_group() as tasks:

            async def switch() -> None:
                with pytest.raises(MisfitError):
                    await made.board.switch(arm("b", 3), reason="an operator")

            tasks.start_soon(switch)
            await until(lambda: "loading b@3" in made.actor("b").history)
            waiting = Client(made, "b")
            tasks.start_soon(waiting.run)
            await until(lambda: waiting.lease or waiting.rejected)
            assert waiting.arm() == arm("b")
            waiting.finish.set()


async def test_a_restart_after_a_crash_that_comes_back_evicted_serves_nobody() -> None:
    async with bench() as made:
        too_deep(made, EVICTED, depth=5)
        await made.board.switch(arm("a", 1), reason="shallow")
        await made.board.switch(arm("a", 2), reason="deeper")
        made.actor("a").crash()
        too_deep(made, EVICTED, depth=2)
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.board.queue().waiting == 1)
            made.actor("a").recover()
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 1)
        assert made.serving() == ["a@1"]


async def test_a_restart_that_comes_back_evicted_while_its_place_is_held_serves_nobody() -> None:
    async with bench() as made:
        too_deep(made, EVICTED, depth=5)
        await made.board.switch(arm("a", 1), reason="shallow")
        await made.board.switch(arm("a", 2), reason="deeper")
        made.actor("a").crash()
        too_deep(made, EVICTED, depth=2)
        async with clients(made, "a") as (waiting,):
            async with made.board._lanes.of("a").exclusive("a test", force=False, timeout_s=10):
                made.actor("a").recover()
                await anyio.wait_all_tasks_blocked()
                assert made.serving() == ["a@2"]
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 1)


async def test_a_refused_depth_during_a_restart_does_not_strand_who_waits_for_it() -> None:
    async with bench() as made:
        too_deep(made, EVICTED, depth=2)
        with pytest.raises(MisfitError):
            await made.board.switch(arm("a", 2), reason="deeper")
        made.actor("a").script.append(Fails("crash", "the engine died", "backoff"))
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.actor("a").view().state == "backoff")
            with pytest.raises(MisfitError):
                await made.board.switch(arm("a", 2), reason="deeper")
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 0)


@pytest.mark.parametrize("verdict", BAD)
async def test_a_serving_engine_that_degrades_is_left_when_its_requests_have_ended(
    verdict: Verdict,
) -> None:
    async with bench(slots=2) as made:
        too_deep(made, verdict, depth=5)
        await made.board.switch(arm("a", 1), reason="shallow")
        await made.board.switch(arm("a", 2), reason="deeper")
        async with clients(made, "a") as (running,), anyio.create_task_group() as tasks:
            await until(lambda: running.lease)
            made.actor("a").rejudge(verdict)
            await until(lambda: made.board._lanes.of("a").state.held)
            waiting = Client(made, "a")
            tasks.start_soon(waiting.run)
            await until(lambda: made.board.queue().waiting == 1)
            assert not running.ended
            running.finish.set()
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a", 1)
            waiting.finish.set()
        with pytest.raises(MisfitError):
            await made.board.switch(arm("a", 2), reason="again")


async def test_a_serving_engine_that_degrades_at_depth_0_is_stopped_and_its_waiters_told() -> None:
    async with bench() as made:
        made.actor("a").verdicts = {0: RESIDENT}
        await made.board.switch(arm("a"), reason="first")
        made.actor("a").rejudge(SPILLED)
        await until(lambda: made.actor("a").view().state == "stopped")
        with pytest.raises(RejectedError, match="1024 MiB are in host memory"):
            async with made.board.lease("a", request_id="1"):
                pass


async def test_an_operator_who_forces_it_gets_it_and_keeps_it() -> None:
    async with bench() as made:
        too_deep(made, EVICTED)
        with pytest.raises(MisfitError):
            await made.board.switch(arm("a", 3), reason="deeper")
        view = await made.board.switch(arm("a", 3), reason="all the same", force=True)
        assert view.state == "ready"
        made.actor("a").rejudge(SPILLED)
        made.actor("a").crash()
        made.actor("a").recover()
        async with made.board.lease("a", request_id="1") as lease:
            assert lease.arm == arm("a", 3)
        assert made.serving() == ["a@3"]


async def test_an_operator_can_force_what_already_serves_before_it_is_left() -> None:
    async with bench() as made:
        made.actor("a").verdicts = {1: RESIDENT}
        await made.board.switch(arm("a", 1), reason="first")
        await made.board.switch(arm("a", 1), reason="whatever comes", force=True)
        made.actor("a").rejudge(SPILLED)
        await anyio.wait_all_tasks_blocked()
        assert made.serving() == ["a@1"]


async def test_a_forced_start_that_fits_after_all_clears_the_memory() -> None:
    async with bench() as made:
        too_deep(made, EVICTED)
        with pytest.raises(MisfitError):
            await made.board.switch(arm("a", 3), reason="deeper")
        too_deep(made, EVICTED, depth=4)
        await made.board.switch(arm("a", 3), reason="the desktop was closed", force=True)
        await made.board.switch(arm("a", 1), reason="shallow")
        await made.board.switch(arm("a", 3), reason="deeper")
        assert made.serving() == ["a@3"]


async def test_a_hold_may_measure_what_does_not_fit_once_and_leaves_it_to_nobody() -> None:
    async with bench() as made:
        too_deep(made, EVICTED)
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a", 3))
            assert hold.running.verdict == EVICTED
        assert made.serving() == []
        async with made.board.hold(reason="measuring") as hold:
            with pytest.raises(MisfitError):
                await hold.start(arm("a", 3))
            await hold.start(arm("a", 2))
        assert made.serving() == ["a@2"]
        made.actor("a").rejudge(EVICTED)
        await until(lambda: made.serving() == ["a@0"])


async def test_an_engine_that_degrades_while_it_is_measured_is_the_holders_business() -> None:
    async with bench() as made:
        too_deep(made, EVICTED)
        async with made.board.hold(reason="measuring") as hold:
            await hold.start(arm("a", 1))
            made.actor("a").rejudge(SPILLED)
            await anyio.wait_all_tasks_blocked()
            assert made.serving() == ["a@1"]
        assert made.serving() == []


async def test_an_unknown_residency_is_served_and_not_remembered() -> None:
    async with bench() as made:
        unknown = Verdict(residency=Unknown("no lines"), reason="no lines")
        made.actor("a").verdicts = {1: unknown}
        await made.board.switch(arm("a", 1), reason="first")
        assert made.serving() == ["a@1"]


@pytest.mark.parametrize("state", ["vram_unrecovered", "gpu_failed"])
async def test_a_card_that_is_not_free_turns_requests_away_with_its_reason(state: str) -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails(state, "held by: 4711 llama-server", state))
        with pytest.raises(RejectedError, match="4711 llama-server"):
            async with made.board.lease("a", request_id="1"):
                pass
        made.clock.advance(61)
        async with made.board.lease("a", request_id="2"):
            pass
        made.actor("a").crash()
        async with clients(made, "a") as (waiting,):
            await anyio.wait_all_tasks_blocked()
            made.actor("a")._fail(Fails(state, "held by: 99 Xorg", state))
            await until(lambda: waiting.ended)
            assert str(waiting.rejected) == "held by: 99 Xorg"


OOM = "there is not enough device memory for 1 slot and a context of 4096 tokens"


@pytest.mark.parametrize("state", ["backoff", "failed"])
async def test_an_arm_that_runs_out_of_memory_at_its_load_is_a_misfit_and_what_served_is_back(
    state: str,
) -> None:
    async with bench() as made:
        await made.board.switch(arm("a", 2), reason="first")
        made.actor("a").script.append(Fails("oom_vram", OOM, state))
        served: list[str] = []

        async def client() -> None:
            async with made.board.lease("a", request_id="1") as lease:
                served.append(str(lease.arm))

        async with anyio.create_task_group() as tasks:

            async def deeper() -> None:
                with pytest.raises(MisfitError, match="a@3 does not fit: there is not enough"):
                    await made.board.switch(arm("a", 3), reason="deeper")

            tasks.start_soon(deeper)
            await until(lambda: "loading a@3" in made.actor("a").history)
            for _ in range(3):
                tasks.start_soon(client)
        assert served == ["a@2"] * 3
        with pytest.raises(MisfitError, match="as an earlier start showed"):
            await made.board.switch(arm("a", 3), reason="deeper")
        assert starts(made) == ["a@2", "a@3", "a@2"]


async def test_a_request_is_served_by_a_shallower_arm_where_its_own_runs_out_of_memory() -> None:
    async with bench() as made:
        made.chosen["a"] = arm("a", 3)
        made.actor("a").script.append(Fails("oom_vram", OOM, "backoff"))
        for _ in range(2):
            async with made.board.lease("a", request_id="1") as lease:
                assert lease.arm == arm("a")
        assert starts(made) == ["a@3", "a@0"]


async def test_a_measurement_of_an_arm_that_runs_out_of_memory_finds_a_misfit() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("oom_vram", OOM, "failed"))
        async with made.board.hold(reason="measuring") as hold:
            with pytest.raises(MisfitError) as caught:
                await hold.start(arm("a", 3))
            assert caught.value.verdict.residency == Evicted(None)
            await hold.start(arm("a", 2))
        assert made.serving() == ["a@2"]


async def test_depth_0_that_runs_out_of_memory_is_waited_for_while_its_supervisor_tries() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("oom_vram", OOM, "backoff"))
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.actor("a").view().state == "backoff")
            made.actor("a").recover()
            await until(lambda: waiting.lease)
            assert waiting.arm() == arm("a")
        await made.board.switch(arm("a"), reason="it fits after all")


@pytest.mark.parametrize(("depth", "instead"), [(2, arm("a")), (0, None)])
async def test_an_engine_that_runs_out_of_memory_again_and_again_while_it_serves(
    depth: int, instead: Arm | None
) -> None:
    async with bench() as made:
        await made.board.switch(arm("a", depth), reason="first")
        made.actor("a")._fail(Fails("oom_vram", OOM, "backoff"))
        async with clients(made, "a") as (waiting,):
            await until(lambda: made.board.queue().waiting == 1)
            made.actor("a")._fail(Fails("oom_vram", OOM, "failed"))
            await until(lambda: waiting.lease or waiting.rejected)
            assert waiting.arm() == instead
            assert (waiting.rejected is None) == (instead is not None)


async def test_what_fails_for_another_reason_is_not_taken_for_a_misfit() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("crash", "cudaMalloc failed", "failed"))
        with pytest.raises(EngineError, match="cudaMalloc") as caught:
            await made.board.switch(arm("a", 2), reason="deeper")
        assert not isinstance(caught.value, MisfitError)
        await made.board.switch(arm("a", 2), reason="again")
        assert made.serving() == ["a@2"]


def test_an_arm_that_did_not_fit_is_tried_again_where_there_is_clearly_more_room() -> None:
    room: list[int | None] = [10_000 * MIB]
    known = Feasibility(lambda _: room[0])
    known.note("f", arm("a", 3), replace(EVICTED, room_bytes=10_000 * MIB))
    for mib, fits in ((10_127, False), (10_128, True), (9_000, False)):
        room[0] = mib * MIB
        assert (known.misfit("f", arm("a", 3)) is None) == fits
    room[0] = None
    assert known.misfit("f", arm("a", 3)) is not None
    known.note("f", arm("a", 2), EVICTED)
    room[0] = 10_128 * MIB
    assert known.misfit("f", arm("a", 2)) is not None, "how much room it had is not known"


def test_each_further_load_needs_more_room_than_the_one_that_failed_with_most() -> None:
    room = [0]
    known = Feasibility(lambda _: room[0])
    for mib in (10_300, 10_000):
        known.note("f", arm("a", 3), replace(SPILLED, room_bytes=mib * MIB))
    room[0] = 10_300 * MIB
    assert known.misfit("f", arm("a", 3)) is not None
    known.note("f", arm("a", 3), RESIDENT)
    known.note("f", arm("a", 3), replace(SPILLED, room_bytes=10_000 * MIB))
    assert known.misfit("f", arm("a", 3)) is None


def test_what_is_remembered_belongs_to_one_fingerprint_and_one_arm() -> None:
    known = Feasibility()
    known.note("f", arm("a", 3), EVICTED)
    assert known.misfit("f", arm("a", 3)) == EVICTED
    assert known.misfit("g", arm("a", 3)) is None
    assert known.misfit("f", arm("a", 2)) is None
    known.note("f", arm("a", 3), Verdict())
    assert known.misfit("f", arm("a", 3)) == EVICTED
    known.note("f", arm("a", 3), RESIDENT)
    assert known.misfit("f", arm("a", 3)) is None


def test_the_room_in_which_an_arm_did_not_fit_is_known() -> None:
    known = Feasibility()
    assert known.short_of("f", arm("a", 3)) is None
    known.note("f", arm("a", 3), replace(EVICTED, room_bytes=9_000 * MIB))
    assert known.short_of("f", arm("a", 3)) == 9_000 * MIB
    assert known.short_of("g", arm("a", 3)) is None
    known.note("f", arm("a", 3), Verdict(residency=Resident(), reason="it fits now"))
    assert known.short_of("f", arm("a", 3)) is None
