"""Two engines at once on a whole daemon: requests, lists, metrics, kills, the real engine."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.house import daemon_at, home, run_operation, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.engine_views import EngineView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

GROUP = """
[groups.small]
members = ["beta"]
exclusive = false
persistent = true
"""


@asynccontextmanager
async def grouped() -> AsyncIterator[Home]:
    """A home whose second model is in a group of its own."""
    async with home() as place:
        place.config.write_text(place.config.read_text() + GROUP)
        yield place


async def ask(client: aiohttp.ClientSession, model: str) -> None:
    body = {"model": model, "prompt": "x", "n_predict": 3, "max_tokens": 3}
    async with client.post("/completion", json=body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["X-Mtpd-Profile"] == model


async def ready(running: Daemon) -> dict[str, EngineView]:
    engines = (await running.control.status()).engines
    return {engine.profile: engine for engine in engines if engine.state == "ready"}


async def shown(client: aiohttp.ClientSession) -> list[tuple[str, str]]:
    async with client.get("/running") as response:
        return [(one["model"], one["state"]) for one in (await response.json())["running"]]


async def test_two_models_are_served_without_a_swap_and_shown_everywhere() -> None:
    async with grouped() as place, daemon_at(place) as (running, client):
        for model in ("alpha", "beta", "alpha", "beta"):
            await ask(client, model)
        engines = await ready(running)
        assert {name: engine.starts for name, engine in engines.items()} == {"alpha": 1, "beta": 1}
        assert await shown(client) == [("alpha", "ready"), ("beta", "ready")]
        async with client.get("/metrics") as response:
            text = await response.text()
        for model in ("alpha", "beta"):
            line = f'mtpd_engine_state{{device="host",profile="{model}",state="ready"}} 1.0'
            assert line in text
        async with client.get("/v1/models") as response:
            cards = {card["id"]: card for card in (await response.json())["data"]}
        assert cards["alpha"]["status"] == cards["beta"]["status"] == {"value": "loaded"}


async def test_an_unload_by_name_and_a_kill_leave_the_other_engine_as_it_is() -> None:
    async with grouped() as place, daemon_at(place) as (running, client):
        await ask(client, "alpha")
        await ask(client, "beta")
        before = await ready(running)
        unload = await running.control.unload(model="alpha", idempotency_key=None)
        assert (await run_operation(running, unload)).state == "done"
        assert await shown(client) == [("beta", "ready")]
        await ask(client, "alpha")
        pid = (await ready(running))["alpha"].pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        with anyio.fail_after(40):
            while (engine := (await ready(running)).get("alpha")) and engine.pid == pid:  # noqa: ASYNC110 - the status sets no event
                await anyio.sleep(0.02)
        assert (await ready(running))["beta"].pid == before["beta"].pid
        await ask(client, "beta")
        await ask(client, "alpha")


@pytest.mark.real_engine
async def test_two_real_engines_run_at_once() -> None:
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-chained.gguf"))
        place.config.write_text(place.config.read_text() + GROUP)
        async with daemon_at(place) as (running, client):
            async with anyio.create_task_group() as tasks:
                for model in ("alpha", "beta", "alpha", "beta"):
                    tasks.start_soon(ask, client, model)
            engines = await ready(running)
            assert {name: one.starts for name, one in engines.items()} == {"alpha": 1, "beta": 1}
            assert len({one.pid for one in engines.values()}) == 2
            assert {one.residency.state for one in engines.values()} == {"host"}
