from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from tuner.compare import (
    Comparable,
    Incomparable,
    Perplexity,
    PerplexityRun,
    PplComparison,
    Quality,
    Run,
    SpeedRun,
    TextRun,
    Trap,
    chunk_nll,
    comparable,
    compare_quality,
    median_of,
    paired_t,
    ppl_compare,
)
from tuner.types import Evicted, Host, Resident, Unknown

RUN = PerplexityRun(corpus="wikitext-2", chunks=32, context=512)
TEXT = TextRun(digest="aa", temperature=0.0, seed=1, fingerprint="f")
SPEED = SpeedRun(
    fingerprint="f",
    residency=Resident(),
    slots=1,
    context=8192,
    fill_tokens=1000,
    cap_w=150.0,
    edge_start_c=44.0,
    other_process=False,
)
NOT_RECORDED = Unknown("the file has no such column")


@pytest.mark.parametrize(
    ("a", "b", "trap", "word"),
    [
        (RUN, PerplexityRun(corpus="other", chunks=32, context=512), Trap.CORPUS, "other"),
        (RUN, PerplexityRun(corpus="wikitext-2", chunks=16, context=512), Trap.CHUNKS, "32"),
        (RUN, PerplexityRun(corpus="wikitext-2", chunks=32), Trap.CONTEXT, "None"),
        (TEXT, TextRun(digest="ab", seed=1, fingerprint="f"), Trap.TEXT, "ab"),
        (TEXT, TextRun(digest="aa", seed=2, fingerprint="f"), Trap.SAMPLING, "seed"),
        (TEXT, TextRun(digest="aa", temperature=1.0, seed=1, fingerprint="f"), Trap.SAMPLING, "1"),
        (TEXT, TextRun(digest="aa", seed=1, fingerprint="g"), Trap.FINGERPRINT, "g"),
        (RUN, TEXT, Trap.KIND, "different things"),
        (TEXT, RUN, Trap.KIND, "different things"),
        (SPEED, TEXT, Trap.KIND, "different things"),
        (SPEED, replace(SPEED, fingerprint="g"), Trap.FINGERPRINT, "fingerprint f, the other g"),
        (SPEED, replace(SPEED, residency=Evicted(layers=1)), Trap.RESIDENCY, "other evicted"),
        (SPEED, replace(SPEED, slots=2), Trap.SLOTS, "slot count of 1, the other 2"),
        (SPEED, replace(SPEED, context=4096), Trap.CONTEXT, "context of 8192, the other 4096"),
        (SPEED, replace(SPEED, fill_tokens=1101), Trap.FILL, "of 1000, the other 1101"),
        (SPEED, replace(SPEED, fill_tokens=909), Trap.FILL, "of 1000, the other 909"),
        (SPEED, replace(SPEED, cap_w=225.0), Trap.CAP, "W of 150.0, the other 225.0"),
        (SPEED, replace(SPEED, cap_w=None), Trap.CAP, "W of 150.0, the other None"),
        (SPEED, replace(SPEED, edge_start_c=44.1), Trap.TEMPERATURE, "44.1 C, above"),
        (SPEED, replace(SPEED, other_process=True), Trap.PROCESS, "another process"),
    ],
)
def test_a_refused_comparison_names_its_trap(a: Run, b: Run, trap: Trap, word: str) -> None:
    verdict = comparable(a, b)
    assert isinstance(verdict, Incomparable)
    assert verdict.trap is trap
    assert word in verdict.sentence


@pytest.mark.parametrize("name", [f.name for f in fields(SpeedRun)])
def test_what_was_not_recorded_is_not_comparable_rather_than_slow(name: str) -> None:
    dark = replace(SPEED, **{name: NOT_RECORDED})
    for a, b in ((SPEED, dark), (dark, SPEED), (dark, dark)):
        verdict = comparable(a, b)
        assert isinstance(verdict, Incomparable)
        assert verdict.trap is Trap.RECORD
        assert verdict.sentence == f"{name} was not recorded: the file has no such column"


def test_a_machine_without_cap_and_sensor_compares_with_itself() -> None:
    bare = replace(SPEED, cap_w=None, edge_start_c=None, residency=Host())
    assert comparable(bare, bare) == Comparable()
    assert comparable(SPEED, replace(SPEED, fill_tokens=1100, edge_start_c=30.0)) == Comparable()


def test_the_acceptance_before_and_after_requantization_is_another_text() -> None:
    """Study 000, trap 1: "The same model file showed alpha_1 = 88.6% before and 90.7% after"."""
    before = TextRun(digest="of the file with a Q6_K output", fingerprint="study 000")
    after = TextRun(digest="of the file with a Q4_0 output", fingerprint="study 000")
    verdict = comparable(before, after)
    assert isinstance(verdict, Incomparable)
    assert verdict.trap is Trap.TEXT


def test_equal_conditions_compare() -> None:
    assert comparable(SPEED, SPEED) == Comparable()
    assert comparable(RUN, RUN) == Comparable()
    assert comparable(TEXT, TEXT) == Comparable()


def test_a_slow_first_repetition_is_marked_and_kept() -> None:
    """real_gpu_27b.md, depth 5: 56.4 then 91.0 tok/s, in two separate runs."""
    cell = median_of([56.4, 91.0, 91.2])
    assert cell.outliers == (0,)
    assert cell.value == 91.0
    assert cell.spread == pytest.approx((91.2 - 56.4) / 91.0)
    assert cell.count == 3


def test_an_even_spread_and_a_pair_have_no_outlier() -> None:
    assert median_of([54.0, 55.0, 56.0]).outliers == ()
    assert median_of([50.0, 100.0]).outliers == ()
    assert median_of([91.0, 91.0, 91.5]).outliers == ()


def test_the_16_chunk_perplexity_of_study_000_is_not_compared_with_that_of_32() -> None:
    """Trap 2: "The same file scores 7.76 over 16 chunks and 5.84 over 32"."""
    few = Quality(value=7.76, stderr=0.2, run=PerplexityRun(corpus="wikitext-2", chunks=16))
    many = Quality(value=5.84, stderr=0.15, run=PerplexityRun(corpus="wikitext-2", chunks=32))
    verdict = compare_quality(few, many)
    assert isinstance(verdict, Incomparable)
    assert verdict.trap is Trap.CHUNKS


def test_chunks_decide_where_the_errors_alone_would_tie() -> None:
    first = chunk_nll([15.2701, 5.4007, 5.3073, 6.2965, 5.8940])
    worse = tuple(x + 0.02 + 0.001 * i for i, x in enumerate(first))
    a = Quality(value=5.894, stderr=0.4, run=RUN, chunk_nll=first)
    b = Quality(value=5.894 * math.exp(0.022), stderr=0.4, run=RUN, chunk_nll=worse)
    assert verdict_of(a, b) is Perplexity.WORSE
    assert verdict_of(b, a) is Perplexity.BETTER
    assert verdict_of(a, a) is Perplexity.TIE


def test_without_chunks_the_errors_decide_and_without_errors_nothing_does() -> None:
    def quality(value: float, stderr: float | None) -> Quality:
        return Quality(value=value, stderr=stderr, run=RUN)

    assert verdict_of(quality(5.0, 0.01), quality(6.0, 0.01)) is Perplexity.WORSE
    assert verdict_of(quality(6.0, 0.01), quality(5.0, 0.01)) is Perplexity.BETTER
    assert verdict_of(quality(5.0, None), quality(6.0, 0.01)) is Perplexity.TIE
    assert verdict_of(quality(5.0, 0.01), quality(6.0, None)) is Perplexity.TIE


def verdict_of(a: Quality, b: Quality) -> Perplexity:
    verdict = compare_quality(a, b)
    assert isinstance(verdict, PplComparison)
    return verdict.verdict


def test_fully_correlated_equal_errors_leave_no_doubt() -> None:
    assert ppl_compare(5.0, 0.1, 5.0, 0.1, rho=1.0).verdict is Perplexity.TIE
    exact = ppl_compare(5.0, 0.0, 5.1, 0.0)
    assert exact.z == math.inf
    assert exact.verdict is Perplexity.WORSE


def test_a_constant_difference_is_certain() -> None:
    test = paired_t([1.0, 2.0], [1.5, 2.5])
    assert (test.t, test.p) == (math.inf, 0.0)
    assert paired_t([1.0, 2.0], [1.0, 2.0]).p == 1.0
