from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.errors import StateError
from mtpd.supervise.lock import hold

if TYPE_CHECKING:
    from collections.abc import Callable

HOLDER = """
import sys, time
from pathlib import Path
from mtpd.supervise.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with hold(tmp_path):
        with pytest.raises(StateError, match=f"pid {os.getpid()}") as caught, hold(tmp_path):
            pass
        assert caught.value.exit_code == 78
        assert caught.value.hint
    with hold(tmp_path):
        pass


def test_the_kernel_frees_the_lock_of_a_killed_daemon(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=root) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateError), hold(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with hold(tmp_path):
            pass


def test_a_directory_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot open"), hold(tmp_path / "missing"):
        pass
    (tmp_path / "lock").symlink_to("/etc/passwd")
    with pytest.raises(StateError, match="cannot open"), hold(tmp_path):
        pass


def test_a_directory_that_takes_no_byte_is_locked_all_the_same(tmp_path: Path) -> None:
    # A file size limit of zero refuses the write as a full disk does: with an OSError.
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with capture_logs() as told, hold(tmp_path):
            with pytest.raises(StateError, match="pid unknown") as caught, hold(tmp_path):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        signal.signal(signal.SIGXFSZ, ignored)
    assert [one["event"] for one in told] == ["lock.without_pid"]
    assert str(tmp_path) in str(caught.value)
    assert caught.value.hint


def _hard_link(path: Path) -> None:
    victim = path.parent / "victim"
    victim.write_text("precious")
    path.hardlink_to(victim)


@pytest.mark.parametrize("plant", [_hard_link, os.mkfifo])
def test_what_someone_planted_is_refused_and_not_written_to(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "lock")
    with pytest.raises(StateError, match="not a plain file"), hold(tmp_path):
        pass
    victim = tmp_path / "victim"
    assert not victim.exists() or victim.read_text() == "precious"
