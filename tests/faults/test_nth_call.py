"""Whichever call to the kernel fails, what is kept is the old or the new, and usable.

The first call of a kind fails, then the second, and so on, until a run in which none did. strace
makes them fail, so that nothing between Python and the kernel is a fake.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.faults.acts import NEW, OLD, act, state

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("MTPD_ENDURANCE") == "1"
MOST = 400 if ALL else 3
"""Calls of one kind that are let fail, one after the other."""
ACKNOWLEDGED, REFUSED = 0, 3

CALLS = [
    ("token", "write", "ENOSPC"),
    ("token", "fsync", "EIO"),
    ("token", "rename", "EIO"),
    ("row", "pwrite64", "ENOSPC"),
    ("row", "fdatasync", "EIO"),
    *([("row", "pwrite64", "EIO"), ("row", "ftruncate", "EIO"), ("token", "flock", "EINTR")] * ALL),
]


@pytest.mark.strace
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("what", "call", "error"), CALLS)
def test_whichever_call_fails_it_is_old_or_new(
    what: str, call: str, error: str, tmp_path: Path
) -> None:
    failed = 0
    for number in count(1):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        act(folder, what, OLD)
        code, injected = failing(folder, what, f"{call}:error={error}:when={number}")
        assert code in {ACKNOWLEDGED, REFUSED}, f"{call} number {number}"
        kept = state(folder, what)
        assert kept in ({OLD}, {OLD, NEW}), f"{call} number {number}: {kept}"
        assert NEW in kept or code == REFUSED, f"{call} number {number}: acknowledged, and lost"
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
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", str(log), "-e", f"trace={call}"]
    command += ["-e", f"inject={inject}", sys.executable, "-B", "-m", "tests.faults.acts"]
    run = subprocess.run([*command, str(folder), what], cwd=ROOT, check=False)
    return run.returncode, "(INJECTED)" in log.read_text()
