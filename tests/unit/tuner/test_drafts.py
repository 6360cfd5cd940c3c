"""Acceptance where drafts are cut short: simulated engines whose acceptance is known."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

from tuner.acceptance import (
    PositionCounts,
    alpha_intervals,
    cond_from_counts,
    full_draft_ratio,
    mean_len,
    true_tokens_per_step,
)
from tuner.drafts import DraftStep, TracedCounts, plain_steps, traced, trusted
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHAS = (0.9, 0.7, 0.6)


def replies(
    count: int, tokens: int, sure: Callable[[random.Random, int], bool], seed: int = 1
) -> tuple[list[DraftStep], int, int]:
    """Steps, tokens (without each reply's first) and plain steps of replies at depth 3.

    ``sure`` says whether p-min lets the head go on; a sure position is accepted more often.
    """
    rng = random.Random(seed)  # noqa: S311 - noise of a simulation
    steps: list[DraftStep] = []
    plain = 0
    for _ in range(count):
        left = tokens - 1
        while left > 0:
            drafted = 0
            while drafted < min(3, left - 1) and sure(rng, drafted):
                drafted += 1
            kept = 0
            while kept < drafted and rng.random() < ALPHAS[kept]:
                kept += 1
            if drafted:
                steps.append(DraftStep(drafted=drafted, accepted=kept))
            else:
                plain += 1
            left -= kept + 1
    return steps, count * (tokens - 1), plain


def always(_: random.Random, __: int) -> bool:
    return True


def half(rng: random.Random, _: int) -> bool:
    return rng.random() < 0.5


def counters(steps: list[DraftStep]) -> PositionCounts:
    """What the engine's position counters make of the same steps."""
    return PositionCounts(
        steps=len(steps),
        accepted=tuple(sum(s.accepted > i for s in steps) for i in range(3)),
        cut=sum(3 - s.drafted for s in steps),
    )


@pytest.mark.parametrize("sure", [always, half])
def test_traced_steps_identify_every_position_whatever_cuts_the_drafts(
    sure: Callable[[random.Random, int], bool],
) -> None:
    steps, _, _ = replies(400, 40, sure)
    found = traced(3, steps)
    assert found.alphas == pytest.approx(ALPHAS, abs=0.03)
    exact = dataclasses.replace(counters(steps), offered=found.offered)
    assert cond_from_counts(exact) == found.alphas
    for interval, alpha in zip(alpha_intervals(exact, phi=1.0), ALPHAS, strict=True):
        assert interval.low <= alpha <= interval.high
        assert interval.high - interval.low < 0.1


def test_the_position_counters_of_cut_drafts_are_biased_low_and_not_trusted() -> None:
    steps, _, _ = replies(400, 40, half)
    counts = counters(steps)
    biased = cond_from_counts(counts)
    assert isinstance(biased[1], float)
    assert biased[1] < ALPHAS[1] - 0.2
    verdict = trusted(counts)
    assert isinstance(verdict, Unknown)
    assert "of the draft tokens of full drafts were made" in verdict.reason


def test_tokens_per_step_stay_known_where_positions_do_not() -> None:
    steps, tokens, plain = replies(400, 40, half)
    accepted = sum(s.accepted for s in steps)
    truth = tokens / (len(steps) + plain)
    assert true_tokens_per_step(tokens + 1, accepted) == pytest.approx(truth)
    assert plain_steps(tokens + 1, accepted, len(steps)) == plain
    assert mean_len(accepted, len(steps)) > truth + 0.2, "the log's mean len ignores plain steps"
    assert traced(3, steps).tokens_per_step == pytest.approx(mean_len(accepted, len(steps)))


def test_long_replies_without_p_min_are_trusted_and_short_ones_are_not() -> None:
    long, short = (counters(replies(40, tokens, always)[0]) for tokens in (384, 24))
    assert trusted(long) is long
    assert isinstance(trusted(short), Unknown)


def test_the_limit_is_98_percent_of_full_drafts() -> None:
    enough = PositionCounts(steps=100, accepted=(80, 50), cut=4)
    assert full_draft_ratio(196, 100, 2) == 0.98
    assert trusted(enough) is enough
    less = PositionCounts(steps=100, accepted=(80, 50), cut=5)
    assert trusted(less) == Unknown(
        "only 97.5% of the draft tokens of full drafts were made, and position counters need 98%"
    )
    assert isinstance(trusted(PositionCounts(steps=0, accepted=(0,))), Unknown)
    assert isinstance(trusted(PositionCounts(steps=4, accepted=())), Unknown)


def test_what_each_draft_offered_adds_up_only_where_both_know_it() -> None:
    some = PositionCounts(steps=18, accepted=(16, 6, 3), cut=22, offered=(18, 6, 4))
    other = PositionCounts(steps=4, accepted=(4, 2, 0), cut=3, offered=(4, 3, 1))
    assert some.plus(other) == PositionCounts(
        steps=22, accepted=(20, 8, 3), cut=25, offered=(22, 9, 5)
    )
    assert some.plus(dataclasses.replace(other, offered=None)).offered is None


@pytest.mark.parametrize("offered", [(18, 5, 4), (18, 17, 4), (19, 6, 4), (18, 6), (18, 6, 4, 4)])
def test_more_offered_than_kept_before_or_less_than_kept_is_refused(
    offered: tuple[int, ...],
) -> None:
    with pytest.raises(ValueError, match="cannot have offered"):
        PositionCounts(steps=18, accepted=(16, 6, 3), offered=offered)


def test_a_few_steps_counted_by_hand() -> None:
    steps = [DraftStep(drafted=a, accepted=b) for a, b in ((3, 3), (3, 1), (2, 2), (1, 0), (3, 0))]
    found = traced(3, steps)
    assert found == TracedCounts(steps=5, offered=(5, 3, 1), kept=(3, 2, 1), accepted=6)
    assert found.alphas == pytest.approx((3 / 5, 2 / 3, 1.0))
    assert found.tokens_per_step == pytest.approx(1 + 6 / 5)


def test_positions_that_no_draft_reached_are_unknown() -> None:
    found = traced(2, [DraftStep(drafted=1, accepted=1)])
    assert found.alphas == (1.0, Unknown("no draft reached position 2"))
    counts = PositionCounts(steps=1, accepted=(1, 0), cut=1, offered=found.offered)
    low = alpha_intervals(counts)[1]
    assert (low.low, low.high) == pytest.approx((0.025, 0.975)), "the prior and nothing else"
    assert traced(2, []).tokens_per_step == Unknown("no step was traced")


@pytest.mark.parametrize(("drafted", "accepted"), [(2, 3), (2, -1), (0, 0)])
def test_a_step_that_no_engine_can_have_made_is_refused(drafted: int, accepted: int) -> None:
    with pytest.raises(ValueError, match="cannot have been accepted"):
        DraftStep(drafted=drafted, accepted=accepted)


def test_a_draft_longer_than_the_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="a draft of 3 tokens was traced at depth 2"):
        traced(2, [DraftStep(drafted=3, accepted=1)])
