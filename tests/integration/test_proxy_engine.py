"""The data plane over real processes: the switchboard, its supervisors, scripted engines."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.config.model import Config
from mtpd.engine.client import EngineClient
from mtpd.errors import EngineError
from mtpd.faults import NoFaults
from mtpd.proxy.seats import Seat, Seating
from mtpd.proxy.switch import Switchboard
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.runner import EngineActor
from mtpd.supervise.spawn import ShimSpawner
from mtpd.types import EngineKey
from mtpd.units import HOST, EngineId
from tests.fakes.board import Queue, arm, until
from tests.fakes.front import Front, front
from tests.fakes.patience import SOON_S
from tests.fakes.supervision import MemoryLedger, hurried, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mtpd.types import LaunchPlan
    from tuner.types import Arm

pytestmark = pytest.mark.slow
TEXT = " ".join(f"w{n}" for n in range(1000))


@dataclass
class House:
    """Everything between the client and the processes."""

    board: Switchboard[EngineClient]
    front: Front

    def pid(self) -> int:
        (pid,) = (view.pid for view in self.board.engines() if view.pid is not None)
        return pid

    async def words(self, tokens: int) -> tuple[str, str]:
        """The text of one streamed completion, and the depth that made it."""
        depth, text = "", ""
        request = {"prompt": "x", "n_predict": tokens, "stream": True, "model": "a"}
        async with self.front.session.post(self.front.url("/completion"), json=request) as reply:
            depth = reply.headers["X-Mtpd-Depth"]
            raw = await reply.read()
        data = [event for event in raw.split(b"\n\n") if event.startswith(b"data: ")]
        events = [json.loads(event.removeprefix(b"data: ")) for event in data]
        assert events[-1]["stop"] is True
        for event in events:
            text += event["content"]
        return text, depth


@asynccontextmanager
async def house(
    *, slots: int = 1, special: Mapping[str, Mapping[str, object]] | None = None, **knobs: object
) -> AsyncIterator[House]:
    """Run everything while the block runs; ``special`` has knobs by profile."""
    count = 0

    def new_id() -> EngineId:
        nonlocal count
        count += 1
        return EngineId(f"e{os.getpid()}-{count}")

    def actor(key: EngineKey) -> EngineActor:
        return EngineActor(
            key=key,
            spawner=ShimSpawner(),
            ledger=MemoryLedger(),
            clock=SystemClock(),
            faults=NoFaults(),
            probe=EngineProbe(),
            log_dir=None,
            on_event=lambda _: None,
            rng=lambda: 0.5,
            new_id=new_id,
            sleep=hurried,
        )

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def plan(wanted: Arm) -> LaunchPlan:
            own = folder / wanted.profile
            own.mkdir(exist_ok=True)
            own_knobs = (special or {}).get(wanted.profile, {})
            given: dict[str, Any] = {"text": TEXT, **knobs, **own_knobs}
            base = scripted(own, depth=wanted.depth, **given)
            return replace(base, key=EngineKey(HOST, wanted.profile), arm=wanted)

        board = Switchboard(
            make_actor=actor,
            plan_for=plan,
            arm_for=arm,
            seating=Seating(Config(), device_for=lambda _: HOST),
            slots_for=lambda _: slots,
            connect=EngineClient,
            limits=Queue(),
            clock=SystemClock(),
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(board.run)
        yield House(board, await stack.enter_async_context(front(board, SystemClock())))
        tasks.cancel_scope.cancel()


async def test_a_request_starts_the_engine_and_its_stream_arrives_whole() -> None:
    async with house() as h:
        text, depth = await h.words(20)
        assert (len(text.split()), depth) == (20, "0")
        (event,) = h.front.finished
        assert (event.outcome, event.completion_tokens) == ("complete", 20)
        assert event.decode_tps is not None


async def test_another_model_replaces_the_process_and_only_one_ever_runs() -> None:
    async with house() as h:
        await h.words(3)
        first = h.pid()
        response, _ = await h.front.post(model="b", messages=[{"role": "user", "content": "x"}])
        assert response.status == 200
        assert h.pid() != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)


async def test_no_stream_is_lost_cut_or_doubled_while_the_depth_is_switched() -> None:
    seen: list[tuple[str, str]] = []
    async with house(slots=2) as h:
        expected, _ = await h.words(40)
        async with anyio.create_task_group() as tasks:

            async def client() -> None:
                seen.extend([await h.words(40) for _ in range(4)])

            for _ in range(6):
                tasks.start_soon(client)
            for depth in (1, 2, 0, 3):
                await h.board.switch(arm("a", depth), reason="test")
        assert len(seen) == 24
        assert {text for text, _ in seen} == {expected}
        assert {event.outcome for event in h.front.finished} == {"complete"}


async def test_a_killed_engine_is_seen_by_its_client_and_back_for_the_next_one() -> None:
    async with house(realtime=True, tps0=50.0) as h:
        body = {"model": "a", "prompt": "x", "n_predict": 500, "stream": True}
        wire = await h.front.connect(json.dumps(body).encode(), "/v1/completions")
        await wire.until(b"data: ")
        before = h.pid()
        os.kill(before, signal.SIGKILL)
        whole = await wire.rest()
        assert b"upstream_lost" in whole
        assert b"[DONE]" not in whole
        assert not whole.endswith(b"0\r\n\r\n")
        text, _ = await h.words(3)
        assert len(text.split()) == 3
        assert h.pid() != before


async def test_a_client_that_leaves_ends_the_generation() -> None:
    async with house(realtime=True, tps0=50.0) as h:
        body = {"model": "a", "prompt": "x", "n_predict": 5000, "stream": True}
        wire = await h.front.connect(json.dumps(body).encode(), "/completion")
        await wire.until(b"data: ")
        wire.leave()
        with anyio.fail_after(SOON_S):
            await until(lambda: h.board.queue().in_flight == 0)
        running = h.board._engines.ready(Seat(HOST))
        assert running is not None
        with anyio.fail_after(SOON_S):
            while await busy(running.client):  # noqa: ASYNC110 - a question to a process
                await anyio.sleep(0.01)


async def test_two_hundred_clients_that_leave_free_the_slot(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with house(realtime=True, tps0=200.0) as h:
        body = json.dumps({"model": "a", "prompt": "x", "n_predict": 5000, "stream": True})
        slowest = 0.0
        for _ in range(200):
            wire = await h.front.connect(body.encode(), "/completion")
            await wire.until(b"data: ")
            running = h.board._engines.ready(Seat(HOST))
            assert running is not None
            wire.leave()
            left = anyio.current_time()
            with anyio.fail_after(SOON_S):
                while await busy(running.client):
                    await anyio.lowlevel.checkpoint()
            slowest = max(slowest, anyio.current_time() - left)
        with capsys.disabled():
            print(f" the slowest slot was free after {1000 * slowest:.0f} ms", end="")  # noqa: T201
        assert {event.outcome for event in h.front.finished} == {"client_gone"}


async def busy(client: EngineClient) -> bool:
    return any(slot["is_processing"] for slot in await client.slots() if isinstance(slot, dict))


async def test_a_forced_switch_cuts_an_open_stream_and_the_old_process_ends_at_once() -> None:
    async with house(realtime=True, tps0=50.0) as h:
        body = {"model": "a", "prompt": "x", "n_predict": 5000, "stream": True}
        wire = await h.front.connect(json.dumps(body).encode(), "/completion")
        await wire.until(b"data: ")
        with anyio.fail_after(8):
            view = await h.board.switch(arm("a", 1), reason="now", force=True, drain_timeout_s=0.05)
        assert view.state == "ready"
        whole = await wire.rest()
        assert b"upstream_lost" in whole


async def test_an_engine_that_does_not_start_is_rolled_back_to_the_one_before() -> None:
    async with house(special={"b": {"exit_code_at_start": 1}}) as h:
        await h.words(3)
        with pytest.raises(EngineError):
            await h.board.switch(arm("b"), reason="try")
        text, _ = await h.words(3)
        assert len(text.split()) == 3
        response, body = await h.front.post(model="b", messages=[])
        assert response.status == 503
        assert json.loads(body)["error"]["code"] == "engine_unavailable"


async def test_nothing_is_left_when_the_house_ends_with_an_open_stream() -> None:
    async with house(realtime=True, tps0=50.0) as h:
        body = {"model": "a", "prompt": "x", "n_predict": 5000, "stream": True}
        wire = await h.front.connect(json.dumps(body).encode(), "/completion")
        await wire.until(b"data: ")
        pid = h.pid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
