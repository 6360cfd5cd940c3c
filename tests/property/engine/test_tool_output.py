"""The parsers of what tools print, over any text and over any cut of a real one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.tool_output import bench_done, read_bench, read_perplexity
from mtpd.types import Absent
from tuner.compare import chunk_nll

NLLS = st.lists(st.floats(0.1, 12.0), min_size=1, max_size=64)
ALPHABET = st.text(alphabet="[]0123456789.,-+/ naif\nPLFlestmk=:", max_size=200)


def printed(nlls: list[float]) -> tuple[str, list[float]]:
    """What llama-perplexity prints for chunks of these mean NLLs, and the exact values."""
    means = [math.fsum(nlls[: j + 1]) / (j + 1) for j in range(len(nlls))]
    values = [math.exp(mean) for mean in means]
    return "".join(f"[{j}]{v:.4f}," for j, v in enumerate(values, start=1)), values


@given(st.lists(st.text() | ALPHABET, max_size=3))
def test_no_text_makes_a_parser_raise(texts: list[str]) -> None:
    out = read_perplexity(texts)
    assert all(math.isfinite(value) and value > 0 for value in out.running)
    rows = read_bench(texts)
    assert isinstance(rows, Absent) or all(row.tps > 0 for row in rows)
    assert bench_done(texts) is None or len(bench_done(texts) or ()) == 2


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_no_json_makes_the_parser_of_llama_bench_raise(value: object) -> None:
    assert isinstance(read_bench((json.dumps(value),)), Absent)


FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | st.text()


@given(st.lists(FIELD, min_size=6, max_size=6))
def test_any_value_in_a_test_of_llama_bench_is_read_or_refused(values: list[object]) -> None:
    keys = ("n_prompt", "n_gen", "avg_ts", "n_depth", "stddev_ts", "samples_ts")
    one = dict(zip(keys, values, strict=True)) | {"samples_ts": values}
    rows = read_bench((json.dumps([one]),))
    if isinstance(rows, Absent):
        return
    (row,) = rows
    for count in (row.prompt_tokens, row.gen_tokens, row.depth):
        assert type(count) is int
        assert 0 <= count < 2**31
    assert 0 < row.tps < math.inf
    assert all(math.isfinite(speed) for speed in row.samples)


@pytest.mark.parametrize("key", ["avg_ts", "stddev_ts", "samples_ts", "n_prompt", "n_depth"])
def test_a_number_that_is_larger_than_any_float_is_not_known(key: str) -> None:
    huge: object = [10**400] if key == "samples_ts" else 10**400
    one = {"n_prompt": 512, "n_gen": 0, "avg_ts": 7.5, "stddev_ts": 0.5} | {key: huge}
    rows = read_bench((json.dumps([one]),))
    assert isinstance(rows, Absent) is (key in {"avg_ts", "n_prompt"})


@given(NLLS, st.data())
def test_a_text_that_ends_anywhere_has_a_prefix_of_the_chunks(
    nlls: list[float], data: st.DataObject
) -> None:
    text, _ = printed(nlls)
    whole = read_perplexity((text,)).running
    assert len(whole) == len(nlls)
    cut = read_perplexity((text[: data.draw(st.integers(0, len(text)))],)).running
    assert cut == whole[: len(cut)]


@given(NLLS)
def test_the_nll_of_each_chunk_comes_back_from_the_running_values(nlls: list[float]) -> None:
    text, values = printed(nlls)
    back = chunk_nll(read_perplexity((text,)).running)
    for j, (found, true) in enumerate(zip(back, nlls, strict=True), start=1):
        # Each value is rounded to four decimals, and weighs as much as there are chunks.
        rounding = 5.1e-5 * (j / values[j - 1] + ((j - 1) / values[j - 2] if j > 1 else 0))
        assert abs(found - true) <= rounding + 1e-9
