"""SIGHUP to a daemon in a process of its own: an order to reload, or the terminal's end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.house import home, write_config
from tests.fakes.serve import ROOT, processes_of, serve

if TYPE_CHECKING:
    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

pytestmark = pytest.mark.slow

WAIT_S = 30.0


async def ask(client: aiohttp.ClientSession, model: str) -> None:
    async with client.post("/completion", json={"model": model, "prompt": "x"}) as reply:
        assert reply.status == 200, await reply.text()


async def get(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as reply:
        return await reply.json()


async def until_in_log(daemon: Serving, text: bytes) -> None:
    assert daemon.process.stderr is not None
    with anyio.fail_after(WAIT_S):
        while text not in daemon.log:
            daemon.log += await daemon.process.stderr.receive()


async def test_a_sighup_adds_a_model_and_leaves_the_engine_that_runs() -> None:
    async with home() as place, serve(place) as daemon:
        await daemon.until_serving()
        async with aiohttp.ClientSession(daemon.url) as client:
            await ask(client, "alpha")
            (before,) = (await get(client, "/mtpd/v1/status"))["engines"]
            model = bundled_model("tiny-chained.gguf")
            added = f'\n[models.gamma]\nmodel = "{model}"\n'
            place.config.write_text(place.config.read_text() + added)
            daemon.process.send_signal(signal.SIGHUP)
            await until_in_log(daemon, b"new: gamma")
            await ask(client, "gamma")
            engines = (await get(client, "/mtpd/v1/status"))["engines"]
            assert [one["profile"] for one in engines] == ["alpha", "gamma"]
            assert before["starts"] == engines[0]["starts"] == 1
        assert await daemon.end(signal.SIGTERM) == 0


async def test_a_sighup_over_an_invalid_file_is_told_with_its_lines_and_the_daemon_goes_on() -> (
    None
):
    async with home() as place, serve(place) as daemon:
        await daemon.until_serving()
        place.config.write_text(place.config.read_text() + "\n[server2]\n")
        daemon.process.send_signal(signal.SIGHUP)
        await until_in_log(daemon, b"config.refused")
        line = next(x for x in daemon.log.splitlines() if b"config.refused" in x)
        number = len(place.config.read_text().splitlines())
        assert json.loads(line)["problems"][0].startswith(f"{place.config}:{number}: server2: ")
        async with aiohttp.ClientSession(daemon.url) as client:
            await ask(client, "alpha")
            shown = (await get(client, "/mtpd/v1/status"))["config"]
            assert shown["problems"] == json.loads(line)["problems"]
            assert shown["invalid_since"] is not None
        assert await daemon.end(signal.SIGTERM) == 0


async def test_a_terminal_that_is_closed_ends_the_daemon_and_its_engine() -> None:
    async with home() as place:
        ours, theirs = pty.openpty()
        process = start_in_terminal(place, theirs)
        os.close(theirs)
        try:
            with anyio.fail_after(WAIT_S):
                await anyio.to_thread.run_sync(read_until, ours, b"daemon.serving")
            os.close(ours)
            with anyio.fail_after(WAIT_S):
                code = await anyio.to_thread.run_sync(process.wait)
            assert code == 0
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        assert processes_of(place) == []


def start_in_terminal(place: Home, terminal: int) -> subprocess.Popen[bytes]:
    """The daemon as the leader of a session with this terminal, as a window would run it."""
    argv = [
        *(
            sys.executable,
            "-c",
            (
                "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
                "from mtpd.cli.mtpd import main; sys.exit(main())"
            ),
        ),
        *("serve", "--config", str(place.config), "--state-dir", str(place.directories.state)),
        *("--runtime-dir", str(place.directories.runtime)),
        *("--cache-dir", str(place.directories.cache), "--log-json"),
    ]
    return subprocess.Popen(
        argv, cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )


def read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        seen += os.read(terminal, 4096)


@pytest.mark.real_engine
async def test_the_real_engine_ends_its_stream_before_it_is_started_with_other_settings() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        async with serve(place) as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                body = {
                    "model": "alpha",
                    "prompt": "def f(x):",
                    "n_predict": 400,
                    "ignore_eos": True,
                    "stream": True,
                }
                async with client.post("/completion", json=body) as stream:
                    first = await stream.content.readline()
                    text = place.config.read_text()
                    place.config.write_text(text.replace("context = 2048", "context = 1024", 1))
                    daemon.process.send_signal(signal.SIGHUP)
                    rest = await stream.content.read()
                lines = [x for x in (first + rest).splitlines() if x.startswith(b"data: ")]
                last = json.loads(lines[-1][6:])
                assert (last["stop"], last["tokens_predicted"]) == (True, 400)
                await until_in_log(daemon, b"other engine settings: alpha")
                with anyio.fail_after(WAIT_S):
                    while True:
                        (engine,) = (await get(client, "/mtpd/v1/status"))["engines"]
                        if (engine["starts"], engine["state"]) == (2, "ready"):
                            break
                        await anyio.sleep(0.05)
                props = await get(client, "/props?model=alpha")
                assert props["default_generation_settings"]["n_ctx"] == 1024
            assert await daemon.end(signal.SIGTERM) == 0
