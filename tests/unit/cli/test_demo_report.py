"""The demo's report for people and for programs, and the forecast in it."""

from __future__ import annotations

import io
import json
import shlex
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.cli.cells import WIDTH
from mtpd.cli.demo_report import show_progress, show_report
from mtpd.config.load import load
from mtpd.demo import HARDWARE, Forecast, Report, _forecast
from mtpd.views import IntervalView, ProgressView, encode
from tests.fakes import views
from tuner.pools import NOISE_HIDES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.config.model import HardwareProfile


def forecast(model: str, *ratios: float, best: int) -> Forecast:
    return Forecast(
        model=model,
        hardware=HARDWARE,
        row_cost=0.41,
        source="fitted to the resident cells of study 000",
        ratios=tuple(IntervalView(low=r, mid=r, high=r, level=0.95) for r in ratios),
        best_depth=best,
    )


def report(**changes: Any) -> Report:
    plain = Report(
        url="http://127.0.0.1:8080",
        control_socket="/run/demo/control.sock",
        engine="embedded llama.cpp",
        threads=1,
        models=(views.model(),),
        decisions=(
            replace(views.decision(1), subject="a model", reason="it is the fastest"),
            replace(views.decision(2), subject="demo", reason="R2 speed: of 2"),
        ),
        forecast=(
            forecast("tiny-chained", 1.0, 1.39, 1.54, best=2),
            forecast("tiny-unchained", 1.0, 1.21, best=1),
        ),
        seconds=12.34,
        warnings=(),
    )
    return replace(plain, **changes)


def shown(capsys: pytest.CaptureFixture[str], given: Report, *, once: bool = True) -> str:
    show_report(given, as_json=False, once=once)
    out, err = capsys.readouterr()
    assert err == ""
    return out


def row(text: str, name: str) -> list[str]:
    """The cells of the first row that begins so; a title has only one."""
    cells = (line.split() for line in text.splitlines() if line.strip().startswith(name))
    return next(row for row in cells if len(row) > 1)


@pytest.fixture
def hardware() -> HardwareProfile:
    found = load(None, overrides={"budget.hardware": HARDWARE}).hardware
    assert found is not None
    return found


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def standard_error(stream: io.StringIO) -> Iterator[None]:
    """In the test's body: the capture puts its own stream back before each phase."""
    before, sys.stderr = sys.stderr, stream
    try:
        yield
    finally:
        sys.stderr = before


def test_the_report_for_programs_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    given = report()
    show_report(given, as_json=True, once=True)
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == (encode(given), "")
    assert out.count("\n") == 1


def test_the_report_says_what_was_measured_where_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, report())
    assert text.startswith("Measured on this machine: embedded llama.cpp, 1 engine thread.\n")
    assert "a model: it is the fastest\n" in text
    assert "demo: R2 speed: of 2\n" in text
    assert "Chosen: qwen3.6-27b-b2 at depth 2.\n" in text
    assert "Measured and chosen in 12.3 s.\n" in text
    assert row(text, "2")[:6] == ["2", "55.4", "47.2", "54.7", "47.4", "51.2"]
    assert "chosen" in " ".join(row(text, "2"))


def test_the_acceptance_of_every_model_is_in_one_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, report())
    assert "acceptance by position" in text
    assert row(text, views.QWEN)[1:4] == ["2", "α1", "96.1%"]  # noqa: RUF001  # the Greek letter is meant


def test_a_forecast_is_labelled_and_a_ratio_never_a_speed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, report())
    assert f"FORECAST, not measured: this acceptance on {HARDWARE}" in " ".join(text.split())
    assert row(text, "tiny-chained") == ["tiny-chained", "1.00x", "1.39x", "1.54x", "depth", "2"]
    assert (
        "Speed relative to depth 0: E / (1 + 0.41 x depth), where E is the tokens per step that "
        "the measured acceptance gives; the cost of a verification row is fitted to the resident "
        "cells of study 000. "
    ) in " ".join(text.split())
    assert "tok/s" not in text.partition("FORECAST")[2]


def test_a_model_with_fewer_positions_keeps_its_best_depth_in_its_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, report())
    lines = text.splitlines()
    short = next(line for line in lines if line.strip().startswith("tiny-unchained"))
    full = next(line for line in lines if line.strip().startswith("tiny-chained"))
    assert short.index("depth 1") == full.index("depth 2")
    assert short.split() == ["tiny-unchained", "1.00x", "1.21x", "depth", "1"]


def test_without_a_forecast_there_is_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert "FORECAST" not in shown(capsys, report(forecast=()))


def test_where_no_model_could_be_chosen_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    rejected = replace(views.decision(2), subject="demo", arm=None, reason="no model can be chosen")
    text = shown(capsys, report(decisions=(rejected,)))
    assert "demo: no model can be chosen\n" in text
    assert "Chosen:" not in text
    assert "Chosen:" not in shown(capsys, report(decisions=()))


def test_a_model_without_measurements_is_shown_and_not_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, report(models=(views.unmeasured_model(),)))
    assert views.TINY in text


def test_brackets_of_a_reason_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "alpha1 [0.91, 0.95]; [/dev/dri] is gone; pip install 'mtpd[embedded]' :rocket:"
    decision = replace(views.decision(2), subject="demo", reason=reason)
    assert f"demo: {reason} " in " ".join(shown(capsys, report(decisions=(decision,))).split())


def test_a_demo_that_goes_on_says_where_and_how_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, report(), once=False)
    assert (
        "Serving on http://127.0.0.1:8080 until Ctrl-C, which leaves nothing behind. Try:\n" in text
    )
    pasted = text.partition("  curl ")[2].rpartition("\n  ")[0]
    url, *options = shlex.split(pasted.replace("\\\n", ""))  # as a shell joins lines
    assert url == "http://127.0.0.1:8080/v1/chat/completions"
    assert options[:3] == ["-H", "Content-Type: application/json", "-d"]
    assert json.loads(options[3])["model"] == "demo"
    assert "curl" not in shown(capsys, report(), once=True)


def test_no_line_is_wider_than_the_window(capsys: pytest.CaptureFixture[str]) -> None:
    long = replace(views.decision(2), subject="demo", reason="depth 2 is chosen for its mean " * 9)
    given = report(
        decisions=(long,),
        control_socket="/run/mtpd-demo-abcdefgh/run/a/folder/of/a/user/control.sock",
        url="http://127.0.0.1:48080",
    )
    text = shown(capsys, given, once=False)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "mtpctl \\\n    --socket /run/mtpd-demo-abcdefgh/" in text


def test_mtpctl_is_named_as_it_can_be_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv-demo/bin/mtpd", "demo"])
    assert "  mtpctl --socket" in shown(capsys, report(), once=False), "there is none beside it"
    Path(".venv-demo/bin").mkdir(parents=True)
    Path(".venv-demo/bin/mtpctl").touch()
    assert "  .venv-demo/bin/mtpctl --socket" in shown(capsys, report(), once=False)


def test_models_that_noise_does_not_tell_apart_are_named_beside_the_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hidden = f"{NOISE_HIDES} tiny-unchained is faster"
    decision = views.decision(2)
    unclear = replace(decision, evidence=(*decision.evidence, hidden))
    text = shown(capsys, report(decisions=(unclear,)))
    assert "\nChosen: qwen3.6-27b-b2 at depth 2. The noise hides whether" in text
    assert "noise" not in shown(capsys, report(decisions=(decision,)))


def test_progress_replaces_its_line_on_a_terminal() -> None:
    terminal = Terminal()
    with standard_error(terminal):
        show_progress(ProgressView(done=3, total=24, note="tiny@2 short"), quiet=False)
        show_progress(ProgressView(done=4, total=None, note="tiny@3 short"), quiet=False)
    assert terminal.getvalue() == "\r\033[K3/24 tiny@2 short\r\033[K4 tiny@3 short"


def test_the_report_begins_on_a_clean_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with standard_error(terminal):
        show_report(report(), as_json=False, once=True)
    assert terminal.getvalue() == "\r\033[K"
    assert "Measured on this machine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stream", "quiet"),
    [(Terminal(), True), (io.StringIO(), False)],
    ids=["for programs", "no terminal"],
)
def test_progress_is_silent_for_programs_and_where_there_is_no_terminal(
    stream: io.StringIO, *, quiet: bool
) -> None:
    with standard_error(stream):
        show_progress(ProgressView(done=3, total=24, note="tiny@2 short"), quiet=quiet)
    assert stream.getvalue() == ""


def test_the_forecast_takes_every_position_of_the_deepest_row(hardware: HardwareProfile) -> None:
    found = _forecast(views.model(), hardware)
    assert found is not None
    assert (found.model, found.hardware, found.row_cost) == (views.QWEN, HARDWARE, 0.41)
    assert found.source != "not said"
    # Depth 5 of the table has all five positions: 0.86, 0.71, 0.58, 0.45, 0.33.
    assert [round(r.mid, 3) for r in found.ratios] == [1.0, 1.319, 1.357, 1.267, 1.13, 0.996]
    assert found.best_depth == 2


@pytest.mark.parametrize("missing", ["acceptance", "rows", "hardware", "row cost"])
def test_what_is_unknown_gives_no_forecast(missing: str, hardware: HardwareProfile) -> None:
    model, card = views.model(), hardware
    assert _forecast(model, card) is not None
    match missing:
        case "acceptance":
            model = replace(model, depths=tuple(replace(r, acceptance=()) for r in model.depths))
        case "rows":
            model = replace(model, depths=())
        case "row cost":
            card = replace(card, row_cost=None)
        case _:
            assert _forecast(model, None) is None
            return
    assert _forecast(model, card) is None


def test_what_makes_the_speeds_doubtful_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    note = "the machine was busy when this began (load 3.0 on 2 cores)"
    assert f"Warning: {note}." in " ".join(shown(capsys, report(warnings=(note,))).split())
    assert "Warning" not in shown(capsys, report())
    before, _, after = shown(capsys, report(warnings=(note,))).partition("Chosen:")
    assert "Warning: the machine was busy" in before
    assert "Warning" not in after


def test_a_demo_that_goes_on_says_where_mtpctl_finds_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "mtpctl --socket /run/demo/control.sock" in shown(capsys, report(), once=False)
