"""A daemon that may open 64 files, and more clients than that: it waits, refuses, and recovers."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import anyio
import psutil
import pytest

from tests.fakes.house import home
from tests.fakes.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

FILES = 64
CLIENTS = 120
LOOK_S = 3.0
BUSY = 0.5
"""Of a processor: who polls a socket that cannot be accepted takes a whole one."""
AGAIN_S = 60.0
MESSAGES = 2000
"""Eight a second; asyncio by itself would say thousands."""
ASK = {"model": "alpha", "prompt": "x", "n_predict": 2}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@asynccontextmanager
async def patient_home() -> AsyncIterator[Home]:
    """A daemon that does not hang up on silent clients, which would end the shortage."""
    async with home() as place:
        text = place.config.read_text()
        place.config.write_text(
            text.replace("[engine]", "[server.timeouts]\nhead_s = 170\n[engine]")
        )
        yield place


async def connected(stack: AsyncExitStack, port: int) -> list[SocketStream]:
    """More clients than there are descriptors; the kernel takes them all."""
    return [
        await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        for _ in range(CLIENTS)
    ]


async def used_up(daemon: Serving) -> None:
    """Wait until it could not accept any more."""
    with anyio.fail_after(30):
        while psutil.Process(daemon.process.pid).num_fds() < FILES - 1:  # noqa: ASYNC110 - it tells nobody
            await anyio.sleep(0.05)


async def processor_share(daemon: Serving) -> float:
    """Of a processor, for a while."""
    process = psutil.Process(daemon.process.pid)
    before = process.cpu_times()
    await anyio.sleep(LOOK_S)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / LOOK_S


async def answered(url: str, path: str = "/health", **options: object) -> int:
    """Ask over a new connection until there is an answer."""
    with anyio.fail_after(AGAIN_S):
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with (
                    aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(10)) as client,
                    client.post(path, json=ASK) if options else client.get(path) as reply,
                ):
                    return reply.status
            await anyio.sleep(0.1)


async def test_more_clients_than_descriptors_are_waited_for_without_a_busy_loop() -> None:
    async with (
        patient_home() as place,
        serve(place) as daemon,
        anyio.create_task_group() as tasks,
    ):
        await daemon.until_serving()
        tasks.start_soon(daemon.read_log)
        port = int(daemon.url.rpartition(":")[2])
        assert await answered(daemon.url, "/completion", body=ASK) == 200
        async with aiohttp.ClientSession(daemon.url) as early:
            async with early.get("/health") as reply:
                assert reply.status == 200
            _, hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (FILES, hard))
            async with AsyncExitStack() as stack:
                await connected(stack, port)
                await used_up(daemon)
                assert await processor_share(daemon) < BUSY
                # Who was let in before is answered; what needs a descriptor is refused.
                async with early.get("/health") as reply:
                    assert reply.status == 200
                async with early.post("/completion", json=ASK) as reply:
                    said = await reply.json()
                    assert reply.status == 200 or said["error"]["message"], said
                    assert reply.status in {200, 502, 503}, said
        assert await answered(daemon.url) == 200
        assert await answered(daemon.url, "/completion", body=ASK) == 200
        tasks.cancel_scope.cancel()
    assert 0 < daemon.log.count(b"out of system resource") < MESSAGES
