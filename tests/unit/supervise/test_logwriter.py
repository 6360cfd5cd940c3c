"""The log file is written beside the loop: a disk that stands still holds nobody up."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import anyio
from structlog.testing import capture_logs

from mtpd.supervise.logfile import LogFile
from mtpd.supervise.logwriter import LogWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WITHIN_S = 10.0
ENDS = """
import asyncio, pathlib, sys, threading
from mtpd.supervise.logfile import LogFile
from mtpd.supervise.logwriter import LogWriter

class Stuck(LogFile):
    def write(self, lines, *, lost=0):
        threading.Event().wait()

async def main():
    writer, done = LogWriter(Stuck(pathlib.Path(sys.argv[1])), limit_s=0.1), asyncio.Event()
    writer.write(["a line"])
    writer.close(done.set)
    await done.wait()

asyncio.run(main())
print("ended")
"""
"""What a daemon does at its end whose log disk stands still for ever."""


class StuckFile(LogFile):
    """A file on a disk that takes nothing until it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.takes = threading.Event()

    def write(self, lines: Sequence[str], *, lost: int = 0) -> None:
        assert self.takes.wait(WITHIN_S)
        super().write(lines, lost=lost)


async def closed(writer: LogWriter) -> None:
    done = anyio.Event()
    writer.close(done.set)
    with anyio.fail_after(WITHIN_S):
        await done.wait()


async def test_what_was_written_is_in_the_file_in_its_order_once_it_is_closed(
    tmp_path: Path,
) -> None:
    writer = LogWriter(LogFile(tmp_path / "m.log"))
    for number in range(1000):
        writer.write([f"line {number}", "and more"])
    await closed(writer)
    lines = (tmp_path / "m.log").read_text().splitlines()
    assert lines[::2] == [f"line {number}" for number in range(1000)]


async def test_a_writer_that_wrote_nothing_is_closed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    await closed(LogWriter(LogFile(path)))
    assert not path.exists()


async def test_a_disk_that_stands_still_delays_nobody_and_loses_only_what_has_no_room(
    tmp_path: Path,
) -> None:
    file = StuckFile(tmp_path / "m.log")
    writer = LogWriter(file, room_chars=20)
    with capture_logs() as told:
        writer.write(["first"])
        writer.write(["second"])
        writer.write(["too much", "for the room"])
        writer.write(["and this one, too"])
        file.takes.set()
        await closed(writer)
    text = (tmp_path / "m.log").read_text()
    assert text == "first\nsecond\n[mtpd: 3 lines were lost here]\n"
    assert [one["event"] for one in told] == ["engine.log_lost", "engine.log_resumed"]


async def test_lines_are_taken_again_once_there_is_room(tmp_path: Path) -> None:
    file = StuckFile(tmp_path / "m.log")
    writer = LogWriter(file, room_chars=20)
    with capture_logs():
        writer.write(["first"])
        writer.write(["far too much for the room"])
        file.takes.set()
        with anyio.fail_after(WITHIN_S):
            while writer._room < 20:  # noqa: ASYNC110 - the thread tells nobody
                await anyio.sleep(0.001)
        writer.write(["last"])
        await closed(writer)
    assert (tmp_path / "m.log").read_text() == "first\n[mtpd: 1 lines were lost here]\nlast\n"


async def test_a_disk_that_stands_still_for_ever_is_told_and_not_waited_for(
    tmp_path: Path,
) -> None:
    file = StuckFile(tmp_path / "m.log")
    writer = LogWriter(file, limit_s=0.05)
    writer.write(["a line"])
    with capture_logs() as told:
        await closed(writer)
    assert [one["event"] for one in told] == ["engine.log_not_closed"]
    file.takes.set()
    with anyio.fail_after(WITHIN_S):  # what waited is written once the disk takes it
        while not (tmp_path / "m.log").exists():  # noqa: ASYNC110 - the thread tells nobody
            await anyio.sleep(0.001)


def test_the_process_ends_although_the_disk_stands_still(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", ENDS, str(tmp_path / "m.log")]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout.splitlines()[-1] == "ended"
