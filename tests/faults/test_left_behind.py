"""What went into a session of its own is gone after the stop of what started it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from mtpd.supervise.identity import VARIABLE, engines, house_of, pids_of
from mtpd.supervise.output import Output
from mtpd.supervise.remains import kill_all
from mtpd.supervise.spawn import ShimSpawner
from mtpd.supervise.tool_run import ToolRunner
from mtpd.types import Command
from tests.fakes.house import home
from tests.fakes.serve import serve
from tests.fakes.supervision import until
from tests.integration.test_opaque import COMMAND, speak

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

ALL = os.environ.get("MTPD_ENDURANCE") == "1"
RUNAWAYS = 50
AWAY = f"for _ in $(seq {RUNAWAYS}); do setsid sh -c 'setsid sleep 600 & exec sleep 600' & done"
"""Twice as many processes, each in a session of its own."""
PATH = {"PATH": os.environ["PATH"]}


def command(script: str) -> Command:
    return Command(argv=("/bin/sh", "-c", script), env=PATH)


def of_house(place: Home) -> list[int]:
    """Every process of this daemon's engines, tools and stop commands."""
    house = house_of(place.directories.state)
    return [pid for pid, engine in engines() if engine.startswith(house)]


def sockets_of(place: Home) -> list[str]:
    """The sockets of its engines."""
    found = (path.name for path in place.directories.runtime.glob("*.sock"))
    return [name for name in found if name != "control.sock"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.slow
async def test_a_hundred_of_them_are_gone_when_the_end_is_told(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = f"runaway-{os.getpid()}-{number}"
    left: list[tuple[int, ...]] = []
    other = {VARIABLE: f"{engine}-other"}
    stranger = await anyio.open_process(["/bin/sleep", "600"], env=other, stdin=None, stdout=None)
    try:
        child = ShimSpawner().spawn(
            command(f"{AWAY}; exec sleep 600"),
            engine_id=engine,
            output=Output(on_lines=lambda _: None, file=None),
            on_exit=lambda _: left.append(pids_of(engine)),
        )
        await until(lambda: len(pids_of(engine)) == 2 * RUNAWAYS + 1, within_s=30)
        began = anyio.current_time()
        child.signal(number)
        await child.closed()
        took_s = anyio.current_time() - began
        assert stranger.returncode is None, "somebody else's process was killed"
    finally:
        stranger.kill()
        await stranger.aclose()
        kill_all(engine)  # a failure must not leave them to the next test
    with capsys.disabled():
        print(f" {2 * RUNAWAYS} in sessions of their own gone in {took_s * 1000:.0f} ms", end="")  # noqa: T201
    assert left == [()]


async def test_what_a_tool_left_is_gone_when_it_has_ended() -> None:
    engine = f"tool-{os.getpid()}"
    runner = ToolRunner(ShimSpawner(), new_id=lambda: engine)
    wait = (
        f"until [ $(grep -slz {VARIABLE}={engine} /proc/[0-9]*/environ | wc -l) -ge 3 ]; do :; done"
    )
    await runner.run(command(f"setsid sleep 600 & {wait}"), name="tool", on_text=lambda _: None)
    assert pids_of(engine) == ()


@pytest.fixture
async def place() -> AsyncIterator[Home]:
    """A model that is no llama-server, and whose program and stop command fork away."""
    program = COMMAND.removeprefix("[").replace('", "', " ").strip('"')
    away = "setsid sleep 600 > /dev/null 2>&1 &"
    async with home() as place:
        place.config.write_text(f"""{place.config.read_text()}
[models.speech]
kind = "opaque"
command = ["/bin/sh", "-c", '{away} exec {program}']
stop_command = ["/bin/sh", "-c", '{away} kill $0', "${{PID}}"]
""")
        yield place


async def served(daemon: Serving, place: Home) -> None:
    """Have the program serve, and its helper live."""
    await daemon.until_serving()
    async with aiohttp.ClientSession(daemon.url) as client:
        await speak(client)
    await until(lambda: len(of_house(place)) == 2)


@pytest.mark.slow
async def test_what_a_program_and_its_stop_command_left_is_gone_after_a_change(
    place: Home,
) -> None:
    async with serve(place) as daemon:
        await served(daemon, place)
        async with aiohttp.ClientSession(daemon.url) as client:
            asked = {"model": "alpha", "prompt": "x"}
            async with client.post("/completion", json=asked) as reply:
                assert reply.status == 200
        await until(lambda: len(of_house(place)) == 1)
        assert await daemon.end(signal.SIGTERM) == 0
        assert of_house(place) == []


@pytest.mark.slow
async def test_what_they_left_is_gone_when_the_daemon_has_ended(place: Home) -> None:
    async with serve(place) as daemon:
        await served(daemon, place)
        assert await daemon.end(signal.SIGTERM) == 0
        assert of_house(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True] if ALL else [True])
async def test_what_a_killed_daemon_left_is_gone_when_the_next_one_serves(
    place: Home, *, lost: bool
) -> None:
    """Also where the ledger that told of it was lost."""
    async with serve(place) as daemon:
        await served(daemon, place)
        daemon.process.kill()
        await daemon.process.wait()
    assert len(of_house(place)) == 1
    if lost:
        for path in place.directories.state.glob("mtpd.sqlite3*"):
            path.unlink()
    async with serve(place) as daemon:
        await daemon.until_serving()
        assert of_house(place) == []
        assert await daemon.end(signal.SIGTERM) == 0


@pytest.mark.slow
async def test_the_socket_of_a_killed_daemons_engine_is_gone_when_the_next_one_serves() -> None:
    async with home() as place:
        async with serve(place) as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                asked = {"model": "alpha", "prompt": "x"}
                async with client.post("/completion", json=asked) as reply:
                    assert reply.status == 200
            daemon.process.kill()
            await daemon.process.wait()
        left = sockets_of(place)
        assert len(left) == 1, "it left none: nothing was shown"
        async with serve(place) as daemon:
            await daemon.until_serving()
            assert sockets_of(place) == []
            assert await daemon.end(signal.SIGTERM) == 0
