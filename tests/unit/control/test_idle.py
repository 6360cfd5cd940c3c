"""An engine that nobody asks for is unloaded; whoever asks keeps it."""

from __future__ import annotations

import math
import sqlite3
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mtpd.bus import Bus
from mtpd.config.model import Config, ServerConfig
from mtpd.control.idle import IdleUnloader
from mtpd.control.recorder import StoreRecorder
from mtpd.events import EngineTransition
from mtpd.store.db import Database
from mtpd.store.journal import DecisionFilter, Journal
from mtpd.store.samples import Measurements
from tests.fakes.board import Bench, Client, arm, clients, until
from tests.unit.control.made import profile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.views import DecisionView, Json

CONFIG = Config(
    server=ServerConfig(ttl_s=300.0),
    profiles={"a": profile("a"), "b": profile("b", ttl_s=0.0), "c": profile("c", ttl_s=5.0)},
)


@dataclass
class Desk:
    """A switchboard with the unloader over it; time moves by hand."""

    bench: Bench
    unloader: IdleUnloader
    journal: Journal

    async def load(self, name: str) -> None:
        await self.bench.board.switch(arm(name), reason="wanted")
        self.tell(name, "ready")

    def tell(self, name: str, state: str) -> None:
        moved = EngineTransition(
            engine_id="e", profile=name, arm=name, old="loading", new=state, reason="r"
        )
        self.unloader.observe(moved)

    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.unloader.look()

    async def decisions(self) -> tuple[DecisionView, ...]:
        return await self.journal.list(DecisionFilter(limit=9))

    async def only(self) -> DecisionView:
        """The one decision, once it has an outcome."""
        with anyio.fail_after(10):
            while not all(one.outcome for one in await self.decisions()):  # noqa: ASYNC110 - rows
                await anyio.sleep(0.002)
        (decision,) = await self.decisions()
        return decision


async def undescribed(_profile: str, _fingerprint: str) -> dict[str, Json] | None:
    return None


@dataclass
class Disk:
    """Takes so many more writes, then is full."""

    left: float = math.inf

    def hit(self, point: str) -> None:
        if point == "store.before_commit":
            self.left -= 1
            if self.left < 0:
                msg = "database or disk is full"
                raise sqlite3.OperationalError(msg)


@asynccontextmanager
async def desk(folder: Path, disk: Disk | None = None) -> AsyncIterator[Desk]:
    held: list[IdleUnloader] = []

    def asking(name: str) -> AbstractContextManager[None]:
        return held[0].asking(name)

    bench = Bench(asking=asking)
    async with await Database.open(
        folder / "state.sqlite3", bench.clock, faults=disk or Disk()
    ) as db:
        journal = Journal(db=db, clock=bench.clock)
        recorder = StoreRecorder(
            measurements=Measurements(db=db, clock=bench.clock),
            journal=journal,
            bus=Bus(boot="b", clock=bench.clock),
            describe=undescribed,
        )
        unloader = IdleUnloader(
            config=CONFIG, recorder=recorder, journal=journal, clock=bench.clock
        )
        held.append(unloader)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.board.run)
            tasks.start_soon(unloader.run, bench.board)
            yield Desk(bench, unloader, journal)
            tasks.cancel_scope.cancel()


async def test_an_engine_is_unloaded_once_nobody_asked_for_it_for_its_time(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.load("a")
        made.wait(299.0)
        await anyio.wait_all_tasks_blocked()
        assert made.bench.serving() == ["a@0"]
        made.wait(2.0)
        await until(lambda: not made.bench.serving())
        told = await made.only()
        assert (told.act, told.subject, told.outcome) == ("unload", "a", "unloaded")
        assert told.reason == "nobody has asked for a for 300 s, its ttl_s"
        assert told.evidence == ("idle for 301.0 s", "no request waits or runs")


async def test_a_request_keeps_its_engine_however_long_it_takes(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        async with clients(made.bench, "c") as (running,):
            await until(lambda: running.lease)
            made.tell("c", "ready")
            made.wait(3600.0)
            await anyio.wait_all_tasks_blocked()
            assert made.bench.serving() == ["c@0"]
            running.finish.set()
            await until(lambda: running.ended)
        made.wait(4.9)  # its time begins with the end of the request
        await anyio.wait_all_tasks_blocked()
        assert made.bench.serving() == ["c@0"]
        made.wait(0.2)
        await until(lambda: not made.bench.serving())


async def test_a_time_of_0_keeps_a_model_where_others_have_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.load("b")
        made.wait(1e6)
        await anyio.wait_all_tasks_blocked()
        assert made.bench.serving() == ["b@0"]
        assert await made.decisions() == ()


async def test_a_hold_that_ends_with_a_request_waiting_unloads_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as made, anyio.create_task_group() as tasks:
        await made.load("c")
        waiting = Client(made.bench, "c")
        async with made.bench.board.hold(reason="measuring"):
            made.wait(60.0)  # due, and the hold has the engine
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(waiting.run)
            await until(lambda: made.bench.board.queue().waiting == 1)
        await until(lambda: waiting.lease)
        # It has given up by itself: whoever comes next need not wait for this request's end.
        await until(lambda: not made.unloader._stopping)
        assert made.bench.actor("c").view().starts == 1
        assert await made.decisions() == ()
        waiting.finish.set()


async def test_an_engine_that_was_used_in_the_meantime_is_kept(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.load("c")
        async with made.bench.board.hold(reason="measuring"):
            made.wait(60.0)
            await anyio.wait_all_tasks_blocked()
            made.tell("c", "ready")  # the hold has started it anew
        await anyio.wait_all_tasks_blocked()
        assert made.bench.serving() == ["c@0"]
        made.wait(6.0)
        await until(lambda: not made.bench.serving())


async def test_an_engine_that_cannot_be_stopped_is_told(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await made.load("c")
        made.bench.actor("c").deaf = True
        made.wait(6.0)
        await until(lambda: made.bench.actor("c").view().state == "wedged")
        told = await made.only()
        assert told.outcome is not None
        assert told.outcome.startswith("failed: ")


async def test_a_disk_that_is_full_before_the_outcome_is_kept_ends_nothing(tmp_path: Path) -> None:
    disk = Disk()
    async with desk(tmp_path, disk) as made:
        await made.load("a")
        disk.left = 1  # the decision, and not its outcome
        made.wait(301.0)
        await until(lambda: not made.bench.serving() and disk.left < 0)
        disk.left = math.inf
        await made.load("c")
        made.wait(6.0)
        await until(lambda: not made.bench.serving())
        kept = {one.subject: one.outcome for one in await made.decisions()}
        assert kept["a"] is None
