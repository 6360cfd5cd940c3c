"""``mtpctl ppl`` and ``mtpctl bench`` against the scripted daemon."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from mtpd.cli.lists import decision_table, measurement_table, model_table
from mtpd.cli.quality_lists import baseline_table, perplexity_table
from tests.fakes.backend import ScriptedBackend, ServedInThread, served_in_thread
from tests.unit.cli.support import Mtpctl, check_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

BASE = "qwen3.6-27b-b2"
PAIR = (BASE, "uncensored-b2")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedInThread]:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        yield served


@pytest.fixture
def mtpctl(daemon: ServedInThread, capsys: pytest.CaptureFixture[str]) -> Mtpctl:
    return Mtpctl(capsys, daemon.socket)


def test_a_pair_is_measured_and_its_difference_said(
    mtpctl: Mtpctl, daemon: ServedInThread, tmp_path: Path
) -> None:
    text = tmp_path / "wiki.test.raw"
    ran = mtpctl("ppl", *PAIR, "--corpus", str(text), "--chunks", "16")
    assert ran.code == 0
    check_golden("ppl", ran.out)
    assert "requests wait until this ends" in ran.err
    body = {"models": list(PAIR), "corpus": str(text), "chunks": 16, "context": 512}
    assert daemon.backend.calls == [("perplexity", body)]


def test_a_relative_text_is_sent_as_a_whole_path(mtpctl: Mtpctl, daemon: ServedInThread) -> None:
    ran = mtpctl("ppl", "qwen-27b", "--corpus", "wiki.raw", "--detach")
    assert ran.code == 0
    assert daemon.backend.calls[0][1]["corpus"] == str(Path.cwd() / "wiki.raw")


def test_without_a_text_what_is_stored_is_shown(mtpctl: Mtpctl, daemon: ServedInThread) -> None:
    ran = mtpctl("ppl", *PAIR)
    assert ran.code == 0
    check_golden("ppl", ran.out)
    listed = mtpctl("ppl")
    assert "uncensored-b2" in listed.out
    one = mtpctl("ppl", BASE)
    assert "uncensored-b2" not in one.out
    assert "5.7722" in one.out
    assert daemon.backend.calls == []


def test_a_pair_that_must_not_be_compared_ends_with_the_trap(mtpctl: Mtpctl) -> None:
    ran = mtpctl("ppl", "qwen-27b", "other-chunks")
    assert (ran.code, ran.out) == (1, "")
    assert "must not be compared (chunks)" in ran.err
    assert "--corpus FILE measures both alike" in ran.err


@pytest.mark.parametrize(
    "args",
    [
        ["ppl", "a", "b", "c"],
        ["ppl", "--corpus", "x"],
        ["ppl", "a", "--corpus", "x", "--chunks", "0"],
        ["ppl", "a", "--corpus", "x", "--context", "8"],
        ["bench", "a", "--repetitions", "0"],
        ["bench", "--gen-tokens", "64"],
        ["ppl", "a", "--chunks", "16"],
        ["ppl", "a", "--context", "512"],
        ["recipe", "b2", "a", "--run", "--chunks", "16"],
        ["recipe", "b2", "a", "--detach"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(mtpctl: Mtpctl, args: list[str]) -> None:
    assert mtpctl(*args).code == 2


def test_where_no_perplexity_is_stored_the_missing_text_is_named(mtpctl: Mtpctl) -> None:
    ran = mtpctl("ppl", "qwen-27b")
    assert ran.code == 0
    assert " ".join(ran.out.split()) == (
        "no perplexity of qwen-27b is stored: mtpctl ppl qwen-27b --corpus FILE measures it over a"
        " text of yours, e.g. WikiText-2's wiki.test.raw; mtpd brings none along"
    )


@pytest.mark.parametrize(
    "drawn", [perplexity_table, baseline_table, model_table, measurement_table, decision_table]
)
def test_a_list_without_rows_says_how_to_get_some(
    drawn: Callable[[Sequence[Any]], RenderableType],
) -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(drawn([]))
    assert "mtpctl" in shown.get()
    assert "─" not in shown.get(), "no empty table"


def test_a_baseline_stands_beside_what_serving_reaches(
    mtpctl: Mtpctl, daemon: ServedInThread
) -> None:
    ran = mtpctl("bench", "default", "--gen-tokens", "64")
    assert ran.code == 0
    check_golden("bench", ran.out)
    sizes = {"prompt_tokens": 512, "gen_tokens": 64, "repetitions": 5}
    assert daemon.backend.calls == [("bench", {"model": "default", **sizes})]


def test_a_bench_of_nothing_is_refused(mtpctl: Mtpctl) -> None:
    ran = mtpctl("bench", "default", "--gen-tokens", "0", "--prompt-tokens", "0")
    assert ran.code == 1
    assert "nothing is timed" in ran.err


def test_stored_baselines_are_listed(mtpctl: Mtpctl) -> None:
    ran = mtpctl("bench")
    assert ran.code == 0
    assert "tg64" in ran.out
