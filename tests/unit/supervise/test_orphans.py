from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.supervise.identity import boot_id, engine_of, house_of, pids_of, start_ticks
from mtpd.supervise.orphans import end_house, reap
from mtpd.units import EngineId
from tests.fakes.supervision import MemoryLedger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KIND = "import time; print('up', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN)\n" + KIND


ORPHAN = EngineId(f"orphan-{uuid.uuid4().hex}")
"""Of this process of the test run: orphans are looked for on the whole machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    engine_id: EngineId = ORPHAN
    boot_id: str = ""
    pid: int | None = None
    start_ticks: int | None = None


@contextmanager
def process(code: str, engine_id: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {"MTPD_INSTANCE": engine_id}
    argv = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def row_of(child: subprocess.Popen[bytes]) -> Row:
    return Row(boot_id=boot_id(), pid=child.pid, start_ticks=start_ticks(child.pid))


async def test_an_orphan_is_ended_politely_and_its_row_closed() -> None:
    ledger = MemoryLedger()
    with process(KIND, ORPHAN) as child:
        assert await reap([row_of(child)], ledger=ledger, boot=boot_id()) == ()
        assert child.wait() == -15
    assert ledger.notes == [("ended", ORPHAN, "None")]


async def test_a_deaf_orphan_is_killed() -> None:
    with process(DEAF, ORPHAN) as child:
        rows = [row_of(child)]
        assert await reap(rows, ledger=MemoryLedger(), boot=boot_id(), grace_s=0.1) == ()
        assert child.wait() == -9


async def test_a_process_that_the_daemon_never_came_to_know_is_found_by_its_id() -> None:
    with process(KIND, ORPHAN) as child:
        await reap([Row(boot_id=boot_id())], ledger=MemoryLedger(), boot=boot_id())
        assert child.wait() == -15


async def test_a_reused_pid_is_left_alone() -> None:
    ledger = MemoryLedger()
    with process(KIND, "someone-else") as child:
        await reap([row_of(child)], ledger=ledger, boot=boot_id(), grace_s=0.1)
        assert child.poll() is None
    assert ledger.notes == [("ended", ORPHAN, "None")]


async def test_the_same_pid_with_another_start_time_is_left_alone() -> None:
    with process(KIND, ORPHAN) as child:
        row = Row(boot_id=boot_id(), pid=child.pid, start_ticks=1)
        await reap([row], ledger=MemoryLedger(), boot=boot_id(), grace_s=0.1)
        assert child.poll() is None


async def test_a_row_of_another_boot_is_only_closed() -> None:
    ledger = MemoryLedger()
    with process(KIND, ORPHAN) as child:
        row = Row(boot_id="another", pid=child.pid, start_ticks=start_ticks(child.pid))
        await reap([row], ledger=ledger, boot=boot_id(), grace_s=0.1)
        assert child.poll() is None
    assert ledger.notes == [("ended", ORPHAN, "None")]


def test_identity_of_what_is_gone_is_nothing() -> None:
    with process(KIND, ORPHAN) as child:
        pid = child.pid
        assert engine_of(pid) == ORPHAN
        assert pids_of(ORPHAN) == (pid,)
        assert start_ticks(pid)
    assert engine_of(pid) is None
    assert start_ticks(pid) is None
    assert pids_of(ORPHAN) == ()
    assert engine_of(os.getpid()) is None


async def test_what_carries_an_id_of_the_state_directory_is_ended_without_a_row(
    tmp_path: Path,
) -> None:
    house = house_of(tmp_path)
    assert house != house_of(tmp_path.parent)
    with process(KIND, f"{house}1") as one, process(DEAF, f"{house}2-stop") as other:
        with process(KIND, ORPHAN) as stranger:
            assert await end_house(house, grace_s=0.2) == ()
            assert (one.wait(), other.wait()) == (-15, -9)
            assert stranger.poll() is None
