"""``mtpctl`` as a program: on a terminal, interrupted, and while a daemon comes and goes."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from mtpd.events import DaemonStarted
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.terminals import COLOUR, DEADLINE_S, line_of, on_terminal, piped

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    "command", ["events", "logs --follow", "top --interval 3600", "events --json"]
)
def test_a_quiet_stream_ends_when_its_reader_is_gone(tmp_path: Path, command: str) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        with piped(served.socket, *command.split()) as process:
            assert process.stdout is not None
            if command.startswith("top"):
                assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(DEADLINE_S) == 1, "nothing is published that could be written"
            assert process.stderr is not None
            assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "command", ["status", "models --json", "config", "top --once", "--help", "completion bash"]
)
def test_a_reader_that_has_gone_before_the_first_word_is_told_nothing(
    tmp_path: Path, command: str
) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        with piped(served.socket, *command.split(), unread=True) as process:
            assert process.wait(DEADLINE_S) == 1
            assert process.stderr is not None
            assert process.stderr.read() == ""
