"""A scripted child without imports to wait for: ``tiny_child.py READY_PATH KNOBS``.

Creates READY_PATH once it "serves". Knobs (JSON): load_s, deaf (ignores SIGTERM),
exit_code (ends so instead of serving), say (lines), flood_mb (with ``needle`` in the
middle), grandchild (seconds for which a process in its own session holds the pipes),
dump (a file that takes environment, signal and session facts).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

NOISE = b"0.00.123.456 D slot update_slots: nothing of interest" + b" and more of it" * 10 + b"\n"


def main() -> None:
    """Do what the knobs say."""
    path, knobs = sys.argv[1], json.loads(sys.argv[2])
    if knobs.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in knobs.get("say", ()):
        os.write(2, f"{line}\n".encode())
    if "flood_mb" in knobs:
        flood(knobs["flood_mb"], knobs["needle"])
    if "grandchild" in knobs and os.fork() == 0:
        os.setsid()
        time.sleep(knobs["grandchild"])
        os._exit(0)
    if "dump" in knobs:
        dump(knobs["dump"])
    time.sleep(knobs.get("load_s", 0))
    if "exit_code" in knobs:
        sys.exit(knobs["exit_code"])
    with open(path, "w", encoding="ascii"):  # noqa: PTH123 - pathlib costs more than the rest
        pass
    time.sleep(600)


def flood(megabytes: int, needle: str) -> None:
    """Print so much that nobody can keep it, with one line of interest in the middle."""
    block = NOISE * (1024 * 1024 // len(NOISE))
    for number in range(megabytes):
        if number == megabytes // 2:
            os.write(2, f"{needle}\n".encode())
        write_all(block)


def write_all(block: bytes) -> None:
    """Write it whole, however often the pipe is full."""
    view = memoryview(block)
    while view:
        view = view[os.write(2, view) :]


def dump(path: str) -> None:
    """Write down how the process was started."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - as above
        environment = sorted(file.read().decode().split("\0")[:-1])
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123 - as above
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:  # noqa: PTH123 - as above
        score = int(file.read())
    facts = {
        "environment": environment,
        "ignored": status["SigIgn"].strip(),
        "umask": status["Umask"].strip(),
        "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
        "cwd": os.getcwd(),  # noqa: PTH109 - as above
        "fds": sorted(os.listdir("/proc/self/fd"))[:3],  # noqa: PTH208 - as above
        "oom_score": score,
    }
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - as above
        json.dump(facts, file)


if __name__ == "__main__":
    main()
