"""A whole daemon on a fake card: what it shows, tells, and refuses to measure."""

from __future__ import annotations

import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.events import DeviceCapChanged
from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from mtpd.app import Daemon

pytestmark = pytest.mark.slow

DECLARED = '[budget]\nhardware = "gfx906-16g-150w"\n'


@asynccontextmanager
async def on_card(
    tree: sysfs.Tree, *, declared: str
) -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession]]:
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        place.config.write_text(place.config.read_text() + declared)
        async with daemon_at(place, machine=tree.root) as (running, client):
            yield running, client


async def test_the_card_is_shown_to_the_api_and_to_prometheus(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with on_card(tree, declared=DECLARED) as (running, client):
        async with client.get("/mtpd/v1/gpu") as reply:
            (device,) = (await reply.json())["devices"]
        assert (device["device"], device["isa"]) == (sysfs.FIRST, "gfx906")
        assert device["power_cap"]["state"] == "declared"
        edge = next(one for one in device["fields"] if one["name"] == "edge_c")
        assert (edge["value"], edge["source"]) == (38.0, "sysfs")
        async with client.get("/metrics") as reply:
            text = await reply.text()
        assert f'mtpd_gpu_temperature_celsius{{device="{sysfs.FIRST}",sensor="edge"}} 38.0' in text
        gates = {gate.name: gate.state for gate in (await running.control.status()).gates}
        assert gates["power_cap"] == "passed"


async def test_a_cap_that_is_lost_is_an_event_and_closes_the_gate(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with on_card(tree, declared=DECLARED) as (running, _client):
        await running.control.gpu()  # the first reading
        async with running.bus.subscribe() as events:
            await running.control.status()
            tree.sensors(cap_w=190)
            await running.control.status()
            with anyio.fail_after(10):
                told = [getattr(await anext(events), "event", None)]
                while not isinstance(told[-1], DeviceCapChanged):
                    told.append(getattr(await anext(events), "event", None))
        assert told[-1] == DeviceCapChanged(
            device=sysfs.FIRST, old_w=150.0, new_w=190.0, wanted_w=150.0
        )
        gates = {gate.name: gate for gate in (await running.control.status()).gates}
        assert gates["power_cap"].state == "failed"
        assert "190 W, not the 150 W" in gates["power_cap"].reason


async def test_a_driver_that_hangs_for_ever_stops_neither_answers_nor_the_end_of_the_daemon(
    tmp_path: Path,
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    file, fifo = tmp_path / sysfs.device() / "gpu_busy_percent", tmp_path / "hanging"

    def hang() -> None:
        file.unlink()
        os.mkfifo(fifo)
        fifo.rename(file)

    def let_go() -> None:
        file.rename(fifo)
        os.close(os.open(fifo, os.O_WRONLY))

    async with on_card(tree, declared=DECLARED) as (running, client):
        await running.control.gpu()
        hang()
        with anyio.fail_after(15):
            stale = ""
            while "has not answered" not in stale:
                async with client.get("/mtpd/v1/gpu") as reply:
                    stale = await reply.text()
            body = {"model": "alpha", "prompt": "x", "n_predict": 4}
            async with client.post("/completion", json=body) as reply:
                assert reply.status == 200, await reply.text()
        began = anyio.current_time()
    assert anyio.current_time() - began < 12, "a start and a stop wait for the deadline, no more"
    let_go()
    with anyio.fail_after(5):
        while any(one.name == "mtpd-telemetry" for one in threading.enumerate()):  # noqa: ASYNC110 - of a thread
            await anyio.sleep(0.01)


async def test_nothing_is_measured_on_a_card_without_a_declared_cap(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with on_card(tree, declared="") as (running, _client):
        asked = await running.control.probe(model="alpha", depth=2, idempotency_key=None)
        ended = await run_operation(running, asked)
        assert ended.state == "failed"
        assert ended.error is not None
        assert "no hardware profile declares one" in str(ended.error["detail"])
        assert (await running.control.status()).engines == (), "nothing was started for it"
        found = await running.control.measurements(
            model=None, depth=None, workload=None, operation_id=None, ids=None, limit=10
        )
        assert found == ()
