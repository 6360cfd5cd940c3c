"""Whatever an engine prints, nothing is raised and nothing is believed without proof."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.engine.evidence import EvidenceCollector, judge
from mtpd.engine.facts import Fact
from mtpd.engine.failures import classify
from mtpd.engine.logs import fact
from tests.unit.engine import recorded
from tests.unit.engine.log_lines import ERAS
from tuner.types import Evicted

# One recorded line of every kind, and some that say nothing.
SAMPLES = sorted(
    {line for line, _ in ERAS}
    | {
        line
        for name in recorded.LOGS[::9]
        for line, found in recorded.everything(name)
        if found is not None
    }
)
PAIRS = [(line, found) for line in SAMPLES if (found := fact(line)) is not None]

noise = st.one_of(
    st.text(max_size=200),
    st.binary(max_size=200).map(lambda raw: raw.decode(errors="replace")),
    st.sampled_from(["\x1b[34m", "[40655] ", "0.00.1", '{"type":"log","msg":"', "9" * 5000, "\0"]),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A known line: cut, joined with another, with noise put into it, repeated."""
    line = draw(st.sampled_from(SAMPLES))
    at = draw(st.integers(0, len(line)))
    until = draw(st.integers(at, len(line)))
    other = draw(st.sampled_from(SAMPLES))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return line[at:until]
    if kind == 1:
        return line[:at] + other[until:]
    if kind == 2:
        return line[:at] + draw(noise) + line[at:]
    if kind == 3:
        return line * draw(st.integers(2, 200))
    return line[:at] + line[until:]


facts_in_order = st.lists(st.sampled_from(PAIRS), max_size=40)


@settings(max_examples=400)
@given(st.one_of(noise, mutated()))
def test_no_line_raises(line: str) -> None:
    found = fact(line)
    assert found is None or isinstance(found, Fact)
    assert fact(line) == found


@settings(max_examples=200)
@given(
    st.sampled_from(PAIRS), st.sampled_from(["", "I ", "0.12.345.678 W ", "[9] 1.00.000.001 E "])
)
def test_a_prefix_never_changes_a_fact(pair: tuple[str, Fact], prefix: str) -> None:
    line, found = pair
    if line[:1] in {"[", "{", "\x1b"} or line[:1].isdigit() or line[1:2] == " ":
        return
    assert fact(prefix + line) in {found, None} if prefix == "I " else fact(prefix + line) == found


@settings(max_examples=200)
@given(facts_in_order)
def test_judging_is_total_and_quotes_only_what_it_was_given(pairs: list[tuple[str, Fact]]) -> None:
    found = judge(pairs)
    assert {e.line for e in found.evidence} <= {line for line, _ in pairs}
    assert found.reason
    if isinstance(found.residency, Evicted) and found.residency.layers is not None:
        assert found.residency.layers > 0


@settings(max_examples=200)
@given(facts_in_order)
def test_nothing_is_resident_without_weights_and_cache_on_a_device(
    pairs: list[tuple[str, Fact]],
) -> None:
    kept = [(line, found) for line, found in pairs if "buffer size" not in line]
    assert judge(kept).label not in {"resident", "host"}


@settings(max_examples=100)
@given(facts_in_order)
def test_asking_early_does_not_change_the_answer(pairs: list[tuple[str, Fact]]) -> None:
    asked = EvidenceCollector()
    for line, found in pairs:
        asked.add(line, found)
        asked.verdict()
    assert asked.verdict() == judge(pairs)


@settings(max_examples=200)
@given(
    exit_code=st.none() | st.integers(-300, 300),
    signal=st.none() | st.integers(0, 80),
    ready=st.booleans(),
    lines=st.lists(st.one_of(st.sampled_from(SAMPLES), noise), max_size=10),
)
def test_every_end_of_an_engine_has_a_class_a_sentence_and_a_hint(
    exit_code: int | None, signal: int | None, *, ready: bool, lines: list[str]
) -> None:
    found = classify(exit_code=exit_code, signal=signal, ready_before=ready, lines=lines)
    assert found.sentence
    assert found.hint
    assert found.line is None or found.line in lines
