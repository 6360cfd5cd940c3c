"""Metrics, timings and model headers: total, or one clear error, for every input."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.engine.gguf import GgufError, GgufHeader, read_header
from mtpd.engine.prom import SpecCounters, delta, parse, spec_counters
from mtpd.engine.timings import Timings, from_response
from mtpd.types import Absent
from tests.unit.engine import recorded

METRICS = recorded.text("logs/b11434_metrics_n2.txt")
MODEL = (
    Path(__file__).parents[3] / "mtpd" / "_data" / "models" / "tiny-chained.gguf"
).read_bytes()[:64_000]

counts = st.integers(0, 10_000)
counters = st.builds(
    SpecCounters,
    drafts=counts,
    drafted=counts,
    accepted=counts,
    per_position=st.none() | st.lists(counts, min_size=1, max_size=5).map(tuple),
)
json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.just({"a": 1}),
)
TIMING_KEYS = (
    "prompt_n",
    "prompt_ms",
    "predicted_n",
    "predicted_ms",
    "cache_n",
    "draft_n",
    "draft_n_accepted",
)


@settings(max_examples=200)
@given(st.text(max_size=300), st.integers(0, len(METRICS)), st.integers(0, len(METRICS)))
def test_no_metrics_text_raises(inserted: str, start: int, end: int) -> None:
    text = METRICS[:start] + inserted + METRICS[end:]
    for (name, labels), value in parse(text).items():
        assert name
        assert isinstance(labels, tuple)
        assert isinstance(value, float)
    assert isinstance(spec_counters(text), SpecCounters | Absent)


@given(counters, counters)
def test_a_difference_added_to_the_first_reading_gives_the_second(
    before: SpecCounters, after: SpecCounters
) -> None:
    between = delta(before, after)
    if isinstance(between, Absent):
        return
    assert between.drafts >= 0
    assert before.drafts + between.drafts == after.drafts
    assert before.drafted + between.drafted == after.drafted
    assert before.accepted + between.accepted == after.accepted
    if between.per_position is not None and after.per_position is not None:
        old = before.per_position or ()
        for position, count in enumerate(between.per_position):
            base = old[position] if position < len(old) else 0
            total = after.per_position[position] if position < len(after.per_position) else 0
            assert count >= 0
            assert base + count == total


@given(counters)
def test_no_reading_differs_from_itself(reading: SpecCounters) -> None:
    same = delta(reading, reading)
    assert isinstance(same, SpecCounters)
    assert (same.drafts, same.drafted, same.accepted) == (0, 0, 0)
    assert not any(same.per_position or ())


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(TIMING_KEYS), json_values) | json_values)
def test_no_reply_raises(value: object) -> None:
    found = from_response({"timings": value})
    if isinstance(found, Timings):
        assert min(found.prompt_n, found.predicted_n, found.cache_n) >= 0
        assert (found.draft_n is None) == (found.draft_n_accepted is None)
    else:
        assert found.reason


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 255)), max_size=12),
    st.integers(0, len(MODEL)),
)
def test_a_damaged_model_ends_in_one_clear_error_and_soon(
    damage: list[tuple[int, int]], kept: int
) -> None:
    content = bytearray(MODEL)
    for position, value in damage:
        content[position] = value
    if not damage:
        content = content[:kept]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(content)
        began = time.perf_counter()
        found: GgufHeader | GgufError
        try:
            found = read_header(path)
        except GgufError as error:
            found = error
        assert time.perf_counter() - began < 5
    if isinstance(found, GgufError):
        assert str(path) in str(found)
        assert found.hint
    else:
        assert found.missing_bytes >= 0
