"""More than anybody can take: an engine that prints without end, thousands that ask at once.

What is counted is answers and their order, never how long they took: that is measured by
``tests/bench/bench_loop_lag.py``. ``make test`` takes a part, ``MTPD_ENDURANCE`` all: 100 MB of
log, 5 000 requests at once.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import anyio
import psutil
import pytest

from mtpd.app import SWITCH_S
from mtpd.events import ResidencyJudged
from tests.fakes import sysfs
from tests.fakes.binary import fake_binary
from tests.fakes.house import daemon_at, home
from tests.fakes.script import Device, Script
from tests.fakes.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.app import Daemon

FULL = "MTPD_ENDURANCE" in os.environ
LINES: Final = 480_000 if FULL else 96_000
"""Of some 210 bytes each: 100 MB, or 20."""
AT_ONCE: Final = 5_000 if FULL else 400
ANSWERS: Final = 20
"""At least so many while the engine prints, a second on a fast machine: a daemon that reads
on as long as there is something to be read gives one or two."""
QUEUE: Final = 64
GROWTH: Final = 24 * 1024 if FULL else 64 * 1024
"""Bytes that the daemon may grow by for each request that is open at once."""
PATIENCE_S: Final = 600.0 if FULL else 90.0
ASK: Final = {"model": "alpha", "prompt": "x", "n_predict": 4}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 200)]


@asynccontextmanager
async def flooded() -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession, Path]]:
    """A daemon whose engine prints noise while it loads, and within it that a layer stays out."""
    script = Script(device=Device(), evict_at_depth=0, spam_log=LINES)
    async with home() as place:
        with tempfile.TemporaryDirectory(prefix="mtpd-card-") as folder:
            root = sysfs.build(Path(folder), "idle").root
            fake_binary(place.root / "llama-server", replace(script, machine=str(root)))
            gives_way_s = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_S)  # as in a process of its own
            try:
                async with daemon_at(place, machine=root) as (running, client):
                    yield running, client, place.directories.state / "logs"
            finally:
                sys.setswitchinterval(gives_way_s)


async def test_a_flood_of_log_stops_no_answer_and_hides_no_evidence() -> None:
    async with flooded() as (running, client, logs), anyio.create_task_group() as tasks:
        judged: list[ResidencyJudged] = []
        engines: list[dict[str, object]] = []
        answers = 0

        async def listen() -> None:
            async with running.bus.subscribe(None) as events:
                async for envelope in events:
                    event = getattr(envelope, "event", None)
                    if isinstance(event, ResidencyJudged):
                        judged.append(event)

        async def order() -> None:
            await running.control.load(model="alpha", idempotency_key=None)

        tasks.start_soon(listen)
        tasks.start_soon(order)
        with anyio.fail_after(PATIENCE_S):
            while not judged:
                async with client.get("/mtpd/v1/status") as reply:
                    engines = (await reply.json())["engines"]
                printing = any(b"noise" in tail for tail in map(_tail, engines))
                answers += printing and not judged
        assert answers >= ANSWERS
        assert judged[0].residency.state == "evicted"
        assert judged[0].residency.layers == 1
        assert all(len(str(engine["log_tail"])) < 50 * 300 for engine in engines)
        sizes = [path.stat().st_size for path in logs.glob("alpha*.log*")]
        assert max(sizes) <= 8 * 2**20
        tasks.cancel_scope.cancel()


def _tail(engine: dict[str, object]) -> bytes:
    return json.dumps(engine["log_tail"]).encode()


async def test_of_thousands_at_once_each_is_served_or_told_when_to_come_back() -> None:
    """The queue holds 64; nobody is left without an answer, and the daemon stays small."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        async with home(Script(load_s=1.0)) as place, AsyncExitStack() as stack:
            with place.config.open("a") as file:  # so many clients of one process are slow
                file.write("[server.timeouts]\nhead_s = 300\nbody_idle_s = 300\n")
            daemon = await stack.enter_async_context(serve(place))
            await daemon.until_serving()
            process = psutil.Process(daemon.process.pid)
            small = process.memory_info().rss
            told: dict[int, int] = {}
            connector = aiohttp.TCPConnector(limit=0)
            patience = aiohttp.ClientTimeout(total=PATIENCE_S)
            async with aiohttp.ClientSession(
                daemon.url, connector=connector, timeout=patience
            ) as client:

                async def ask() -> None:
                    async with client.post("/completion", json=ASK) as reply:
                        body = await reply.json()
                    told[reply.status] = told.get(reply.status, 0) + 1
                    if reply.status != 200:
                        assert body["error"]["code"] == "queue_full", body
                        assert int(reply.headers["Retry-After"]) >= 1

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(daemon.read_log)
                    async with anyio.create_task_group() as asking:
                        for _ in range(AT_ONCE):
                            asking.start_soon(ask)
                    grown = process.memory_info().rss - small
                    await ask()
                    daemon.process.send_signal(signal.SIGTERM)
            assert sum(told.values()) == AT_ONCE + 1
            assert set(told) == {200, 503}
            assert told[200] > QUEUE
            assert grown < GROWTH * AT_ONCE, grown
            print(f"{AT_ONCE} at once: {told}, grown by {grown / 2**20:.1f} MB")  # noqa: T201
            assert await daemon.process.wait() == 0
        assert b"Traceback" not in daemon.log
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
