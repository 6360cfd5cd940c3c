"""kill -9 of a daemon at any instant leaves no engine process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.supervise.identity import VARIABLE
from tests.fakes.supervision import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import Process

SEED = 20261129
TRIALS = 200 if os.environ.get("MTPD_ENDURANCE") == "1" else 20
GONE_S = 30.0
"""Only what is there for good is an engine that was left: a machine that stands still is none."""
RAN_S = 60.0
"""So long one that has never run yet may take, once it was woken, to find its daemon gone."""
NEVER_RAN: list[str] = []
"""Those that the kernel has not let run even then: runnable, without a tick, on an idle machine."""


def engines(prefix: str) -> list[int]:
    """Every process that carries an engine id of this trial, zombies aside."""
    mark = f"{VARIABLE}={prefix}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(part.startswith(mark) for part in environment.split(b"\0")):
                found.append(int(entry.name))
    return found


def never_ran(pid: int) -> bool:
    """Whether the scheduler has not let a process run since it came to be: it holds nothing yet."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] == "R" and fields[11:13] == ["0", "0"]
    return False


def described(pid: int) -> str:
    """What a process is and does, for the message of a failure."""
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text().splitlines()
        signals = [line for line in status if line.startswith(("SigPnd", "ShdPnd", "SigBlk"))]
        said = f"{fields[0]} parent={fields[1]} ticks={fields[11]}+{fields[12]} {signals} {command}"
        with suppress(OSError):
            said += f" in {(folder / 'wchan').read_text()} {(folder / 'syscall').read_text()}"
        return said
    return "just ended"


@asynccontextmanager
async def parent(prefix: str, seed: int, directory: Path, *more: str) -> AsyncIterator[Process]:
    """A parent with some engines; afterwards none of them may be left."""
    argv = [sys.executable, "-m", "tests.fakes.parent", prefix, str(seed), str(directory), *more]
    process = await anyio.open_process(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=None)
    assert process.stdout is not None
    try:
        yield process
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()
    with anyio.move_on_after(GONE_S):
        while engines(prefix):  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(0.02)
    with anyio.move_on_after(RAN_S):
        while waiting := [pid for pid in engines(prefix) if never_ran(pid)]:
            for pid in waiting:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            await anyio.sleep(0.1)
    left = {pid: described(pid) for pid in engines(prefix)}
    NEVER_RAN.extend(left.pop(pid) for pid in list(left) if never_ran(pid))
    for pid in engines(prefix):  # a failure must not leave them to the next trial
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"{prefix}: {left} are left"


async def trial(number: int, delay_s: float, directory: Path) -> int:
    """Kill one parent; returns how many engines it had just before."""
    prefix = f"kill9-SEED={SEED}-{number}-after-{delay_s:.3f}-{os.getpid()}"
    async with parent(prefix, SEED + number, directory) as process:
        assert process.stdout is not None
        await process.stdout.receive()
        await anyio.sleep(delay_s)
        had = len(engines(prefix))
        process.send_signal(signal.SIGKILL)
    return had


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_kill_9_at_random_instants_leaves_no_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(SEED)  # noqa: S311 - reproducible, not secret
    had = 0
    for number in range(TRIALS):
        directory = tmp_path / str(number)
        await anyio.Path(directory).mkdir()
        had += await trial(number, rng.uniform(0.0, 0.8), directory)
    with capsys.disabled():
        print(f" SEED={SEED}: {had} engines ended with {TRIALS} parents", end="")  # noqa: T201
        print("".join(f"\n the kernel never ran {one}" for one in NEVER_RAN), end="")  # noqa: T201
    assert len(NEVER_RAN) <= TRIALS // 20
    assert had >= TRIALS, "the parents had hardly any engines: nothing was shown"


POINTS = (
    "spawn.before",
    "spawn.after_intent",
    "spawn.after_fork",
    "spawn.after_record",
    "stop.before_term",
    "stop.before_kill",
    "exit.before_record",
)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_a_death_at_each_fault_point_leaves_no_engine(tmp_path: Path, point: str) -> None:
    async with parent(f"point-{point}-{os.getpid()}", SEED, tmp_path, point) as process:
        with anyio.fail_after(40):
            await process.wait()
    assert process.returncode == -signal.SIGKILL
