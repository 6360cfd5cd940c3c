"""An actor with the embedded engine: the real llama.cpp server, a tiny real model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model
from mtpd.supervise.identity import pids_of
from mtpd.supervise.probe import EngineProbe
from tests.fakes.patience import SOON_S
from tests.fakes.supervision import Stage, plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import LaunchPlan

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]


def embedded(directory: Path, depth: int) -> LaunchPlan:
    path = directory / "engine.sock"
    argv = [
        sys.executable, "-m", "mtpd.engine.embedded",
        "--model", str(bundled_model("tiny-chained.gguf")),
        "--host", str(path),
        "--ctx-size", "512",
        "--parallel", "1",
        "--threads", "1",
        "--verbosity", "4",
    ]  # fmt: skip
    if depth:
        argv += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth)]
    return plan_of(*argv, path=path, depth=depth)


@pytest.mark.parametrize("depth", [0, 2])
async def test_the_real_engine_becomes_ready_on_the_host_and_stops(
    tmp_path: Path, depth: int
) -> None:
    stage = Stage(tmp_path, probe=EngineProbe())
    async with stage.running() as actor:
        actor.start(embedded(tmp_path, depth))
        with anyio.fail_after(30):
            view = await actor.settled()
        assert view.state == "ready", view.log_tail
        assert (view.residency.state, actor.verdict.passes) == ("host", True)
        actor.stop("asked")
        with anyio.fail_after(SOON_S):
            assert (await actor.settled()).state == "stopped"
    assert stage.ledger.notes[-1] == ("ended", stage.first, "0")
    assert not (tmp_path / "engine.sock").exists()
    assert pids_of(stage.first) == ()


async def test_a_real_engine_that_is_killed_is_started_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, probe=EngineProbe())
    async with stage.running() as actor:
        actor.start(embedded(tmp_path, 0))
        first = await actor.settled()
        assert first.pid is not None
        seen = actor.revision
        await anyio.run_process(["kill", "-SEGV", str(first.pid)])
        await actor.wait_change(seen)
        failed = await actor.settled()
        assert failed.failure is not None
        assert (failed.state, failed.failure.failure) == ("backoff", "crash")
        with anyio.fail_after(30):
            while actor.view().state != "ready":
                seen = await actor.wait_change(actor.revision)
        assert actor.view().starts == 2
