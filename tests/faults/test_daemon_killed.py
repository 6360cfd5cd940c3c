"""The whole daemon, killed and stopped at any instant: no engine outlives it."""

from __future__ import annotations

import json
import os
import random
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from tests.fakes.house import home, write_config
from tests.fakes.script import Script
from tests.fakes.serve import processes_of, reached, serve

if TYPE_CHECKING:
    from tests.fakes.serve import Serving

SEED = 20261129
TRIALS = 40 if "MTPD_ENDURANCE" in os.environ else 16
STOP_S = 15.0
"""The stream would go on for ninety seconds."""
EMBEDDED = "embedded"


async def ask(daemon: Serving) -> None:
    """Ask for a completion, which starts an engine; the daemon may die meanwhile."""
    with suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession(daemon.url) as client,
            client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply,
        ):
            await reply.read()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_kill_9_of_the_daemon_at_random_instants_leaves_no_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = random.Random(SEED)  # noqa: S311 - reproducible, not secret
    had = 0
    for _ in range(TRIALS):
        script = Script(load_s=rng.choice((0.0, 0.0, 0.5)), ignore_sigterm=rng.random() < 0.3)
        async with home(script) as place, serve(place) as daemon:
            await daemon.until_serving()
            with anyio.move_on_after(rng.uniform(0.0, 1.5)):
                await ask(daemon)
            had += len(processes_of(place)) > 1
            daemon.process.kill()
            await daemon.process.wait()
    with capsys.disabled():
        print(f" SEED={SEED}: {had} of {TRIALS} daemons had an engine", end="")  # noqa: T201
    assert had >= TRIALS // 2, "hardly any daemon had an engine: nothing was shown"


@pytest.mark.real_engine
@pytest.mark.slow
async def test_the_real_engine_dies_with_its_daemon() -> None:
    async with home() as place:
        write_config(place, binary=EMBEDDED)
        async with serve(place) as daemon:
            await daemon.until_serving()
            await ask(daemon)
            assert len(processes_of(place)) > 1
            daemon.process.kill()
            await daemon.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", ["scripted", pytest.param(EMBEDDED, marks=pytest.mark.real_engine)]
)
async def test_a_stop_does_not_wait_for_an_open_stream(engine: str) -> None:
    script = Script(realtime=True, tps0=20.0)
    async with home(script) as place:
        if engine == EMBEDDED:
            write_config(place, binary=EMBEDDED)
        async with serve(place) as daemon, aiohttp.ClientSession() as client:
            await daemon.until_serving()
            body = {"model": "alpha", "prompt": "x", "n_predict": 1900, "stream": True}
            body |= {"ignore_eos": True}
            async with client.post(f"{daemon.url}/completion", json=body) as reply:
                assert await reply.content.readany()
                began = anyio.current_time()
                assert await daemon.end(signal.SIGTERM) == 0
                assert anyio.current_time() - began <= STOP_S
                with suppress(aiohttp.ClientError):
                    assert b'"stop":true' not in await reply.content.read()
            assert not reached(daemon.url)
        assert not (place.directories.runtime / "control.sock").exists()


@pytest.mark.slow
async def test_the_next_daemon_closes_what_a_killed_one_left_open() -> None:
    async with home(Script(load_s=30.0)) as place:
        async with serve(place) as daemon:
            await daemon.until_serving()
            with anyio.move_on_after(1.0):
                await ask(daemon)
            daemon.process.kill()
            await daemon.process.wait()
        async with serve(place) as daemon:
            await daemon.until_serving()
            async with (
                aiohttp.ClientSession(daemon.url) as client,
                client.get("/mtpd/v1/status") as reply,
            ):
                status = json.loads(await reply.text())
            assert status["engines"] == []
            assert await daemon.end(signal.SIGTERM) == 0
