"""Many starts leave no zombie, descriptor, thread or socket, and every end is right."""

from __future__ import annotations

import errno
import os
import resource
import sys
import threading
from pathlib import Path

import anyio
import psutil
import pytest

from mtpd.supervise.output import Output
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.spawn import Exit, ShimSpawner
from mtpd.types import Command
from tests.fakes.supervision import Stage, scripted

ALL = os.environ.get("MTPD_ENDURANCE") == "1"
SPAWNS, CYCLES = (1000, 1000) if ALL else (48, 5)
AT_ONCE = 16


def descriptors() -> list[str]:
    return names(Path("/proc/self/fd"))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def quiet() -> Output:
    return Output(on_lines=lambda _: None, file=None)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_start_leaves_anything_behind_and_every_code_is_right() -> None:
    spawner, ends = ShimSpawner(), dict[int, int]()
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        def ended(end: Exit) -> None:
            ends[number] = end.code

        code = f"exit {number % 256}" if number % 3 else f"kill -{1 + number % 2 * 8} $$"
        command = Command(argv=("/bin/sh", "-c", code), env={})
        engine = f"many-{os.getpid()}-{number}"
        async with limit:
            child = spawner.spawn(command, engine_id=engine, output=quiet(), on_exit=ended)
            await child.closed()

    await one(1)
    before, threads = descriptors(), threading.active_count()
    async with anyio.create_task_group() as tasks:
        for number in range(SPAWNS):
            tasks.start_soon(one, number)
    assert ends == {n: n % 256 if n % 3 else -(1 + n % 2 * 8) for n in range(SPAWNS)}
    assert (descriptors(), threading.active_count()) == (before, threads)
    zombies = [c for c in psutil.Process().children() if c.status() == psutil.STATUS_ZOMBIE]
    assert zombies == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_no_stop_leaves_a_socket_and_no_start_fails_to_bind(tmp_path: Path) -> None:
    stage = Stage(probe=EngineProbe())
    plan = scripted(tmp_path)
    async with stage.running() as actor:
        for _ in range(CYCLES):
            actor.start(plan)
            assert (await actor.settled()).state == "ready"
            assert names(tmp_path) == ["engine.sock"]
            actor.stop("next")
            assert (await actor.settled()).state == "stopped"
            assert names(tmp_path) == []
    assert "backoff" not in stage.states()


SPAWN_WITHOUT = """
import asyncio, os, resource, sys
from mtpd.supervise.output import Output
from mtpd.supervise.spawn import ShimSpawner
from mtpd.types import Command

async def main(more):
    loop = asyncio.get_running_loop()
    used = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, 4096))
    ends = []
    output = Output(on_lines=lambda _: None, file=None)
    try:
        child = ShimSpawner().spawn(
            Command(argv=("/bin/sleep", "60"), env={}), engine_id=sys.argv[1], output=output,
            on_exit=ends.append,
        )
    except OSError as error:
        print("failed", error.errno)
    else:
        print("started")
        child.signal(9)
        await child.closed()
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    children = [int(e) for e in os.listdir("/proc") if e.isdecimal() and parent(e) == os.getpid()]
    print(len(os.listdir("/proc/self/fd")) - 1 - used, len(children))

def parent(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    except OSError:
        return 0

asyncio.run(main(int(sys.argv[2])))
"""


@pytest.mark.slow
async def test_a_start_that_runs_out_of_descriptors_at_any_call_leaves_no_process() -> None:
    """Fail with EMFILE at the first descriptor, the second, and so on, until it is a clean run."""
    for more in range(32):
        run = await anyio.run_process(
            [sys.executable, "-c", SPAWN_WITHOUT, f"emfile-{os.getpid()}-{more}", str(more)],
            cwd=Path(__file__).parents[2],
        )
        said, left = run.stdout.decode().splitlines()
        assert left == "0 0", f"with {more} descriptors: {said}, {left} descriptors and processes"
        if said == "started":
            break
        assert said == f"failed {errno.EMFILE}"
    else:
        pytest.fail("there is never a clean run")
    assert more > 3, "too many descriptors were free: nothing was shown"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > more
