"""A process that the kernel does not let go of, as a hung driver makes them: state D."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from tests.fakes.freezer import freezer
from tests.fakes.house import home
from tests.fakes.serve import processes_of, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.freezer, pytest.mark.slow, pytest.mark.timeout(600)]

WEDGED_S = 15.0
STOP_S = 90.0
"""TimeoutStopSec= of the units."""
BLOCKED_S = 2.0
"""What waits for the process would answer later than this, however slow the machine is."""
ASKED = {"model": "alpha", "prompt": "x"}


class Api:
    """A client of one daemon that notes how long each answer takes."""

    def __init__(self, session: aiohttp.ClientSession, control: aiohttp.ClientSession) -> None:
        self.session, self.control = session, control
        self.took_s: list[float] = []

    async def engine(self) -> tuple[str, int | None]:
        """State and process of the engine."""
        began = anyio.current_time()
        async with self.session.get("/mtpd/v1/status") as reply:
            (engine,) = (await reply.json())["engines"]
        self.took_s.append(anyio.current_time() - began)
        return engine["state"], engine["pid"]

    async def until(self, wanted: Callable[[str], bool], within_s: float) -> float:
        """Ask until the state is as wanted; how long that took."""
        began = anyio.current_time()
        with anyio.fail_after(within_s):
            while not wanted((await self.engine())[0]):  # noqa: ASYNC110 - the time is measured
                await anyio.sleep(0.02)
        return anyio.current_time() - began

    async def complete(self) -> tuple[int, str]:
        """Ask the model; status and text of the answer."""
        async with self.session.post("/completion", json=ASKED) as reply:
            return reply.status, await reply.text()

    async def unload(self) -> None:
        """Have its engine stopped, without waiting for that."""
        async with self.control.post("http://mtpd/mtpd/v1/unload", json={}) as reply:
            assert reply.status == 202, await reply.text()

    def p99_ms(self) -> float:
        return sorted(self.took_s)[int(len(self.took_s) * 0.99)] * 1000


@asynccontextmanager
async def asking(daemon: Serving) -> AsyncIterator[Api]:
    """A daemon that serves, with its engine ready."""
    await daemon.until_serving()
    control = aiohttp.UnixConnector(str(daemon.place.directories.runtime / "control.sock"))
    async with (
        aiohttp.ClientSession(daemon.url) as session,
        aiohttp.ClientSession(connector=control) as orders,
    ):
        api = Api(session, orders)
        assert (await api.complete())[0] == 200
        yield api


async def test_it_holds_its_place_and_nothing_else_until_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with home() as place:
        with freezer(tmp_path) as frozen:
            async with serve(place) as daemon, asking(daemon) as api:
                _, pid = await api.engine()
                assert pid is not None
                frozen.freeze(pid)
                await api.unload()
                took_s = await api.until(lambda state: state == "wedged", WEDGED_S + BLOCKED_S)
                status, said = await api.complete()
                assert (status, "does not let go" in said) == (503, True), said
                assert len(processes_of(place)) == 2, "another one was started beside it"
                slowest_s = max(api.took_s)
                frozen.thaw()
                await api.until(lambda state: state == "stopped", WEDGED_S)
                assert (await api.complete())[0] == 200
                assert (await api.engine())[1] != pid
                assert await daemon.end(signal.SIGTERM) == 0
    with capsys.disabled():
        print(f" wedged after {took_s:.1f} s; {len(api.took_s)} answers meanwhile,", end="")  # noqa: T201
        print(f" p99 {api.p99_ms():.0f} ms, slowest {slowest_s * 1000:.0f} ms", end="")  # noqa: T201
    assert slowest_s < BLOCKED_S
    assert took_s <= WEDGED_S


async def test_neither_the_end_of_its_daemon_nor_the_next_one_waits_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with home() as place:
        with freezer(tmp_path) as frozen:
            async with serve(place) as daemon, asking(daemon) as api:
                _, pid = await api.engine()
                assert pid is not None
                frozen.freeze(pid)
                began = anyio.current_time()
                assert await daemon.end(signal.SIGTERM) == 0
                ended_s = anyio.current_time() - began
                began = anyio.current_time()
                async with serve(place) as following:
                    await following.until_serving()
                    started_s = anyio.current_time() - began
                    frozen.thaw()
                    assert await following.end(signal.SIGTERM) == 0
    with capsys.disabled():
        print(f" ended within {ended_s:.1f} s, the next one serves after {started_s:.1f} s", end="")  # noqa: T201
    assert ended_s <= STOP_S
