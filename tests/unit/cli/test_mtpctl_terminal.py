"""``mtpctl`` as a program: on a terminal, interrupted, and while a daemon comes and goes."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import pytest

from mtpd.events import DaemonStarted
from tests.fakes.backend import ScriptedBackend, Served, served_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from mtpd.cli.mtpctl import main; main()"]
DEADLINE_S = 20.0
COLOUR = re.compile(r"\x1b\[(?:\d+;)*3\d(?:;\d+)*m")
pytestmark = pytest.mark.slow


class Screen:
    """A program on a terminal of 100 columns."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.text = ""
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")()

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
def piped(socket: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, "--socket", str(socket), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(stream: IO[str] | None, containing: str) -> str:
    """The next line with a text in it; the test's own time-out bounds the wait."""
    assert stream is not None
    return next(line for line in stream if containing in line)


def test_a_long_operation_shows_a_bar_and_then_coloured_results(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.held = {"tune"}
    with served_in_thread(backend, tmp_path / "s") as served:
        with on_terminal(served, "tune", "default") as screen:
            screen.until(r"1/3.*step 1")
            backend.held.clear()
            assert screen.end() == 0
    assert "━" in screen.text
    assert "Depth 2 gives 51.2 tok/s" in screen.text
    assert COLOUR.search(screen.text)


def test_no_color_is_honoured_on_a_terminal(tmp_path: Path) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        with on_terminal(served, "status", NO_COLOR="1") as screen:
            assert screen.end() == 0
        with on_terminal(served, "status") as coloured:
            assert coloured.end() == 0
    assert "resident" in screen.text
    assert not COLOUR.search(screen.text)
    assert COLOUR.search(coloured.text)


def test_ctrl_c_leaves_the_operation_running_and_says_how_to_cancel_it(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.held = {"tune"}
    with served_in_thread(backend, tmp_path / "s") as served:
        with piped(served.socket, "tune", "default") as process:
            line_of(process.stderr, "running 1/3")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 1
        assert "goes on" in err
        assert "mtpctl operations cancel op-0001" in " ".join(err.split())
        assert "interrupted" not in err
        assert "Traceback" not in err
        assert backend._operations["op-0001"].state == "running"


def test_ctrl_c_at_the_bar_leaves_a_clean_terminal(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.held = {"tune"}
    with served_in_thread(backend, tmp_path / "s") as served:
        with on_terminal(served, "tune", "default") as screen:
            screen.until(r"1/3.*step 1")
            screen.process.send_signal(signal.SIGINT)
            assert screen.end() == 1
    assert "goes on" in screen.text
    assert screen.text.rindex("\x1b[?25h") > screen.text.rindex("\x1b[?25l"), "cursor shown again"


def test_events_are_followed_across_a_restart_of_the_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with piped(socket, "events") as nobody:
        assert nobody.wait(DEADLINE_S) == 3, "following starts with a daemon that answers"
    with served_in_thread(ScriptedBackend(boot="b1"), socket) as served:
        with piped(socket, "events") as process:
            deadline = time.monotonic() + DEADLINE_S
            while not served.backend.bus._readers and time.monotonic() < deadline:
                time.sleep(0.01)
            served.publish(DaemonStarted(version="one"))
            assert "version=one" in line_of(process.stdout, "daemon.started")
            served.stop()
            line_of(process.stderr, "waiting for the daemon")
            socket.unlink(missing_ok=True)
            second = ScriptedBackend(boot="b2")
            second.bus.publish(DaemonStarted(version="two"))
            with served_in_thread(second, socket):
                assert "b2" in line_of(process.stdout, "stream.reset")
                assert "version=two" in line_of(process.stdout, "daemon.started")
                process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE_S) == 0


def test_the_reader_of_our_output_may_leave(tmp_path: Path) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        with piped(served.socket, "events", "--json") as process:
            assert process.stdout is not None
            process.stdout.close()
            deadline = time.monotonic() + DEADLINE_S
            while process.poll() is None and time.monotonic() < deadline:
                served.publish(DaemonStarted(version="x"))
                time.sleep(0.01)
            assert process.returncode == 1
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()
