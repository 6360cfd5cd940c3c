"""``mtpctl`` as a program: on a terminal of 100 columns, and with pipes."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fakes.backend import Served

PROGRAM = [sys.executable, "-c", "from mtpd.cli.mtpctl import main; main()"]
DEADLINE_S = 20.0
COLOUR = re.compile(r"\x1b\[(?:\d+;)*3\d(?:;\d+)*m")


class Screen:
    """A program on a terminal of 100 columns."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.text = ""
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def terminal(self) -> int:
        """The descriptor by which its settings can be asked."""
        return self._master

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def until_true(self, condition: Callable[[], bool]) -> None:
        """Read on until something is true."""
        limit = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < limit, self.text
            self.rest()

    def rest(self) -> None:
        """Read what comes within a moment."""
        ready, _, _ = select.select([self._master], [], [], 0.02)
        if ready:
            self.text += self._decoder.decode(os.read(self._master, 65536))

    def until(self, pattern: str) -> str:
        """Read until a pattern has been shown."""
        return self._read(lambda: re.search(pattern, self.text) is not None)

    def end(self) -> int:
        """Read to the end; the exit code."""
        self._read(lambda: False)
        return self.process.wait(DEADLINE_S)

    def _read(self, enough: Callable[[], bool]) -> str:
        limit = time.monotonic() + DEADLINE_S
        while not enough():
            ready, _, _ = select.select([self._master], [], [], max(0, limit - time.monotonic()))
            assert ready, f"not within {DEADLINE_S} s: {self.text}"
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # the last writer is gone
                break
            if not chunk:
                break
            self.text += self._decoder.decode(chunk)
        return self.text


@contextmanager
def on_terminal(served: Served, *args: str, **environment: str) -> Iterator[Screen]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [*PROGRAM, "--socket", str(served.socket), *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**clean, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Screen(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@contextmanager
def piped(socket: Path, *args: str, unread: bool = False) -> Iterator[subprocess.Popen[str]]:
    """With its output in pipes; ``unread``: nobody is at the other end of the first."""
    gone: int | None = None
    if unread:
        reading, gone = os.pipe()
        os.close(reading)
    process = subprocess.Popen(
        [*PROGRAM, "--socket", str(socket), *args],
        stdout=subprocess.PIPE if gone is None else gone,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "" if unread else "1"},
    )
    if gone is not None:
        os.close(gone)
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(stream: IO[str] | None, containing: str) -> str:
    """The next line with a text in it; the test's own time-out bounds the wait."""
    assert stream is not None
    return next(line for line in stream if containing in line)
