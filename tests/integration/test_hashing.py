"""The full hash of the model files, on a whole daemon over a scripted engine."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.store.db import Database
from mtpd.store.samples import Measurements
from tests.fakes.binary import fake_binary
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.script import Script

if TYPE_CHECKING:
    import aiohttp

    from mtpd.app import Daemon
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

BIG = 15 * 1024**3


def with_model(place: Home, path: Path, script: Script | None = None) -> None:
    shutil.copy(bundled_model("tiny-chained.gguf"), path)
    write_config(place, binary=str(fake_binary(place.root / "llama-server", script)), model=path)


async def shown(client: aiohttp.ClientSession) -> dict[str, Any]:
    async with client.get("/mtpd/v1/models/alpha") as reply:
        body: dict[str, Any] = await reply.json()
    return body


async def known(client: aiohttp.ClientSession) -> str:
    with anyio.fail_after(30):
        while (body := await shown(client))["sha256"] is None:  # noqa: ASYNC110  # a deadline
            await anyio.sleep(0.02)
    return str(body["sha256"])


async def measure(running: Daemon) -> None:
    asked = await running.control.probe(model="alpha", depth=1, idempotency_key=None)
    ended = await run_operation(running, asked)
    assert ended.state == "done", ended.error


async def stored(place: Home) -> tuple[str, dict[str, Any] | None]:
    """The one fingerprint that was measured, and what it stands for."""
    clock = SystemClock()
    async with await Database.open(place.directories.state / "mtpd.sqlite3", clock) as db:
        measurements = Measurements(db=db, clock=clock)
        (digest,) = {view.fingerprint for view in await measurements.list()}
        return digest, await measurements.fingerprint(digest)


async def test_the_hash_is_shown_once_known_and_joins_the_measurements(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    async with home() as place:
        with_model(place, model)
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        async with daemon_at(place) as (running, client):
            assert (await shown(client))["sha256"] is None
            await measure(running)
        digest, before = await stored(place)
        assert before is not None
        assert "model_sha256" not in before
        async with daemon_at(place, hash_delay_s=0) as (running, client):
            assert await known(client) == sha256
            await measure(running)
        assert await stored(place) == (digest, before | {"model_sha256": sha256})
        async with daemon_at(place) as (_, client):
            assert (await shown(client))["sha256"] == sha256
            os.utime(model, ns=(1, 1))
            assert (await shown(client))["sha256"] is None


async def test_nothing_is_read_while_a_request_waits_or_runs(tmp_path: Path) -> None:
    slow = Script(load_s=1.0, realtime=True, tps0=20.0)
    async with home() as place:
        with_model(place, tmp_path / "model.gguf", slow)
        async with daemon_at(place, hash_delay_s=1.5) as (_, client):
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    body = {"model": "alpha", "prompt": "x", "n_predict": 60}
                    async with client.post("/completion", json=body) as reply:
                        assert reply.status == 200
                        await reply.read()
                        tasks.cancel_scope.cancel()

                tasks.start_soon(ask)
                began = anyio.current_time()
                while True:
                    assert (await shown(client))["sha256"] is None
                    await anyio.sleep(0.05)
            assert anyio.current_time() - began > 3.5
            await known(client)


async def test_the_stop_does_not_wait_for_15_gb(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    async with home() as place:
        with_model(place, model)
        os.truncate(model, BIG)
        async with daemon_at(place, hash_delay_s=0) as (_, client):
            with anyio.fail_after(20):
                while not _is_open(model):  # noqa: ASYNC110  # a condition with a deadline
                    await anyio.sleep(0.01)
            assert (await shown(client))["sha256"] is None
            told = anyio.current_time()
        assert anyio.current_time() - told < 3
        assert not _is_open(model)


def _is_open(path: Path) -> bool:
    return any(os.path.realpath(one) == str(path) for one in Path("/proc/self/fd").iterdir())
