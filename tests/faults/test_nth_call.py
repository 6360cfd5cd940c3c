"""Whichever call to the kernel fails, what is kept is the old or the new, and usable.

The first call of a kind fails, then the second, and so on, until a run in which none did. strace
makes them fail, so that nothing between Python and the kernel is a fake.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.fakes.uncounted import uncounted
from tests.faults.acts import NEW, OLD, act, state
from tests.faults.test_kill9 import POINTS

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("MTPD_ENDURANCE") == "1"
MOST = 400 if ALL else 2
"""Calls of one kind that are let fail, one after the other."""
ACKNOWLEDGED, REFUSED = 0, 3
FILES = {"token": "tokens.json", "snapshot": "lkg.json"}

CALLS = [
    ("token", "write", "error=ENOSPC"),
    ("token", "fsync", "error=EIO"),
    ("token", "rename", "error=EIO"),
    ("snapshot", "fsync", "error=EIO"),
    ("row", "pwrite64", "error=ENOSPC"),
    ("row", "fdatasync", "error=EIO"),
    ("token", "rename", "signal=KILL"),
    ("row", "pwrite64", "signal=KILL"),
    *([("token", "write", "signal=KILL"), ("token", "fsync", "signal=KILL")] * ALL),
    *([("row", "fdatasync", "signal=KILL")] * ALL),
    *([("snapshot", "write", "error=ENOSPC"), ("snapshot", "rename", "error=EIO")] * ALL),
    *([("snapshot", "rename", "signal=KILL"), ("snapshot", "fsync", "signal=KILL")] * ALL),
    *(
        [
            ("row", "pwrite64", "error=EIO"),
            ("row", "ftruncate", "error=EIO"),
            ("token", "flock", "error=EINTR"),
        ]
        * ALL
    ),
]


@pytest.mark.strace
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("what", "call", "failure"), CALLS)
def test_whichever_call_fails_it_is_old_or_new(
    what: str, call: str, failure: str, tmp_path: Path
) -> None:
    failed = 0
    for number in count(1):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        act(folder, what, OLD)
        code, injected = failing(folder, what, f"{call}:{failure}:when={number}")
        killed = code == -signal.SIGKILL and "KILL" in failure
        assert killed or code in {ACKNOWLEDGED, REFUSED}, f"{call} number {number}"
        kept = state(folder, what)
        assert kept in ({OLD}, {OLD, NEW}), f"{call} number {number}: {kept}"
        assert NEW in kept or code != ACKNOWLEDGED, (
            f"{call} number {number}: acknowledged, and lost"
        )
        if killed and what in FILES:
            act(folder, what, "later")
            assert [one.name for one in folder.iterdir()] == [FILES[what]], "what it left stays"
        if not injected:
            assert kept == {OLD, NEW}
            break
        failed += 1
        if failed >= MOST:
            break
    assert failed > 0 or call == "ftruncate", f"there is no {call}: nothing was shown"


def failing(folder: Path, what: str, inject: str) -> tuple[int, bool]:
    """Act with a call that fails; the exit code, and whether it came to that."""
    log = folder.with_suffix(".strace")
    call = inject.partition(":")[0]
    quick = ["--seccomp-bpf"] if "error=" in inject else []  # which a signal needs to do without
    command = ["strace", "-f", "-qq", *quick, "-o", str(log), "-e", f"trace={call}"]
    command += ["-e", f"inject={inject}", sys.executable, "-B", "-m", "tests.faults.acts"]
    run = subprocess.run([*command, str(folder), what], cwd=ROOT, env=uncounted(), check=False)
    return run.returncode, run.returncode < 0 or "(INJECTED)" in log.read_text()


STORE_POINTS = (
    "store.before_commit",
    "store.after_commit",
    "journal.after_commit",
    "ledger.after_commit",
)


@pytest.mark.slow
@pytest.mark.parametrize("point", STORE_POINTS)
def test_a_death_at_each_fault_point_of_the_store_is_old_or_new(point: str, tmp_path: Path) -> None:
    act(tmp_path, "row", OLD)
    command = [sys.executable, "-m", "tests.faults.acts", str(tmp_path), "row", point]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert state(tmp_path, "row") == ({OLD, NEW} if point == "ledger.after_commit" else {OLD})


def test_every_fault_point_is_put_to_the_test() -> None:
    points = {
        point
        for file in (ROOT / "mtpd").rglob("*.py")
        for point in re.findall(r"_faults\.hit\(f?\"([\w.]+)", file.read_text())
    }
    tried = {*STORE_POINTS, *POINTS}
    assert {point for point in points if not point.endswith("_")} <= tried
    assert {point for point in points if point.endswith("_")} == {"stop.before_"}
    assert len(points) > 8
