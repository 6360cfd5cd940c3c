"""A drafter that drafts at some steps only: its balance is that of all steps, step by step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tuner.acceptance import PositionCounts, expected_tokens
from tuner.cost import RowCost, StepPoint, fit_cost
from tuner.drafts import per_decode_step
from tuner.economics import DepthEconomics, economics
from tuner.probe import probe_decision
from tuner.summary import ArmSummary
from tuner.types import Drafter, Interval, Resident, Unknown

if TYPE_CHECKING:
    from tuner.cost import CostFit

STEPS = 100_000
PLAIN_S = 0.03
ALPHAS = st.lists(st.floats(0.05, 0.99), min_size=1, max_size=4).map(tuple)
ROW_COSTS = st.floats(0.02, 0.9)
RATES = st.floats(0.01, 1.0)


def counted(alphas: tuple[float, ...]) -> PositionCounts:
    kept, accepted = float(STEPS), list[int]()
    for alpha in alphas:
        kept *= alpha
        accepted.append(round(kept))
    return PositionCounts(steps=STEPS, accepted=tuple(accepted))


def mean_step_s(depth: int, c: float, rate: float) -> float:
    """Steps are added up one by one: so many with a draft, the others plain."""
    drafting = round(STEPS * rate)
    seconds = drafting * PLAIN_S * (1 + c * depth) + (STEPS - drafting) * PLAIN_S
    return seconds / STEPS


def true_gain(alphas: tuple[float, ...], c: float, rate: float) -> float:
    drafting = round(STEPS * rate)
    tokens = drafting * expected_tokens(alphas) + (STEPS - drafting)
    return tokens / STEPS / (mean_step_s(len(alphas), c, rate) / PLAIN_S)


def fitted(depth: int, c: float, rate: float) -> CostFit:
    points = (
        StepPoint(depth=0, step_s=PLAIN_S),
        StepPoint(depth=depth, step_s=mean_step_s(depth, c, rate)),
    )
    found = fit_cost(points)
    assert not isinstance(found, Unknown)
    return found


def last(found: tuple[DepthEconomics, ...] | Unknown) -> DepthEconomics:
    assert not isinstance(found, Unknown)
    return found[-1]


@given(ALPHAS, ROW_COSTS, RATES)
def test_the_gain_is_that_of_all_steps_whatever_told_the_cost(
    alphas: tuple[float, ...], c: float, rate: float
) -> None:
    true = pytest.approx(true_gain(alphas, c, rate), rel=2e-3)
    known = RowCost(c=c, sd=0.0, source="test")
    assert last(economics(counted(alphas), known, draft_rate=rate)).gain.mid == true
    of_means = fitted(len(alphas), c, rate)
    assert last(economics(counted(alphas), of_means, draft_rate=rate)).gain.mid == true


@given(ALPHAS, ROW_COSTS, RATES)
def test_the_gain_lies_between_none_and_that_of_a_draft_at_every_step(
    alphas: tuple[float, ...], c: float, rate: float
) -> None:
    known = RowCost(c=c, sd=0.1, source="test")
    always = last(economics(counted(alphas), known))
    some = last(economics(counted(alphas), known, draft_rate=rate))
    low, high = sorted((1.0, always.gain.mid))
    assert low - 1e-9 <= some.gain.mid <= high + 1e-9
    assert some.cost.mid <= always.cost.mid + 1e-9
    assert some.tokens_per_step.mid <= always.tokens_per_step.mid + 1e-9


@given(ALPHAS, st.integers(1, 50))
def test_tokens_per_step_are_those_of_the_counts_over_all_steps(
    alphas: tuple[float, ...], times: int
) -> None:
    known = RowCost(c=0.4, sd=0.0, source="test")
    counts = counted(alphas)
    some = last(economics(counts, known, draft_rate=1 / times))
    same = last(economics(per_decode_step(counts, STEPS * times), known))
    assert some.tokens_per_step.mid == pytest.approx(same.tokens_per_step.mid)


@given(ALPHAS, ROW_COSTS, st.floats(0.05, 1.0))
def test_a_probe_of_such_a_drafter_tells_the_speed_that_was_measured(
    alphas: tuple[float, ...], c: float, rate: float
) -> None:
    depth = len(alphas)
    counts = counted(alphas)
    steps = round(STEPS / rate)
    expected = 1 + sum(counts.accepted) / steps
    step_s = PLAIN_S * (1 + STEPS / steps * c * depth)
    plain = ArmSummary(
        arm=arm(0),
        residency=Resident(),
        fingerprint="f",
        tps=1 / PLAIN_S,
        expected=1.0,
        alphas=(),
        counts=PositionCounts(steps=STEPS, accepted=()),
        step_s=PLAIN_S,
        used=3,
    )
    drafting = replace(
        plain,
        arm=replace(arm(depth), drafter=Drafter.NGRAM),
        tps=expected / step_s,
        expected=expected,
        alphas=tuple(Interval(low=one, mid=one, high=one) for one in alphas),
        counts=counts,
        step_s=step_s,
    )
    told = probe_decision([plain, drafting], subject="m")
    (said,) = (line for line in told.evidence if re.fullmatch(rf"depth {depth}: \S+ tok/s", line))
    assert float(said.split()[2]) == pytest.approx(expected / step_s, rel=1e-3, abs=0.06)
    assert f"a draft at {STEPS / steps:.0%} of the steps" in told.reason
    (row,) = re.findall(r"a verification row costs (\S+) of a step", told.reason)
    assert float(row) == pytest.approx(c, abs=0.006)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        economics(counted((0.5,)), RowCost(c=0.4, sd=0.0, source="test"), draft_rate=rate)
