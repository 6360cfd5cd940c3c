"""Stored perplexities as pairs: the study's figures, and the traps that forbid a pair."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.control.compared import compare, newest_pair
from mtpd.quality_views import PerplexityView, PplComparisonView
from tests.fakes import views
from tests.fakes.perplexities import BASE_B2, UNCENSORED_B2, running
from tuner.compare import Incomparable, Trap

BASE = views.perplexity("base-b2", BASE_B2)
VARIANT = views.perplexity("uncensored-b2", UNCENSORED_B2, 2)


def test_abliteration_costs_what_study_000_says() -> None:
    found = compared()
    assert found.change_percent == pytest.approx(1.2, abs=0.05)
    assert found.paired
    assert found.verdict == "worse"
    assert found.reason == (
        "uncensored-b2 has +1.2 % perplexity against base-b2 (± 0.13 %, paired over 32 chunks): "
        "worse"
    )


def test_unpaired_the_same_difference_is_not_told_apart() -> None:
    """The study: at 32 chunks the printed error is larger than the gap."""
    found = compare(replace(BASE, running=()), replace(VARIANT, running=()))
    assert isinstance(found, PplComparisonView)
    assert not found.paired
    assert found.verdict == "tie"
    assert "not told apart" in found.reason
    assert found.error_percent is not None
    assert found.error_percent > found.change_percent


def test_without_any_error_the_difference_is_shown_and_nothing_is_concluded() -> None:
    bare = [replace(one, running=(), stderr=None) for one in (BASE, VARIANT)]
    found = compare(*bare)
    assert isinstance(found, PplComparisonView)
    assert (found.error_percent, found.verdict) == (None, "tie")
    assert "error unknown" in found.reason


@pytest.mark.parametrize(
    ("other", "trap", "said"),
    [
        (replace(VARIANT, chunks=16), Trap.CHUNKS, "chunk count of 32, the other 16"),
        (replace(VARIANT, corpus_sha256="d1" * 32), Trap.CORPUS, "corpus"),
        (replace(VARIANT, context=2048), Trap.CONTEXT, "context of 512, the other 2048"),
        (replace(VARIANT, flags=()), Trap.FLAGS, "flags --cache-type-k q8_0"),
    ],
)
def test_what_was_measured_otherwise_is_not_compared(
    other: PerplexityView, trap: Trap, said: str
) -> None:
    """Study 000: the same file has 7.76 over 16 chunks and 5.84 over 32."""
    found = compare(BASE, other)
    assert isinstance(found, Incomparable)
    assert found.trap is trap
    assert said in found.sentence


def test_two_builds_of_the_tool_are_told() -> None:
    found = compare(BASE, replace(VARIANT, tool_digest="00" * 32))
    assert isinstance(found, PplComparisonView)
    assert found.reason.endswith("worse; two builds measured them")


def test_of_several_rows_the_newest_pair_that_compares_is_taken() -> None:
    short = replace(BASE, id=9, chunks=16, running=running(7.76, chunks=16), perplexity=7.76)
    found = newest_pair([short, BASE], [VARIANT])
    assert isinstance(found, PplComparisonView)
    assert (found.base.id, found.variant.id) == (BASE.id, VARIANT.id)
    assert isinstance(newest_pair([short], [VARIANT]), Incomparable)


def compared() -> PplComparisonView:
    found = compare(BASE, VARIANT)
    assert isinstance(found, PplComparisonView)
    return found
