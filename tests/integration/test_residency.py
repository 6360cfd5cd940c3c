"""A whole daemon on a fake card whose counters move with its scripted engines."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.events import EngineTransition, ResidencyJudged
from mtpd.units import MIB
from tests.fakes import sysfs
from tests.fakes.binary import fake_binary
from tests.fakes.card_memory import bury, counter
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Device, Script
from tests.fakes.supervision import until

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.clock import Clock
    from mtpd.views import EngineView, OperationView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

SCRIPT = Script(device=Device(), acceptance=(0.9, 0.7, 0.5))
BAD = [{"evict_at_depth": 3}, {"spill_at_depth": 3}]


class Hurried:
    """Time that passes twenty times as fast, for those who ask what time it is."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def now(self) -> float:
        return self._clock.now() * 20.0

    def utc(self) -> dt.datetime:
        return self._clock.utc()

    def slept(self) -> float:
        return self._clock.slept()


@dataclass
class Rig:
    """A card, a place for daemons on it, and the daemon that runs."""

    tree: sysfs.Tree
    place: Home

    def engine(self, name: str, knobs: dict[str, Any]) -> None:
        """Put another llama-server in the place of the present one."""
        script = replace(SCRIPT, **{"machine": str(self.tree.root), **knobs})
        fake_binary(self.place.root / "llama-server", script)
        with (self.place.root / "llama-server").open("a") as file:
            file.write(f"\n# {name}\n")

    @asynccontextmanager
    async def daemon(self, clock: Clock | None = None) -> AsyncIterator[Box]:
        root = self.tree.root
        async with daemon_at(self.place, machine=root, clock=clock) as (running, client):
            box = Box(running, client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(box.listen)
                tasks.start_soon(self.bury)
                await until(lambda: box.listening)
                yield box
                tasks.cancel_scope.cancel()

    async def bury(self) -> None:
        while True:
            bury(self.tree.root)
            await anyio.sleep(0.05)


@dataclass
class Box:
    """A running daemon and what it told."""

    running: Daemon
    client: aiohttp.ClientSession
    listening: bool = False

    def __post_init__(self) -> None:
        self.starts: list[str] = []
        self.moves: list[EngineTransition] = []
        self.judged: list[str] = []

    async def listen(self) -> None:
        async with self.running.bus.subscribe(None) as events:
            self.listening = True
            async for envelope in events:
                event = getattr(envelope, "event", None)
                if isinstance(event, EngineTransition):
                    self.moves.append(event)
                    self.starts += [event.arm] if event.new == "spawning" else []
                if isinstance(event, ResidencyJudged):
                    self.judged.append(f"{event.arm} {event.residency.state}")

    async def switch(self, depth: int, *, force: bool = False) -> OperationView:
        started = await self.running.control.switch(
            model="alpha", depth=depth, force=force, idempotency_key=None
        )
        return await run_operation(self.running, started)

    async def depth(self) -> str:
        """The depth that serves a request."""
        body = {"model": "alpha", "prompt": "x", "n_predict": 4}
        async with self.client.post("/completion", json=body) as reply:
            assert reply.status == 200, await reply.text()
            return reply.headers["X-Mtpd-Depth"]

    async def engine(self) -> EngineView:
        status = await self.running.control.status()
        (engine,) = [one for one in status.engines if one.profile == "alpha"]
        return engine


@asynccontextmanager
async def rig(**knobs: Any) -> AsyncIterator[Rig]:
    async with home() as place:
        with tempfile.TemporaryDirectory(prefix="mtpd-card-") as folder:
            made = Rig(sysfs.build(Path(folder), "idle"), place)
            made.engine("a build", knobs)
            yield made


@pytest.mark.parametrize("knobs", BAD, ids=["evicted", "spilled"])
async def test_a_depth_that_does_not_fit_is_found_before_any_request_and_never_tried_again(
    knobs: dict[str, int],
) -> None:
    bad = next(iter(knobs)).partition("_")[0]
    label = {"evict": "evicted", "spill": "spilled"}[bad]
    async with rig(**knobs) as made:
        async with made.daemon() as box:
            assert (await box.switch(2)).state == "done"
            engine = await box.engine()
            assert engine.residency.state == "resident"
            assert engine.residency.confidence == "measured"
            depths: list[str] = []

            async def client() -> None:
                depths.append(await box.depth())

            async with anyio.create_task_group() as tasks:

                async def deeper() -> None:
                    failed = await box.switch(3)
                    assert failed.state == "failed"
                    assert failed.error is not None
                    assert "alpha@3 does not fit" in str(failed.error["detail"])

                tasks.start_soon(deeper)
                await until(lambda: "alpha@3" in box.starts)
                for _ in range(4):
                    tasks.start_soon(client)
            assert depths == ["2"] * 4
            await until(lambda: len(box.judged) == 3)
            assert box.judged == ["alpha@2 resident", f"alpha@3 {label}", "alpha@2 resident"]
            again = await box.switch(3)
            assert again.state == "failed"
            assert box.starts == ["alpha@2", "alpha@3", "alpha@2"]
        async with made.daemon() as box:  # another life, the same fingerprint
            assert (await box.switch(3)).state == "failed"
            assert box.starts == []
            assert await box.depth() == "0"
        made.engine("another build", {})
        async with made.daemon() as box:
            assert (await box.switch(3)).state == "done"
            assert await box.depth() == "3"
            assert box.starts == ["alpha@3"]


async def test_a_depth_that_runs_out_of_memory_at_its_load_is_never_tried_again() -> None:
    async with rig(oom_at_depth=3) as made:
        async with made.daemon() as box:
            assert (await box.switch(2)).state == "done"
            failed = await box.switch(3)
            assert failed.state == "failed"
            assert failed.error is not None
            assert "there is not enough device memory for" in str(failed.error["detail"])
            assert await box.depth() == "2"
            assert (await box.switch(3)).state == "failed"
            assert box.starts == ["alpha@2", "alpha@3", "alpha@2"]
        async with made.daemon() as box:
            assert (await box.switch(3)).state == "failed"
            assert box.starts == []


OTHER = 999_999_999
"""Pid of a program that is nobody's engine."""


@pytest.mark.parametrize("while_it_serves", [True, False])
async def test_memory_that_another_program_held_rules_an_arm_out_only_while_it_holds_it(
    *, while_it_serves: bool
) -> None:
    total = sysfs.VRAM_TOTAL // MIB
    async with rig(oom_at_depth=3, oom_below_mib=total - 200) as made:
        tree = made.tree

        def move(mib: int) -> None:
            tree.vram(int(counter(tree.root, "vram").read_text()) + mib * MIB)

        tree.process(OTHER, vram_bytes=300 * MIB, kfd=False, name="firefox")
        move(300)
        async with made.daemon() as box:
            assert (await box.switch(3)).state == "failed"
            if while_it_serves:
                assert (await box.switch(2)).state == "done"
            assert (await box.switch(3)).state == "failed"
            assert box.starts.count("alpha@3") == 1
            tree.end(OTHER)
            move(-300)
            with anyio.fail_after(20):
                while (await box.switch(3)).state != "done":  # noqa: ASYNC110 - a question
                    await anyio.sleep(0.2)
            assert await box.depth() == "3"
            assert box.starts.count("alpha@3") == 2


async def test_memory_that_another_program_took_during_a_load_is_not_held_against_the_arm() -> None:
    total = sysfs.VRAM_TOTAL // MIB
    async with rig(oom_at_depth=3, oom_below_mib=total - 5_000, load_s=1.0) as made:
        tree, vram = made.tree, counter(made.tree.root, "vram")
        own = int(vram.read_text())
        rest = sysfs.VRAM_TOTAL - 32 * MIB
        async with made.daemon() as box, anyio.create_task_group() as tasks:
            told: list[OperationView] = []

            async def ask() -> None:
                told.append(await box.switch(3))

            tasks.start_soon(ask)
            await until(lambda: any(one.new == "loading" for one in box.moves))
            tree.process(OTHER, vram_bytes=rest - own, kfd=False, name="renderer")
            tree.vram(rest)
            await until(lambda: bool(told), within_s=20)
            (failed,) = told
            assert failed.error is not None
            said = str(failed.error["detail"])
            assert "there is not enough device memory for" in said
            assert (
                "and 32 MiB are free now that it has ended (mtpctl gpu shows what others hold)"
                in said
            )
            assert (await box.switch(3)).state == "failed"
        tree.end(OTHER)
        tree.vram(own)
        async with made.daemon() as box:
            assert (await box.switch(3)).state == "done", "another daemon believes the ledger"
            assert await box.depth() == "3"


async def test_a_resident_engine_that_spills_while_it_serves_is_left_and_requests_wait() -> None:
    async with rig() as made, made.daemon() as box:
        await box.switch(1)
        await box.switch(2)
        (pid,) = [one.pid for one in (await box.running.control.status()).engines if one.pid]
        used = int(counter(made.tree.root, "vram").read_text())
        made.tree.process(
            pid, vram_bytes=used - 1500 * MIB, gtt_bytes=1500 * MIB, evicted_bytes=1500 * MIB
        )
        await until(lambda: "alpha@2 spilled" in box.judged, within_s=20)
        await until(lambda: box.starts[-1] == "alpha@1", within_s=20)
        assert await box.depth() == "1"
        assert (await box.switch(2)).state == "failed"


async def test_memory_that_never_comes_back_is_a_state_with_its_holders() -> None:
    async with rig(keep_vram=True) as made, made.daemon(Hurried()) as box:
        await box.switch(2)
        await box.running.control.unload(model="alpha", idempotency_key=None)
        with anyio.fail_after(60):
            while (await box.engine()).state != "vram_unrecovered":  # noqa: ASYNC110 - a question
                await anyio.sleep(0.2)
        failure = (await box.engine()).failure
        assert failure is not None
        assert "that no visible process owns" in failure.reason
        made.tree.vram(sysfs.VRAM_TOTAL - 4 * MIB)  # what is free is too little for any model
        body = {"model": "alpha", "prompt": "x", "n_predict": 4}
        async with box.client.post("/completion", json=body) as reply:
            assert reply.status == 503
            assert "have not come back" in await reply.text()
        assert (await box.engine()).state == "vram_unrecovered"
        made.tree.vram(11 * MIB)
        await until_state(box, "stopped")
        assert (await box.switch(2)).state == "done"


async def until_state(box: Box, state: str) -> None:
    with anyio.fail_after(40):
        while (await box.engine()).state != state:  # noqa: ASYNC110 - a question
            await anyio.sleep(0.1)


async def test_an_engine_on_another_card_is_refused() -> None:
    wrong = Device(bus_id="0000:0a:00.0")
    async with rig(device=wrong, machine=None) as made, made.daemon() as box:
        failed = await box.switch(0)
        assert failed.state == "failed"
        assert failed.error is not None
        assert "wrong device: the engine uses 0000:0a:00.0" in str(failed.error["detail"])
        assert box.starts == ["alpha@0"]
        assert (await box.engine()).state in {"failed", "stopped"}


async def test_an_engine_that_lost_its_card_is_replaced_although_it_is_healthy() -> None:
    async with rig(lose_card_at_token=12) as made, made.daemon() as box:
        await box.switch(0)
        body = {"model": "alpha", "prompt": "x", "n_predict": 40}
        async with box.client.post("/completion", json=body) as reply:
            assert reply.status == 500
        await until(lambda: len(box.starts) > 1, within_s=20)
        reasons = [event.reason for event in box.moves if event.new == "stopping"]
        assert "the GPU was lost" in reasons[0]


async def test_a_card_that_stays_silent_after_a_hang_takes_no_start_until_it_answers() -> None:
    hung = "HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang"
    async with (
        rig(crash_at_token=12, say_at_start=(hung,)) as made,
        made.daemon(Hurried()) as box,
    ):
        await box.switch(0)
        sensors = made.tree.root / sysfs.hwmon() / "temp1_input"
        kept = sensors.read_text()
        sensors.write_text("\n")  # as a driver answers while the card is in a reset
        body = {"model": "alpha", "prompt": "x", "n_predict": 40}
        async with box.client.post("/completion", json=body) as reply:
            await reply.read()
        await until_state(box, "gpu_failed")
        async with box.client.post("/completion", json=body) as reply:
            assert reply.status == 503
            assert "has not answered since it hung" in await reply.text()
        moves = [(move.old, move.new) for move in box.moves]
        assert ("spawning", "loading") in moves
        assert moves.count(("spawning", "loading")) == 1  # no second process was made
        sensors.write_text(kept)
        await until_state(box, "stopped")
        assert (await box.switch(0)).state == "done"
