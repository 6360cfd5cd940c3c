"""An actor with real children that do what they are told, and some that do not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.engine.facts import OutOfMemory
from mtpd.events import ResidencyJudged
from mtpd.supervise.identity import pids_of
from tests.fakes.patience import SOON_S
from tests.fakes.supervision import (
    ROOT,
    FileProbe,
    ManualTime,
    Stage,
    hurried,
    plan_of,
    tiny,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.supervise.runner import EngineActor


async def test_a_start_leads_to_ready_and_a_stop_to_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, say=["hello"]))
        ready = await actor.settled()
        actor.stop("asked")
        stopped = await actor.settled()
    assert (ready.state, ready.id, ready.starts) == ("ready", stage.first, 1)
    assert ready.log_tail == ("hello",)
    assert (stopped.state, stopped.pid, stopped.failure) == ("stopped", None, None)
    expected = ["spawning", "loading", "probing", "ready", "stopping", "releasing", "stopped"]
    assert stage.states() == expected
    judged = [event for event in stage.events if isinstance(event, ResidencyJudged)]
    assert [event.residency.state for event in judged] == ["unknown"]
    assert stage.ledger.notes == [
        ("intend", stage.first),
        ("spawned", stage.first, str(ready.pid)),
        ("judged", stage.first, "unknown"),
        ("ended", stage.first, "-15"),
    ]
    assert (tmp_path / "tiny@host.log").read_text() == "hello\n"


async def test_the_child_gets_its_environment_and_nothing_of_the_daemons(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, dump=str(facts)))
        await actor.settled()
    seen = json.loads(facts.read_text())
    assert seen["environment"] == [f"MTPD_INSTANCE={stage.first}", f"PYTHONPATH={ROOT}"]
    assert seen["leads"]
    assert seen["cwd"] == "/"
    assert seen["umask"] == "0077"
    assert seen["oom_score"] == 500
    # The child is a Python too, which ignores SIGPIPE (13) and SIGXFSZ (25) by itself; 32 and
    # 33 belong to the C library, and nobody can set them.
    allowed = sum(1 << (number - 1) for number in (13, 25, 32, 33))
    assert int(seen["ignored"], 16) & ~allowed == 0


async def test_another_plan_replaces_the_running_one_and_the_same_does_nothing(
    tmp_path: Path,
) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        first = await actor.settled()
        actor.start(tiny(tmp_path))
        assert (await actor.settled()).pid == first.pid
        actor.start(tiny(tmp_path, depth=2))
        second = await actor.settled()
    assert second.arm is not None
    assert (second.arm.depth, second.starts) == (2, 2)
    assert second.pid != first.pid


async def test_a_deaf_child_is_killed_after_the_ladder(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, deaf=True))
        await actor.settled()
        actor.stop("asked")
        assert (await actor.settled()).state == "stopped"
    assert stage.ledger.notes[-1] == ("ended", stage.first, "-9")


async def test_the_ladder_is_climbed_although_the_owner_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, deaf=True))
        pid = (await actor.settled()).pid
    assert pid is not None
    assert actor.view().state == "stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert stage.ledger.notes[-1] == ("ended", stage.first, "-9")


async def test_a_stop_during_the_load_ends_the_child_at_once(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, load_s=60))
        await until(lambda: actor.view().state == "loading")
        actor.stop("changed my mind")
        with anyio.fail_after(SOON_S):
            assert (await actor.settled()).state == "stopped"
    assert "ready" not in stage.states()


async def test_a_stop_before_the_process_exists_creates_none(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        actor.stop("changed my mind")
        assert (await actor.settled()).state == "stopped"
    assert stage.ledger.notes == [("intend", stage.first), ("ended", stage.first, "None")]


async def test_a_grandchild_that_holds_the_pipes_does_not_delay_the_exit(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, grandchild=60.0, exit_code=3))
        await until(lambda: actor.view().state == "loading")
        with anyio.fail_after(SOON_S):
            view = await actor.settled()
        assert view.state == "backoff"
        assert view.failure is not None
        assert view.failure.exit_code == 3
        for pid in pids_of(stage.first):
            os.kill(pid, signal.SIGKILL)


async def test_a_stopped_child_is_killed(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        pid = (await actor.settled()).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        # Until it has stopped, a SIGTERM would be taken first.
        await until(lambda: stat_of(pid)[2] == "T")
        actor.stop("asked")
        assert (await actor.settled()).state == "stopped"
    assert stage.ledger.notes[-1] == ("ended", stage.first, "-9")


async def test_a_load_that_prints_nothing_is_killed_and_tried_again(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, load_s=60, load_stall_s=0.3))
        view = await actor.settled()
        assert view.state == "backoff"
        assert view.failure is not None
        assert view.failure.failure == "hang"
        assert view.failure.reason == "the engine printed nothing for 0.3 s while loading"
        assert view.failure.exit_code == 137
        assert 0.0 < (view.failure.retry_in_s or 0.0) <= 0.5


async def test_a_condemned_engine_is_killed_and_started_again(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        first = await actor.settled()
        actor.condemn("does not answer")
        assert (await actor.settled()).state == "backoff"
        await until(lambda: actor.view().state == "ready")
        assert actor.view().pid != first.pid


async def test_a_crash_loop_ends_after_six_spawns(tmp_path: Path) -> None:
    time = ManualTime()
    stage = Stage(time=time)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, exit_code=1))
        view = await actor.settled()
        while view.state == "backoff":
            assert view.failure is not None
            assert view.failure.retry_in_s is not None
            seen = actor.revision
            time.advance(view.failure.retry_in_s)
            await actor.wait_change(seen)
            actor.start(tiny(tmp_path, exit_code=1))  # a request does not shorten or reset it
            view = await actor.settled()
    assert (view.state, view.starts) == ("failed", 6)
    assert view.failure is not None
    assert "breaker open: 6 failures within 60 s" in view.failure.reason


def _missing(directory: Path) -> str:
    return str(directory / "no-such-server")


def _not_executable(directory: Path) -> str:
    path = directory / "server.txt"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)
    return str(path)


def _not_a_program(directory: Path) -> str:
    path = directory / "server.gguf"
    path.write_bytes(b"GGUF\0\0\0\0")
    path.chmod(0o755)
    return str(path)


def _no_interpreter(directory: Path) -> str:
    path = directory / "server.sh"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("make", "code", "why"),
    [
        (_missing, 127, "No such file or directory"),
        (_not_executable, 126, "Permission denied"),
        (_not_a_program, 126, "Exec format error"),
        (_no_interpreter, 127, "its interpreter or loader is missing"),
    ],
)
async def test_a_wrong_binary_is_a_configuration_error_and_spawned_once(
    tmp_path: Path, make: Callable[[Path], str], code: int, why: str
) -> None:
    binary = make(tmp_path)
    stage = Stage()
    async with stage.running() as actor:
        actor.start(plan_of(binary, path=tmp_path / "ready"))
        view = await actor.settled()
    assert (view.state, view.starts) == ("failed", 1)
    assert view.failure is not None
    assert (view.failure.failure, view.failure.exit_code) == ("config", code)
    assert view.failure.reason == f"cannot start {binary}: {why}"
    assert view.failure.hint


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_evidence_in_a_flood_is_found_and_the_ring_stays_bounded(tmp_path: Path) -> None:
    needle = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12.00 MiB on device 0: "
    needle += "cudaMalloc failed: out of memory"
    stage = Stage(tmp_path)
    async with stage.running() as actor:
        actor.start(tiny(tmp_path, flood_mb=50, needle=needle))
        with anyio.fail_after(100):
            await actor.settled()
        assert any(isinstance(fact, OutOfMemory) for fact in stage.facts)
        tail = actor.view().log_tail
    assert len(tail) == 50
    files = log_files(tmp_path)
    assert len(files) == 2
    assert max(file.st_size for file in files) <= 8 * 1024 * 1024
    assert {file.st_mode & 0o777 for file in files} == {0o600}


def log_files(directory: Path) -> list[os.stat_result]:
    return [path.stat() for path in directory.glob("*.log*")]


async def test_every_settled_state_wakes_everyone_who_waits(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried)
    seen: list[str] = []

    async def wait(actor: EngineActor) -> None:
        seen.append((await actor.settled()).state)

    async with stage.running() as actor:
        actor.start(tiny(tmp_path, exit_code=1))
        async with anyio.create_task_group() as waiting:
            for _ in range(5):
                waiting.start_soon(wait, actor)
    assert seen == ["backoff"] * 5


async def test_many_cycles_leave_no_descriptor_behind(tmp_path: Path) -> None:
    stage = Stage(probe=FileProbe())
    async with stage.running() as actor:
        before = 0
        for number in range(25):
            actor.start(tiny(tmp_path))
            assert (await actor.settled()).state == "ready"
            actor.stop("next")
            assert (await actor.settled()).state == "stopped"
            if number == 2:
                await until(lambda: len(stage.ledger.notes) == 12)
                before = descriptors()
        await until(lambda: len(stage.ledger.notes) == 100)
        assert descriptors() == before
    assert {note[2] for note in stage.ledger.notes if note[0] == "ended"} == {"-15"}


def stat_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().split()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
