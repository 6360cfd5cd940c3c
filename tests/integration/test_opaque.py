"""Programs that are no llama-server: real processes behind real sockets, swapped like others."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.app import daemon
from mtpd.config.disk import ConfigOnDisk
from mtpd.config.load import load
from mtpd.errors import BinaryError, InvalidError
from tests.fakes.house import daemon_at, home, run_operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.app import Daemon

CHILD = Path(__file__).parents[1] / "fakes" / "opaque_child.py"
SPEECH = "/v1/audio/speech"
COMMAND = f'["{sys.executable}", "{CHILD}", "--port", "${{PORT}}"'


def opaque(more: str = "", *, words: str = "", name: str = "speech") -> str:
    return f"""
[models.{name}]
kind = "opaque"
command = {COMMAND}{words}]
{more}
"""


@asynccontextmanager
async def serving(text: str) -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession, Path]]:
    """A daemon with the scripted models and what the text adds."""
    async with home() as place:
        place.config.write_text(place.config.read_text() + text)
        async with daemon_at(place) as (running, client):
            yield running, client, place.root


async def speak(client: aiohttp.ClientSession, **fields: object) -> dict[str, Any]:
    async with client.post(SPEECH, json={"model": "speech", **fields}) as reply:
        answer = await reply.text()
        assert reply.status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found


async def complete(client: aiohttp.ClientSession) -> None:
    async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
        assert reply.status == 200, await reply.text()


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait for what nobody tells of."""
    with anyio.fail_after(30):
        while not await condition():  # noqa: ASYNC110 - nothing sets an event
            await anyio.sleep(0.01)


async def gone(pid: int) -> None:
    """Wait for the end of a process."""

    async def ended() -> bool:
        return not await anyio.Path(f"/proc/{pid}").exists()

    await until(ended)


async def test_it_is_swapped_with_the_engines_and_gets_what_the_client_sent() -> None:
    async with serving(opaque('env = { SPEECH_KEY = "k-1" }')) as (running, client, _):
        await complete(client)
        answer = await speak(client, input="hello")
        assert answer["path"] == SPEECH
        assert json.loads(answer["body"]) == {"model": "speech", "input": "hello"}
        assert answer["env"]["SPEECH_KEY"] == "k-1"
        assert "authorization" not in answer["headers"]
        engines = {e.profile: e for e in (await running.control.status()).engines}
        assert (engines["alpha"].state, engines["speech"].state) == ("stopped", "ready")
        assert engines["speech"].residency.state == "unknown"
        assert engines["speech"].residency.reason.startswith("not an engine of ours")
        async with client.get("/running") as reply:
            (shown,) = (await reply.json())["running"]
        assert shown["model"] == "speech"
        assert shown["state"] == "ready"
        assert shown["proxy"].startswith("http://127.0.0.1:")
        await complete(client)
        await gone(answer["pid"])


async def test_it_gets_an_environment_of_its_own_and_none_of_the_daemons_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET_TOKEN", "canary")
    async with serving(opaque()) as (_, client, _):
        answer = await speak(client)
        assert "canary" not in json.dumps(answer["env"])
        assert answer["env"]["PATH"] == os.environ["PATH"]


async def test_its_name_for_the_model_is_in_the_request() -> None:
    async with serving(opaque('upstream_model = "vendor/voice-1"')) as (_, client, _):
        answer = await speak(client, input="x")
        assert answer["body"] == '{"model": "vendor/voice-1", "input": "x"}'


async def test_requests_wait_until_its_health_check_says_yes(tmp_path: Path) -> None:
    flag = tmp_path / "loaded"
    text = opaque('check = "/ready"', words=f', "--slow-file", "{flag}"')
    async with serving(text) as (running, client, _), anyio.create_task_group() as tasks:
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await speak(client))

        tasks.start_soon(ask)

        async def loading() -> bool:
            return "loading" in [e.state for e in (await running.control.status()).engines]

        await until(loading)
        assert not answers
        flag.touch()
    assert answers


async def test_one_that_is_not_asked_counts_as_ready_at_once() -> None:
    async with serving(opaque('check = "none"', words=', "--slow-file", "/nonexistent"')) as (
        running,
        client,
        _,
    ):
        # It may not listen yet; the request is sent again once.
        async with client.post(SPEECH, json={"model": "speech"}) as reply:
            assert reply.status in {200, 502}
        engines = {e.profile: e.state for e in (await running.control.status()).engines}
        assert engines["speech"] == "ready"


async def test_one_that_never_says_yes_is_given_up_with_the_reason() -> None:
    words = ', "--slow-file", "/nonexistent"'
    async with serving(opaque("ready_timeout_s = 1", words=words)) as (running, client, _):
        deadline = {"X-Mtpd-Deadline-Ms": "100"}
        async with client.post(SPEECH, json={"model": "speech"}, headers=deadline) as reply:
            assert reply.status == 503
        failures: list[str] = []

        async def failed() -> bool:
            engines = (await running.control.status()).engines
            failures.extend(e.failure.reason for e in engines if e.failure is not None)
            return bool(failures)

        await until(failed)
        assert failures == ["the engine was still loading after 1 s"]


async def test_a_port_that_is_taken_is_no_health_check_passed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = opaque(f'proxy = "http://127.0.0.1:{port}"')
        async with serving(text) as (_, client, _):
            async with client.post(SPEECH, json={"model": "speech"}) as reply:
                assert reply.status == 503
                said = (await reply.json())["error"]["message"]
    assert said == (
        f"something listens at http://127.0.0.1:{port} already, before the program is started there"
    )


async def test_a_program_that_is_not_there_is_told_as_such() -> None:
    text = '[models.speech]\nkind = "opaque"\ncommand = ["no-such-program", "${PORT}"]\n'
    async with serving(text) as (_, client, _):
        async with client.post(SPEECH, json={"model": "speech"}) as reply:
            assert reply.status == 503
            said = (await reply.json())["error"]["message"]
    assert said == "a program of speech is not on the PATH: no-such-program"


async def test_its_stop_command_is_run_in_place_of_the_signal() -> None:
    async with home() as place:
        stopped = place.root / "stopped"
        stop = f'stop_command = ["/bin/sh", "-c", "echo $0 > {stopped}; kill -9 $0", "${{PID}}"]'
        text = opaque(stop, words=', "--deaf"')
        place.config.write_text(place.config.read_text() + text)
        async with daemon_at(place) as (_, client):
            pid = (await speak(client))["pid"]
            await complete(client)
            await gone(pid)
            assert stopped.read_text() == f"{pid}\n"


async def test_a_stop_command_that_fails_is_followed_by_the_signal() -> None:
    # At once: the next SIGTERM of the ladder would be a minute away.
    text = opaque('stop_command = ["/bin/false"]\nstop_timeout_s = 120')
    async with serving(text) as (_, client, _):
        pid = (await speak(client))["pid"]
        await complete(client)
        await gone(pid)


async def test_one_that_is_deaf_is_killed_after_its_time() -> None:
    text = opaque("stop_timeout_s = 1", words=', "--deaf"')
    async with serving(text) as (_, client, _):
        pid = (await speak(client))["pid"]
        await complete(client)
        await gone(pid)


async def test_it_is_unloaded_when_nobody_asks_for_it() -> None:
    async with serving(opaque("ttl_s = 0.2")) as (running, client, _):
        await gone((await speak(client))["pid"])
        await until(lambda: running.control.decisions(subject="speech", limit=1))
        (decision,) = await running.control.decisions(subject="speech", limit=1)
        assert decision.act == "unload"


async def test_one_that_died_is_started_again_and_the_next_request_served() -> None:
    async with serving(opaque()) as (_, client, _):
        first = await speak(client)
        os.kill(first["pid"], 9)
        await gone(first["pid"])
        assert (await speak(client))["pid"] != first["pid"]


async def test_it_is_shown_for_what_it_is_and_never_tuned() -> None:
    async with serving(opaque("vram_mib = 2048")) as (running, client, _):
        model = await running.control.model("speech")
        assert model is not None
        assert (model.kind, model.model, model.context, model.size_bytes) == (
            "opaque",
            sys.executable,
            None,
            None,
        )
        assert model.state == "stopped"
        assert (await running.control.status()).unusable == ()
        async with client.get("/v1/models") as reply:
            listed = {one["id"]: one for one in (await reply.json())["data"]}
        assert listed["speech"]["context_length"] is None
        with pytest.raises(InvalidError, match="is no llama-server"):
            await running.control.probe(model="speech", depth=1, idempotency_key=None)


def broken_engine(folder: Path) -> str:
    """A PATH whose llama-server cannot be used."""
    program = folder / "llama-server"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


async def test_a_daemon_of_other_programs_alone_needs_no_engine(tmp_path: Path) -> None:
    path_env = broken_engine(tmp_path)
    async with home() as place:
        place.config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n{opaque()}')
        read = partial(load, place.config)
        disk = ConfigOnDisk(place.config, read)
        run = partial(daemon, directories=place.directories, path_env=path_env, disk=disk)
        async with run(read()) as running, aiohttp.ClientSession(running.url) as client:
            assert (await speak(client))["path"] == SPEECH
            assert (await running.control.status()).engine_binary.startswith("no llama-server")
            text = place.config.read_text()
            place.config.write_text(f'{text}[models.m]\nmodel = "bundled:tiny-chained.gguf"\n')
            await run_operation(running, await running.reloader.start())
            asked = {"model": "m", "prompt": "x"}
            async with client.post("/completion", json=asked) as reply:
                assert reply.status == 503
                told = (await reply.json())["error"]["message"]
                assert "When mtpd started there was no llama-server" in told
            assert (await speak(client))["path"] == SPEECH


async def test_a_model_that_needs_an_engine_or_one_that_is_named_is_missed(tmp_path: Path) -> None:
    path_env = broken_engine(tmp_path)
    async with home() as place:
        model = '[models.m]\nmodel = "bundled:tiny-chained.gguf"\n'
        for text in (opaque() + model, f'[engine]\nbinary = "llama-server"\n{opaque()}'):
            place.config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n{text}')
            with pytest.raises(BinaryError):
                async with daemon(load(place.config), place.directories, path_env=path_env):
                    pass
