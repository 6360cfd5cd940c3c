"""A pid that the kernel has given to somebody else is never signalled, in a pid namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRIALS = 100 if os.environ.get("MTPD_ENDURANCE") == "1" else 15

SCRIPT = """
import asyncio, os, signal, subprocess, sys
from pathlib import Path
from mtpd.supervise.identity import boot_id, start_ticks
from mtpd.supervise.orphans import reap
from tests.fakes.supervision import MemoryLedger
from tests.unit.supervise.test_orphans import Row

LAST = Path("/proc/sys/kernel/ns_last_pid")

def sleeper(engine):
    return subprocess.Popen(["/bin/sleep", "60"], env={"MTPD_INSTANCE": engine} if engine else {})

reused = wrong = 0
for number in range(int(sys.argv[1])):
    engine = sleeper(f"engine-{number}")
    row = Row(engine_id=f"engine-{number}", boot_id=boot_id(), pid=engine.pid,
              start_ticks=start_ticks(engine.pid))
    engine.kill()
    engine.wait()
    LAST.write_text(str(engine.pid - 1))
    stranger = sleeper("" if number % 2 else "somebody-else")
    reused += stranger.pid == engine.pid
    asyncio.run(reap([row], ledger=MemoryLedger(), boot=boot_id(), grace_s=0.01))
    wrong += stranger.poll() is not None
    stranger.kill()
    stranger.wait()
print(reused, wrong)
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_got_the_pid_of_an_engine_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run = subprocess.run(
        ["/usr/bin/env", *inside, sys.executable, "-c", SCRIPT, str(TRIALS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    reused, wrong = map(int, run.stdout.split())
    with capsys.disabled():
        print(f" {reused} of {TRIALS} pids reused, {wrong} wrong signals", end="")  # noqa: T201
    assert reused > TRIALS * 0.8, "hardly any pid came again: nothing was shown"
    assert wrong == 0
