"""``mtpctl logs``: lines with what they are evidence of, once and followed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.decode import decode
from mtpd.log_views import LogLineView, LogView
from mtpd.logfeed import DAEMON
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, served_in_thread
from tests.unit.cli.support import Mtpctl, check_golden
from tests.unit.cli.terminals import COLOUR, DEADLINE_S, line_of, on_terminal, piped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUFFER = "load_tensors:      ROCm0 model buffer size = 14336.11 MiB"


def written(boot: str = "b1", *, begin: str = "start") -> ScriptedBackend:
    """Three lines of an engine, the second of which is evidence, and two of the daemon."""
    backend = ScriptedBackend(boot=boot)
    lines = ["0.00.100.000 W odd", BUFFER, f"\x1b[2J{begin}"]
    backend.lines.add(views.QWEN, lines, engine_id="e1", notes=[(1, ("buffer", "residency"))])
    backend.lines.add(DAEMON, ["engine.ready"], level="info")
    backend.lines.add(DAEMON, ["disk.low"], level="warning")
    return backend


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served_in_thread(written(), tmp_path / "s") as served:
        yield served


@pytest.fixture
def mtpctl(daemon: Served, capsys: pytest.CaptureFixture[str]) -> Mtpctl:
    return Mtpctl(capsys, daemon.socket)


def test_lines_are_shown_with_what_they_are_evidence_of(mtpctl: Mtpctl) -> None:
    ran = mtpctl("logs")
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out, "no line steers the terminal"
    check_golden("logs", "".join(f"{line[:80]}\n" for line in ran.out.splitlines()))
    assert BUFFER in ran.out


@pytest.mark.parametrize(
    ("args", "texts"),
    [
        (["--evidence"], [BUFFER]),
        (["--about", "residency"], [BUFFER]),
        (["--about", "failure"], []),
        (["--source", "daemon"], ["engine.ready", "disk.low"]),
        (["--tail", "1"], ["disk.low"]),
        (["default", "--tail", "2"], [BUFFER, "\x1b[2Jstart"]),
    ],
)
def test_only_what_was_asked_for_is_shown(
    args: list[str], texts: list[str], mtpctl: Mtpctl
) -> None:
    told = json.loads(mtpctl("logs", "--json", *args).out)
    assert list(told) == list(LogView.__dataclass_fields__)
    assert [decode(LogLineView, one).text for one in told["lines"]] == texts
    assert all(list(one) == list(LogLineView.__dataclass_fields__) for one in told["lines"])


@pytest.mark.parametrize(
    "args", [["--evidence", "--about", "start"], ["default", "--source", "daemon"]]
)
def test_what_excludes_each_other_is_told(args: list[str], mtpctl: Mtpctl) -> None:
    ran = mtpctl("logs", *args)
    assert (ran.code, ran.out) == (2, "")


def test_a_model_that_there_is_not(mtpctl: Mtpctl) -> None:
    for args in (["nobody"], ["nobody", "-f"]):
        ran = mtpctl("logs", *args)
        assert (ran.code, "There is no model 'nobody'." in ran.err) == (1, True)


@pytest.mark.slow
def test_evidence_is_coloured_on_a_terminal_unless_no_colour_is_wanted(daemon: Served) -> None:
    with on_terminal(daemon, "logs", "--evidence") as coloured:
        assert coloured.end() == 0
    with on_terminal(daemon, "logs", "--evidence", NO_COLOR="1") as plain:
        assert plain.end() == 0
    assert COLOUR.search(coloured.text)
    assert "residency" in plain.text
    assert not COLOUR.search(plain.text)


@pytest.mark.slow
def test_lines_are_followed_across_a_restart_of_the_daemon_and_none_comes_twice(
    tmp_path: Path,
) -> None:
    socket = tmp_path / "s"
    with piped(socket, "logs", "-f") as nobody:
        assert nobody.wait(DEADLINE_S) == 3
    with served_in_thread(written(), socket) as served:
        with piped(socket, "logs", "-f", "--json", "--tail", "1") as process:
            assert json.loads(line_of(process.stdout, "disk"))["text"] == "disk.low"
            served.loop.call_soon_threadsafe(
                lambda: served.backend.lines.add(DAEMON, ["next"], level="info")
            )
            assert json.loads(line_of(process.stdout, ""))["text"] == "next"
            served.stop()
            line_of(process.stderr, "waiting for the daemon")
            socket.unlink(missing_ok=True)
            with served_in_thread(written("b2", begin="again"), socket):
                line_of(process.stderr, "Lines are missing: ")
                assert json.loads(line_of(process.stdout, "again"))["profile"] == views.QWEN
                process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE_S) == 0
