"""What llama-perplexity and llama-bench print, as recorded and as scripted."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.engine.tool_output import BenchRow, bench_done, read_bench, read_perplexity
from mtpd.types import Absent
from tests.fakes.tools import fake_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED = Path(__file__).parents[2] / "corpus" / "logs"
STDOUT, STDERR = (
    (RECORDED / f"b11434_perplexity.{name}.log").read_text() for name in ("stdout", "stderr")
)
TEST: dict[str, Any] = {
    "build_commit": "8c60b8a2b",
    "build_number": 11434,
    "backends": "ROCm",
    "n_prompt": 0,
    "n_gen": 64,
    "n_depth": 0,
    "avg_ts": 32.4,
    "stddev_ts": 0.05,
    "samples_ts": [32.35, 32.45],
}


def test_the_recorded_run_of_build_11434_is_read() -> None:
    out = read_perplexity((STDOUT, STDERR))
    assert out.running[:2] == (752243991423.6533, 727186098860.2712)
    assert (len(out.running), out.chunks, out.context) == (6, 6, 512)
    assert (out.perplexity, out.stderr) == (854465588673.1237, 186313264465.70233)


def test_which_pipe_a_text_came_from_plays_no_role() -> None:
    both = read_perplexity((STDOUT, STDERR))
    assert read_perplexity((STDERR, STDOUT)) == both
    assert read_perplexity((STDERR + STDOUT,)) == both


@pytest.mark.parametrize(
    ("text", "running"),
    [
        ("[1]5.10,[2]5.2", (5.10,)),
        ("[1]5.10,[3]5.20,", (5.10,)),
        ("[2]5.10,", ()),
        ("[1]5.10,[2]nan,[3]5.3,", (5.10,)),
        ("[1]inf,", ()),
        ("[1]-1.0,", ()),
        ("[1]0.0000,", ()),
        ("0.02 minutes\n[1]5.1,[2]5.2,\n\n", (5.1, 5.2)),
        ("W unused tensor[7]\n", ()),
    ],
)
def test_chunks_are_taken_up_to_the_first_that_is_no_number(
    text: str, running: tuple[float, ...]
) -> None:
    assert read_perplexity((text,)).running == running


def test_what_was_not_printed_is_absent_with_a_reason() -> None:
    out = read_perplexity(("[1]5.1,",))
    assert out.perplexity == Absent("it printed no final estimate")
    assert out.stderr == Absent("it printed no error of its estimate")
    assert isinstance(out.chunks, Absent)
    assert isinstance(out.context, Absent)
    assert read_perplexity(("Final estimate: PPL = nan +/- nan",)).perplexity == out.perplexity


def test_a_test_of_llama_bench_is_read() -> None:
    (row,) = read(TEST)
    assert row == BenchRow(
        prompt_tokens=0,
        gen_tokens=64,
        depth=0,
        tps=32.4,
        tps_sd=0.05,
        samples=(32.35, 32.45),
        build="8c60b8a2b (11434)",
        backends="ROCm",
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"n_prompt": 512, "n_gen": 0}, "pp512"),
        ({}, "tg64"),
        ({"n_prompt": 512}, "pp512+tg64"),
        ({"n_depth": 4096}, "tg64 @ d4096"),
    ],
)
def test_tests_are_named_as_llama_bench_names_them(changes: dict[str, int], name: str) -> None:
    (row,) = read({**TEST, **changes})
    assert row.name == name


@pytest.mark.parametrize(
    "changes",
    [{"avg_ts": 0.0}, {"avg_ts": "32"}, {"n_gen": 0}, {"n_gen": -1}, {"n_prompt": None}],
)
def test_a_test_without_tokens_or_speed_is_no_result(changes: dict[str, object]) -> None:
    found = read_bench((json.dumps([TEST, {**TEST, **changes}]),))
    assert found == Absent("a test in its JSON lacks its tokens or its speed")


def test_an_unknown_spread_is_unknown_and_not_zero() -> None:
    (row,) = read({key: value for key, value in TEST.items() if key != "stddev_ts"})
    assert row.tps_sd is None


def test_a_bench_that_was_cut_off_gives_nothing() -> None:
    assert read_bench((json.dumps([TEST])[:-1], "some log")) == Absent(
        "it printed no JSON list of tests"
    )


def test_the_progress_of_llama_bench_counts_what_is_over() -> None:
    said = "llama-bench: benchmark 1/2: starting\nllama-bench: benchmark 1/2: warmup\n"
    assert bench_done((said,)) == (0, 2)
    assert bench_done((said + "llama-bench: benchmark 2/2: starting\n",)) == (1, 2)
    assert bench_done(("", "nothing")) is None


def test_the_scripted_llama_perplexity_prints_the_recorded_form(tmp_path: Path) -> None:
    argv = [str(fake_tool(tmp_path, "llama-perplexity")), "-m", "x", "-c", "512", "--chunks", "6"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert shape(ran.stdout) == shape(STDOUT)
    told = [shape(line) for line in STDERR.splitlines()]
    assert {shape(line) for line in ran.stderr.splitlines()} <= set(told)


def read(test: dict[str, Any]) -> Sequence[BenchRow]:
    found = read_bench(("ggml: a log\n", json.dumps([test], indent=2)))
    assert not isinstance(found, Absent)
    return found


def shape(text: str) -> str:
    """A text with every number the same."""
    return re.sub(r"\d+(\.\d+)*", "0", text)
