"""Runs between fork and exec of an engine: ``python -I -S shim.py PPID OOM_SCORE GROUP ARGV...``.

Makes the kernel kill the engine when the daemon's loop thread ends, makes it the
preferred victim of the OOM killer, joins its control group (GROUP is the ``cgroup.procs`` of
it, empty where there is none), undoes what Python changes for itself, then becomes the engine.
Exit 127: not found, or the daemon is gone; 126: found but not startable.
Only the standard library, and little of it: every engine start waits for this.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
MARK = "mtpd: cannot start "
"""How the message of a failed exec begins."""


def main() -> None:
    """Become the engine."""
    parent, oom_score, group = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the daemon died before the line above
        os._exit(127)
    _write("/proc/self/oom_score_adj", oom_score)
    if group:
        _write(group, "0")  # whoever writes this
    os.umask(0o077)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores both; exec would keep that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    program = sys.argv[4]
    try:
        os.execve(program, sys.argv[4:], _environment())  # noqa: S606 - a shell is not wanted
    except OSError as error:
        _give_up(program, error)


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs 10 ms
            file.write(text)
    except OSError:
        pass  # neither is worth an engine that does not start


def _environment() -> dict[bytes, bytes]:
    """The environment as it was handed over, without the LC_CTYPE that Python adds."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms
        entries = file.read().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def _give_up(program: str, error: OSError) -> None:
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    why = error.strerror or str(error)
    if missing and os.path.exists(program):  # noqa: PTH110 - pathlib costs 10 ms
        why = "its interpreter or loader is missing"
    os.write(2, f"{MARK}{program}: {why}\n".encode(errors="replace"))
    os._exit(127 if missing else 126)


if __name__ == "__main__":
    main()
