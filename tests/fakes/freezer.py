"""A process that not even SIGKILL ends: the freezer of cgroup v1, mounted in a namespace."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Freezer", "freezer"]

MOUNTED = 'mount -t cgroup -o freezer cgroup "$0" && echo mounted && read -r _'


class Freezer:
    """Freezes processes, all of them at once."""

    def __init__(self, group: Path) -> None:
        self._group = group

    def freeze(self, pid: int) -> None:
        """From now on it is in state D, whatever it is sent."""
        (self._group / "cgroup.procs").write_text(str(pid))
        (self._group / "freezer.state").write_text("FROZEN")

    def thaw(self) -> None:
        """Let all of them go on: one that was killed ends."""
        (self._group / "freezer.state").write_text("THAWED")


@contextmanager
def freezer(folder: Path) -> Iterator[Freezer]:
    """Mount it on a folder, seen by nobody else; at the end everything is thawed."""
    argv = ["/usr/bin/env", "unshare", "--mount", "/bin/sh", "-c", MOUNTED, str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as there:
        assert there.stdout is not None
        assert there.stdout.readline() == b"mounted\n"
        group = Path(f"/proc/{there.pid}/root{folder}") / f"mtpd-{os.getpid()}"
        group.mkdir()
        made = Freezer(group)
        try:
            yield made
        finally:
            made.thaw()
            above = group.parent / "cgroup.procs"
            for pid in (group / "cgroup.procs").read_text().split():
                above.write_text(pid)
            group.rmdir()
