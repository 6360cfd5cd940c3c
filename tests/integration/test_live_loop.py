"""Live traffic through the daemon's own loop, over a scripted engine whose speeds are known."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.binary import fake_binary
from tests.fakes.house import WITHIN_S, daemon_at, home, run_operation, tuned, until, write_config
from tests.fakes.script import Script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.live_views import LiveProfileView
    from mtpd.views import DecisionView, StatusView

STUDY_ROWS = Script(acceptance=(0.93, 0.74, 0.5), row_cost=0.41, tps0=32.4)
"""Study 000, 3.8 base B2: 1.37, 1.44, 1.33; depth 2 is truly the fastest."""

IDLE = {"mode": "idle", "min_idle_s": 0.2, "min_dwell_s": 0}


async def measured(running: Daemon, *depths: int, prompts: int = 3, max_tokens: int = 384) -> None:
    """Measure depths, all if none are named, and serve as before."""
    operation = await running.control.tune(
        subject="alpha",
        method="sweep",
        depths=depths or None,
        workloads=None,
        prompts=prompts,
        repetitions=1,
        max_tokens=max_tokens,
        apply=False,
        idempotency_key=None,
    )
    ended = await run_operation(running, operation)
    assert ended.state == "done", ended.error


async def ask(client: aiohttp.ClientSession, number: int, *, tokens: int = 256) -> str:
    """One request; the depth that served it."""
    body = {
        "model": "alpha",
        "prompt": f"request {number}",
        "n_predict": tokens,
        "seed": number,
        "ignore_eos": True,
    }
    async with client.post("/completion", json=body) as reply:
        assert reply.status == 200, await reply.text()
        assert (await reply.json())["timings"]["predicted_n"] == tokens
        return reply.headers["X-Mtpd-Depth"]


def alpha(status: StatusView) -> LiveProfileView | None:
    return next((one for one in status.live if one.profile == "alpha"), None)


def learnt(count: int) -> Callable[[StatusView], bool]:
    return lambda status: (seen := alpha(status)) is not None and seen.requests == count


def identified(depth: int) -> Callable[[StatusView], bool]:
    """Whether the engine's own counters tell the acceptance by position at a depth."""

    def check(status: StatusView) -> bool:
        seen = alpha(status)
        arms = [] if seen is None else [arm for one in seen.classes for arm in one.arms]
        return any(arm.arm.depth == depth and arm.unidentified is None for arm in arms)

    return check


def serves(depth: int) -> Callable[[StatusView], bool]:
    def check(status: StatusView) -> bool:
        (engine,) = [one for one in status.engines if one.profile == "alpha"]
        return engine.state == "ready" and engine.arm is not None and engine.arm.depth == depth

    return check


async def own(running: Daemon) -> list[DecisionView]:
    """What the loop decided about alpha, oldest first; the sweep's own decision comes first."""
    found = await running.control.decisions(subject="alpha", limit=50)
    return list(found)[::-1][1:]


async def test_idle_ends_at_the_depth_that_the_measurements_name() -> None:
    async with home(STUDY_ROWS) as place:
        tuned(place, **IDLE)
        async with daemon_at(place) as (running, client):
            await measured(running)
            for number in range(12):
                assert await ask(client, number) == "0"
            await until(running, serves(2))
            assert await ask(client, 99) == "2"
            status = await until(running, learnt(13))
            (switched,) = await own(running)
            assert switched.act == "switch"
            assert switched.reason.startswith("alpha@2 pays: gain +4")
            assert switched.outcome == "alpha@2 is ready, host"
            assert switched.measurement_ids
            choice = next(one for one in status.choices if one.subject == "alpha")
            assert (choice.arm.depth, choice.reason) == (2, switched.reason)
            (operation,) = await running.control.operations(limit=1)
            assert (operation.kind, operation.params["automatic"]) == ("switch", True)
        # The choice, and what was learnt, hold for the next life of the daemon.
        async with daemon_at(place) as (running, client):
            assert await ask(client, 100) == "2"
            await until(running, learnt(14))


async def test_observe_says_it_once_and_changes_nothing() -> None:
    async with home(STUDY_ROWS) as place:
        tuned(place, mode="observe", min_idle_s=0.1)
        async with daemon_at(place) as (running, client):
            await measured(running)
            for number in range(8):
                assert await ask(client, number) == "0"
            await until(running, learnt(8))
            await until(running, lambda s: s.last_decision is not None and s.last_decision.id == 2)
            for number in range(8, 16):
                assert await ask(client, number) == "0"
            status = await until(running, learnt(16))
            (said,) = await own(running)
            assert said.act == "keep"
            assert said.reason.startswith(
                "keep alpha@0: would switch to alpha@2 but the mode is observe: alpha@2 pays: gain"
            )
            seen = alpha(status)
            assert seen is not None
            assert seen.next is not None
            assert (seen.next.act, seen.next.arm.depth) == ("switch", 2)
            assert seen.next.waits_for == "the mode is observe"
            ((arm,),) = [one.arms for one in seen.classes]
            assert arm.decode_tps == pytest.approx(32.4, rel=0.01)


SLOW = Script(acceptance=(0.93, 0.74, 0.5), row_cost=0.41, tps0=400.0, realtime=True)
"""A measurement of it takes a minute."""


def measures(status: StatusView) -> bool:
    """Whether the daemon measures by itself, and has begun to."""
    now = status.operation
    return (
        now is not None
        and now.kind == "tune"
        and bool(now.params.get("automatic") and now.progress.done)
    )


async def test_a_request_ends_the_measurement_that_the_daemon_began(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(bundled_model("tiny-chained.gguf"), model)
    async with home() as place:
        binary = fake_binary(place.root / "llama-server", SLOW)
        write_config(place, binary=str(binary), model=model)
        tuned(place, mode="idle", min_idle_s=0.05, min_dwell_s=0)
        async with daemon_at(place) as (running, client):
            await measured(running, 0, 2, prompts=1, max_tokens=48)
            assert await ask(client, 1, tokens=32) == "0"
            os.utime(model, ns=(1, 1))

            status = await until(running, measures)
            assert status.operation is not None
            operation = status.operation
            await ask(client, 2, tokens=32)
            ended = await run_operation(running, operation)
            assert ended.state == "cancelled"
            asked = next(one for one in await own(running) if one.act == "measure")
            assert "what is stored no longer holds: model_file was" in asked.reason
            assert asked.outcome is not None
            assert asked.outcome.startswith("aborted, because a request came")
            kept = await running.control.measurements(
                model="alpha",
                depth=None,
                workload=None,
                operation_id=operation.id,
                ids=None,
                limit=500,
            )
            assert asked.outcome.endswith(f"{len(kept)} repetitions kept")
            assert kept


@pytest.mark.real_engine
async def test_the_real_engine_ends_at_the_stored_depth_without_one_failed_request() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        async with daemon_at(place) as (running, client):
            await measured(running, 0, 2, prompts=1)
        # A tiny model on a busy machine has no best depth; what is stored says that it has.
        with closing(sqlite3.connect(place.directories.state / "mtpd.sqlite3")) as db:
            db.execute("UPDATE measurements SET decode_s = 20 * decode_s WHERE depth = 0")
            db.commit()
        tuned(place, mode="idle", min_idle_s=0.3)
        async with daemon_at(place) as (running, client):
            for number in range(6):
                assert await ask(client, number, tokens=32) == "0"

            async def sends(first: int, served: list[str]) -> None:
                served += [await ask(client, n, tokens=32) for n in range(first, first + 4)]

            await until(running, lambda s: s.last_decision and s.last_decision.act == "switch")
            served: list[str] = []
            async with anyio.create_task_group() as tasks:
                for first in (100, 200, 300):
                    tasks.start_soon(sends, first, served)
            assert len(served) == 12
            assert served[-1] == "2"
            await until(running, serves(2))
            status = await until(running, learnt(18))
            (switched,) = await own(running)
            assert switched.arm is not None
            assert (switched.act, switched.arm.depth) == ("switch", 2)
            seen = alpha(status)
            assert seen is not None
            assert seen.excluded == {}
            ((_, arm),) = [one.arms for one in seen.classes]
            assert arm.arm.depth == 2
            # Requests that overlap have one sum of positions between them; one alone has its own.
            with anyio.fail_after(WITHIN_S):
                for number in itertools.count(400):
                    if identified(2)(await running.control.status()):
                        break
                    await ask(client, number, tokens=32)


@pytest.mark.real_engine
async def test_the_real_engines_counters_stand_in_for_the_timings_that_messages_lack() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        text = place.config.read_text()
        place.config.write_text(text.replace("max_depth = 3", "max_depth = 3\ndepth = 1", 1))
        async with daemon_at(place) as (running, client):
            await ask(client, 0, tokens=16)
            await until(running, learnt(1))
            body = {
                "model": "alpha",
                "max_tokens": 24,
                "messages": [{"role": "user", "content": "Say what a list is."}],
            }
            async with client.post("/v1/messages", json=body) as reply:
                assert reply.status == 200, await reply.text()
                assert "timings" not in await reply.json()
            seen = alpha(await until(running, learnt(2)))
            assert seen is not None
            assert seen.excluded == {}
