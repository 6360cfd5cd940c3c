"""A whole daemon on a machine that sleeps for a night: real sockets, processes and database.

A suspend is what the kernel's clocks show of it: ``CLOCK_MONOTONIC`` stands still, only the time
since the boot and the wall clock go on. Nobody can suspend the machine of a test, so that
difference is injected; the engines are really stopped meanwhile, and go on after it.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.events import Envelope, MachineResumed, RequestFinished, ResidencyJudged
from mtpd.units import Seq
from tests.fakes.house import WITHIN_S, daemon_at, home, run_operation, tuned, until
from tests.fakes.script import Script
from tests.fakes.tools import fake_tool
from tests.integration.test_live_loop import ask, learnt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.views import OperationView, StatusView

pytestmark = pytest.mark.slow

NIGHT_S = 8 * 3600.0
REASON = "the machine was suspended for 8 h"
PACED = Script(acceptance=(0.93, 0.74, 0.5), row_cost=0.41, tps0=200.0, realtime=True)


class Sleeper(SystemClock):
    """The machine's clocks, on a machine that a test puts to sleep."""

    def __init__(self) -> None:
        self.asleep_s = 0.0

    def utc(self) -> dt.datetime:
        return super().utc() + dt.timedelta(seconds=self.asleep_s)

    def slept(self) -> float:
        return super().slept() + self.asleep_s


@dataclass(slots=True)
class Bed:
    """A daemon, its machine, and all that it tells."""

    running: Daemon
    client: aiohttp.ClientSession
    clock: Sleeper
    told: list[Envelope] = field(default_factory=list)

    async def listen(self) -> None:
        async with self.running.bus.subscribe(after=Seq(0)) as events:
            async for one in events:
                assert isinstance(one, Envelope)
                self.told.append(one)

    def of(self, kind: type) -> list[Envelope]:
        return [one for one in self.told if isinstance(one.event, kind)]

    async def sleep(self) -> None:
        """Put the machine to sleep for a night, with all that runs on it."""
        pids = [one.pid for one in self.running.board.engines() if one.pid is not None]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.clock.asleep_s += NIGHT_S
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def heard(self, what: Callable[[], object]) -> None:
        with anyio.fail_after(WITHIN_S):
            while not what():  # noqa: ASYNC110 - events come one by one
                await anyio.sleep(0.01)


@asynccontextmanager
async def bed(script: Script, *, alpha: str = "", **tuning: object) -> AsyncIterator[Bed]:
    clock = Sleeper()
    async with home(script, alpha=alpha) as place:
        if tuning:
            tuned(place, **tuning)
        async with daemon_at(place, clock=clock) as (running, client):
            made = Bed(running, client, clock)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.listen)
                yield made
                tasks.cancel_scope.cancel()


async def test_a_night_kills_no_engine_and_what_was_slept_through_counts_for_nothing() -> None:
    async with bed(PACED, alpha="ttl_s = 600") as it:
        await ask(it.client, 0, tokens=16)
        before = await until(it.running, learnt(1))
        (engine,) = [one for one in before.engines if one.profile == "alpha"]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ask(it.client, 1, tokens=200))
            await until(it.running, lambda status: any(one.running_s for one in status.requests))
            await it.sleep()
        await it.heard(lambda: it.of(MachineResumed))
        await it.heard(lambda: len(it.of(ResidencyJudged)) == 2)
        await ask(it.client, 2, tokens=16)
        status = await until(it.running, learnt(2))

        (live,) = [one for one in status.live if one.profile == "alpha"]
        assert live.excluded == {"suspended": 1}
        (after,) = [one for one in status.engines if one.profile == "alpha"]
        assert (after.id, after.pid, after.state) == (engine.id, engine.pid, "ready")
        (resumed,) = it.of(MachineResumed)
        assert resumed.event == MachineResumed(suspended_s=NIGHT_S, reason=REASON)
        assert resumed.type == "machine.resumed"
        slept = [one.event.suspended_s for one in it.told if isinstance(one.event, RequestFinished)]
        assert slept == [0.0, pytest.approx(NIGHT_S, abs=1.0), 0.0]
        assert status.uptime_s < 3600, "the daemon was not up while nothing was"
        assert [one.seq for one in it.told] == list(range(1, len(it.told) + 1))


async def test_a_request_before_the_engine_was_asked_anew_does_not_count() -> None:
    async with bed(PACED) as it:
        await ask(it.client, 0, tokens=16)
        await until(it.running, learnt(1))
        await it.sleep()
        # Nobody has looked yet: the daemon's own look is up to a second away.
        await ask(it.client, 1, tokens=400)
        await it.heard(lambda: it.of(MachineResumed))

        def counted(status: StatusView) -> bool:
            return any(one.excluded == {"suspended": 1} for one in status.live)

        await until(it.running, counted)


async def test_a_night_in_a_measurement_discards_it_and_what_served_comes_back() -> None:
    async with bed(PACED) as it:
        await ask(it.client, 0, tokens=16)
        operation = await begin(it)
        await it.heard(lambda: done(it, operation.id) >= 1)
        await it.sleep()
        ended = await run_operation(it.running, operation)
        assert ended.state == "cancelled"
        assert ended.progress.note.startswith(f"aborted, because {REASON}")
        resumed = it.of(MachineResumed)
        assert len(resumed) == 1
        kept = await it.running.control.measurements(
            model="alpha", depth=None, workload=None, operation_id=operation.id, ids=None, limit=99
        )
        assert 0 < len(kept) <= ended.progress.done + 1
        night = dt.timedelta(seconds=NIGHT_S)
        woke_at = dt.datetime.fromisoformat(resumed[0].at) - night
        assert all(dt.datetime.fromisoformat(one.at) < woke_at + night / 2 for one in kept)
        decisions = await it.running.control.decisions(subject="alpha", limit=9)
        assert [one.act for one in decisions] == [], "nothing is decided from half a measurement"
        assert await ask(it.client, 1, tokens=16) == "0"


async def begin(it: Bed) -> OperationView:
    return await it.running.control.tune(
        subject="alpha",
        method="sweep",
        depths=(0, 1),
        workloads=None,
        prompts=2,
        repetitions=2,
        max_tokens=96,
        apply=False,
        idempotency_key=None,
    )


def done(it: Bed, operation_id: str) -> int:
    now = it.running.operations.current
    return now.progress.done if now is not None and now.id == operation_id else 0


async def test_a_night_while_a_tool_measures_discards_its_figures() -> None:
    clock = Sleeper()
    async with home() as place:
        fake_tool(place.root, "llama-bench")
        async with daemon_at(place, clock=clock) as (running, _):
            operation = await running.control.bench(
                model="alpha", prompt_tokens=64, gen_tokens=16, repetitions=2, idempotency_key=None
            )
            with anyio.fail_after(WITHIN_S):
                while not loading(running.operations.current):  # noqa: ASYNC110 - notes change
                    await anyio.sleep(0.001)
            clock.asleep_s += NIGHT_S
            ended = await run_operation(running, operation)
            assert ended.state == "cancelled"
            assert ended.progress.note.startswith(f"aborted, because {REASON}")
            assert await running.control.baselines(model="alpha", limit=9) == ()


def loading(now: OperationView | None) -> bool:
    return now is not None and now.progress.note != ""
