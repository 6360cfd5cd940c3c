"""An actor with the scripted llama-server and the real probe: evidence, canary, impostors."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import anyio
from aiohttp import web

from mtpd.engine.client import EngineClient
from mtpd.supervise.probe import EngineProbe
from tests.fakes.patience import SOON_S
from tests.fakes.supervision import Stage, plan_of, scripted, until
from tuner.types import Evicted

if TYPE_CHECKING:
    from pathlib import Path

CARD = {"name": "ROCm0"}


def stage_for(directory: Path) -> Stage:
    return Stage(directory, probe=EngineProbe())


async def test_a_healthy_engine_without_a_device_is_ready_on_the_host(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path))
        view = await actor.settled()
        assert view.state == "ready"
        assert actor.verdict.label == "host"
        assert actor.verdict.passes
        assert view.residency.evidence
        assert view.endpoint == f"unix:{tmp_path}/engine.sock"
    assert not (tmp_path / "engine.sock").exists()


async def test_an_evicted_engine_is_ready_and_its_verdict_does_not_pass(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path, depth=3, device=CARD, evict_at_depth=3))
        view = await actor.settled()
        assert (view.state, view.residency.state) == ("ready", "evicted")
        assert isinstance(actor.verdict.residency, Evicted)
        assert not actor.verdict.passes
    assert ("judged", stage.first, "evicted") in stage.ledger.notes


async def test_the_cause_of_a_crash_in_the_canary_is_the_crash_not_the_reset(
    tmp_path: Path,
) -> None:
    stage = stage_for(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path, crash_at_token=2))
        view = await actor.settled()
        assert view.state == "backoff"
        assert view.failure is not None
        assert view.failure.failure == "crash"
        assert "canary" not in view.failure.reason


async def test_health_alone_does_not_make_an_engine_ready(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path, lie_health=True, load_s=60))
        await until(lambda: actor.view().state in {"probing", "stopping", "backoff"})
    assert "ready" not in stage.states()


async def test_an_engine_whose_load_stalls_is_killed(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path, load_stall=True, load_stall_s=2.0))
        view = await actor.settled()
        assert view.failure is not None
        assert (view.state, view.failure.failure) == ("backoff", "hang")


async def test_a_missing_model_file_is_a_configuration_error(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    plan = scripted(tmp_path)
    argv = tuple(str(tmp_path / "no.gguf") if "gguf" in a else a for a in plan.command.argv)
    plan = type(plan)(
        key=plan.key,
        arm=plan.arm,
        command=type(plan.command)(argv=argv, env=plan.command.env),
        endpoint=plan.endpoint,
        fingerprint=plan.fingerprint,
    )
    async with stage.running() as actor:
        actor.start(plan)
        view = await actor.settled()
    assert view.failure is not None
    assert (view.state, view.failure.failure, view.starts) == ("failed", "config", 1)


async def test_an_impostor_on_the_socket_is_not_taken_for_the_engine(tmp_path: Path) -> None:
    stage = stage_for(tmp_path)
    path = tmp_path / "engine.sock"
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    async with stage.running() as actor:
        await runner.setup()
        actor.start(plan_of(sys.executable, "-c", "import time; time.sleep(60)", path=path))
        await until(lambda: actor.view().state == "loading")
        await web.UnixSite(runner, str(path)).start()
        view = await actor.settled()
        await runner.cleanup()
    assert view.state == "backoff"
    assert view.failure is not None
    assert f"process {os.getpid()} answers on the engine's socket" in view.failure.reason
    assert asked == ["/health"]


async def test_a_stop_does_not_wait_for_an_open_stream(tmp_path: Path) -> None:
    """The scripted server keeps the habit of llama-server: it waits for its clients."""
    stage = stage_for(tmp_path)
    body = b'{"prompt":"p","n_predict":100000,"stream":true}'
    async with stage.running() as actor, anyio.create_task_group() as tasks:
        actor.start(scripted(tmp_path, realtime=True))
        await actor.settled()
        plan = actor.plan
        assert plan is not None
        streaming = anyio.Event()

        async def read() -> None:
            async with EngineClient(plan.endpoint) as client:
                headers = [("Content-Type", "application/json")]
                async with client.open("POST", "/completion", headers=headers, body=body) as reply:
                    with suppress(aiohttp.ClientPayloadError):
                        async for _ in reply.content:
                            streaming.set()

        tasks.start_soon(read)
        await streaming.wait()
        actor.stop("asked")
        with anyio.fail_after(SOON_S):
            assert (await actor.settled()).state == "stopped"
        tasks.cancel_scope.cancel()
    assert stage.ledger.notes[-1] == ("ended", stage.first, "1")
