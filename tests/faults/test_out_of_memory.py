"""An engine that ends for want of the machine's memory, and one that somebody has killed."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.supervise import oom
from tests.fakes.memory_group import memory_group
from tests.fakes.supervision import Stage, plan_of, tiny

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.supervise.runner import EngineActor
    from mtpd.views import EngineView

LIMIT_MIB = 48
EATER = """
import pathlib, sys
pathlib.Path(sys.argv[1]).write_text("0")
pathlib.Path(sys.argv[2]).touch()
while not pathlib.Path(sys.argv[3]).exists():
    pass
held = bytearray(200 << 20)
held[::4096] = b"x" * len(held[::4096])
"""
"""Joins a memory group, serves, and takes more than there is once it is told to."""


async def failed(actor: EngineActor) -> EngineView:
    revision = actor.revision
    with anyio.fail_after(30):
        while (view := actor.view()).state != "backoff":
            revision = await actor.wait_change(revision)
    return view


async def test_an_engine_is_the_preferred_victim_and_its_end_is_told(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        view = await actor.settled()
        assert view.pid is not None
        score = int(await anyio.Path(f"/proc/{view.pid}/oom_score_adj").read_text())
        assert score == 500
        assert score > int(await anyio.Path("/proc/self/oom_score_adj").read_text())
        os.kill(view.pid, signal.SIGKILL)
        view = await failed(actor)
        assert view.failure is not None
        assert view.failure.failure == "crash"
        assert "SIGKILL from outside" in view.failure.reason


@pytest.mark.memory
@pytest.mark.slow
async def test_one_that_the_kernel_killed_for_want_of_memory_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage()
    ready, go = tmp_path / "ready", tmp_path / "go"
    with memory_group(LIMIT_MIB) as group:
        argv = (sys.executable, "-S", "-c", EATER, f"{group}/cgroup.procs", str(ready), str(go))
        async with stage.running() as actor:
            actor.start(plan_of(*argv, path=ready))
            assert (await actor.settled()).state == "ready"
            before = oom.kills()
            assert before is not None
            go.touch()
            view = await failed(actor)
            assert oom.kills() == before + 1
            assert view.failure is not None
            assert (view.failure.failure, view.failure.exit_code) == ("oom_host", 137)
            assert (
                "most likely for want of host memory: the kernel has killed 1 of"
                in view.failure.reason
            )
            go.unlink()
            actor.stop("asked")
            assert (await actor.settled()).state == "stopped"
    with capsys.disabled():
        print(f" {view.failure.reason}", end="")  # noqa: T201
