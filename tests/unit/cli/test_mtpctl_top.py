"""``mtpctl top``: a screen that follows the daemon, lines for pipes, and a clean end."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal
import termios
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.cli.cells import ALPHA, NONE
from mtpd.cli.decode import decode
from mtpd.cli.session import console
from mtpd.cli.top.command import BURST_S
from mtpd.cli.top.screen import moment_line, screen
from mtpd.cli.top.snapshot import TopView, snapshot
from mtpd.engine_views import RequestView
from mtpd.events import DaemonStarted
from mtpd.history_views import UNITS, SeriesView
from mtpd.units import MIB
from tests.fakes import devices, views
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.support import Mtpctl, check_golden
from tests.unit.cli.terminals import COLOUR, DEADLINE_S, line_of, on_terminal, piped

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.history_views import HistoryView
    from mtpd.views import StatusView

CARD = "0000:03:00.0"


def series(metric: str, *mean: float | None, position: int | None = None) -> SeriesView:
    return SeriesView(
        metric=metric,
        unit=UNITS[metric],
        device=CARD if metric.endswith(("_w", "_c", "_bytes", "_percent")) else None,
        position=position,
        mean=mean,
        low=mean,
        high=mean,
    )


def history(*shown: SeriesView) -> HistoryView:
    return dataclasses.replace(devices.history(), series=shown)


def busy() -> StatusView:
    """A daemon that answers one request while another one waits."""
    running = RequestView(
        id="r1",
        profile=views.QWEN,
        path="/v1/chat/completions",
        state="running",
        priority="normal",
        caller="laptop",
        depth=2,
        age_s=13.0,
        running_s=12.0,
        events=372,
        events_per_s=31.0,
    )
    waiting = dataclasses.replace(
        running,
        id="r2",
        state="waiting",
        priority="low",
        caller=None,
        depth=None,
        running_s=None,
        events=None,
        events_per_s=None,
    )
    return dataclasses.replace(views.status(), requests=(running, waiting))


FULL = (
    series("decode_tps", 44.9, None, None, None),
    series("acceptance", None, 0.93, None, None, position=1),
    series("acceptance", 0.71, None, None, None, position=2),
    series("power_w", 21.0, 149.0, 148.6, None),
    series("power_cap_w", 150.0, 150.0, 150.0, None),
    series("edge_c", 41.0, 71.0, 71.0, None),
    series("vram_used_bytes", 1.0, 15_404.0 * MIB, 15_404.0 * MIB, None),
    series("busy_percent", 0.0, 99.0, 99.0, None),
)


def test_the_screen_has_all_that_one_looks_for() -> None:
    file = io.StringIO()
    console(file).print(screen(snapshot(busy(), history(*FULL)), foot="q leaves"))
    check_golden("top", file.getvalue())
    assert len(file.getvalue().splitlines()) <= 24


def test_what_is_not_known_is_no_zero() -> None:
    old = series("power_w", 149.0, None, None, None)
    view = snapshot(dataclasses.replace(views.status(), engines=()), history(old))
    assert (view.decode_tps, view.stream_tps, view.acceptance) == (None, None, ())
    assert view.devices[0].power_w is None, "a sensor that is silent has no present value"
    parts = moment_line(view).split("  ")
    assert parts[2:5] == [f"{NONE} tok/s", f"{ALPHA} {NONE}", f"{NONE} {NONE} W {NONE} °C"]
    gap = snapshot(busy(), history(series("acceptance", 0.5, position=2)))
    assert gap.acceptance == (None, 0.5)


STEPS = st.lists(st.none() | st.floats(0, 1e6), min_size=4, max_size=4)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(sorted(UNITS)), STEPS))
def test_every_moment_can_be_shown_and_is_what_was_seen_last(
    seen: dict[str, list[float | None]],
) -> None:
    view = snapshot(busy(), history(*(series(name, *mean) for name, mean in seen.items())))
    known = [value for value in seen.get("decode_tps", ()) if value is not None]
    assert view.decode_tps == (known[-1] if known else None)
    console(io.StringIO()).print(screen(view))
    assert "\n" not in moment_line(view)


def test_one_moment_as_json_has_the_members_of_its_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        ctl = Mtpctl(capsys, served.socket)
        ran = ctl("top", "--once", "--json")
        plain = ctl("top", "--once")
    told = json.loads(ran.out)
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert list(told) == list(TopView.__dataclass_fields__)
    assert decode(TopView, told).engines[0].residency == "resident"
    assert plain.out.startswith("11-29 12:00:05  qwen3.6-27b-b2@2 ready resident  44.9 tok/s")
    asked = [call for call in served.backend.calls if call[0] == "history"]
    assert len(asked) == 2, "one question per moment"


def test_without_a_daemon_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Mtpctl(capsys, tmp_path / "none")("top", "--once").code == 3


@pytest.mark.slow
def test_lines_go_on_across_a_restart_of_the_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with served_in_thread(ScriptedBackend(), socket) as served:
        with piped(socket, "top", "--json", "--interval", "0.2") as process:
            assert json.loads(line_of(process.stdout, ""))["version"] == "0.1.0"
            served.stop()
            line_of(process.stderr, "Waiting for it.")
            socket.unlink(missing_ok=True)
            second = ScriptedBackend()
            second.view = dataclasses.replace(views.status(), version="0.2.0")
            with served_in_thread(second, socket):
                assert json.loads(line_of(process.stdout, "0.2.0"))["mode"] == "idle"
                process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["q", signal.SIGINT, signal.SIGTERM])
def test_the_screen_follows_events_and_leaves_the_terminal_as_it_was(
    end: str | signal.Signals, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    backend = ScriptedBackend()
    with served_in_thread(backend, socket) as served:
        with on_terminal(served, "top", "--interval", "600") as shown:
            before = termios.tcgetattr(shown.terminal)
            shown.until("q or Ctrl-C leaves")
            assert COLOUR.search(shown.text)
            shown.until_true(lambda: bool(backend.bus._readers))
            backend.view = dataclasses.replace(views.status(), mode="observe")
            served.publish(DaemonStarted(version="x"))
            shown.until("tuning observe")
            assert not termios.tcgetattr(shown.terminal)[3] & termios.ECHO
            if isinstance(end, str):
                shown.type(end)
            else:
                shown.process.send_signal(end)
            assert shown.end() == 0
            assert termios.tcgetattr(shown.terminal) == before
    assert shown.text.rindex("\x1b[?1049l") > shown.text.rindex("\x1b[?1049h"), "the old screen"
    assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l"), "the cursor"
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_the_screen_outlives_a_restart_of_the_daemon(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with served_in_thread(ScriptedBackend(), socket) as served:
        with on_terminal(served, "top", "--interval", "0.2", NO_COLOR="1") as shown:
            shown.until("q or Ctrl-C leaves")
            served.stop()
            shown.until("No daemon answers")  # where the sentence breaks depends on the path
            socket.unlink(missing_ok=True)
            second = ScriptedBackend()
            second.view = dataclasses.replace(views.status(), version="0.2.0")
            with served_in_thread(second, socket):
                shown.until(re.escape("mtpd 0.2.0"))
                shown.type("q")
                assert shown.end() == 0
    assert not COLOUR.search(shown.text)


@pytest.mark.slow
def test_a_flood_of_events_is_no_flood_of_questions(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    with served_in_thread(backend, tmp_path / "s") as served:
        began = time.monotonic()
        with on_terminal(served, "top", "--interval", "600") as shown:
            shown.until("q or Ctrl-C leaves")
            shown.until_true(lambda: bool(backend.bus._readers))
            for _ in range(100):
                served.publish(DaemonStarted(version="x"))
                shown.rest()
            shown.until_true(lambda: len(backend.calls) > 1)
            os.kill(shown.process.pid, signal.SIGINT)
            assert shown.end() == 0
        took_s = time.monotonic() - began
    asked = len([call for call in backend.calls if call[0] == "history"])
    assert asked <= took_s / BURST_S + 2, "at most one question a second"
