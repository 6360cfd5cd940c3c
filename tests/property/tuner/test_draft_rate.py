"""A drafter that drafts at some steps only earns at the rate of these, which is measured."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mtpd.control.calibration import calibration_of
from mtpd.control.standing import Standing
from tests.unit.tuner.machine import Machine, arm
from tuner.acceptance import PositionCounts, expected_tokens, true_tokens_per_step
from tuner.classes import WorkloadClass
from tuner.drafts import draft_rate, per_decode_step
from tuner.plan import History
from tuner.request import Request, Usable, usable
from tuner.summary import summarise
from tuner.texts import Texts, texts_of
from tuner.types import Arm, Drafter, Observation

FULL = Machine(accepted=(120, 80, 60), steps=200)

plain = st.integers(0, 2000)
"""Steps that found nothing to draft."""


def ngram(depth: int) -> Arm:
    return Arm(profile="m", drafter=Drafter.NGRAM if depth else Drafter.NONE, depth=depth)


def measured(depth: int, without: int) -> tuple[Observation, ...]:
    """Replies at one depth of which so many steps had no draft."""
    return tuple(
        replace(one, arm=ngram(depth), tokens=one.tokens + without, start_id=f"n{depth}")
        for one in FULL.run(arm(depth))
    )


@given(st.integers(1, 3), plain)
def test_what_is_predicted_of_the_counted_depth_is_what_was_measured(
    depth: int, without: int
) -> None:
    seen = measured(depth, without)
    found = texts_of(seen)
    assert isinstance(found, Texts)
    truth = true_tokens_per_step(seen[0].tokens, seen[0].accepted or 0)
    assert found.expected(depth)["code"] == pytest.approx(truth)
    (row,) = summarise(seen)
    assert row.expected == pytest.approx(truth)
    assert row.draft_rate == pytest.approx(200 / (200 + without), rel=0.01)


@given(plain, plain)
def test_more_steps_without_a_draft_never_earn_more(few: int, more: int) -> None:
    few, more = sorted((few, more))
    for depth in (1, 2, 3, 4):
        a, b = (texts_of(measured(3, n)) for n in (few, more))
        assert isinstance(a, Texts)
        assert isinstance(b, Texts)
        assert 1 <= b.expected(depth)["code"] <= a.expected(depth)["code"] + 1e-12
        assert b.log_bound(depth, {"code": 1.0, "prose": 1.0}) <= (
            a.log_bound(depth, {"code": 1.0, "prose": 1.0}) + 1e-12
        )


@given(st.integers(1, 3), plain)
def test_a_head_is_taken_to_draft_at_every_step(depth: int, without: int) -> None:
    seen = tuple(replace(one, tokens=one.tokens + without) for one in FULL.run(arm(depth)))
    found = texts_of(seen)
    assert isinstance(found, Texts)
    assert found.rates == {}
    assert summarise(seen)[0].draft_rate is None


@given(st.integers(1, 3), plain)
def test_live_requests_and_measurements_speak_of_the_same_rate(depth: int, without: int) -> None:
    (one, *_) = measured(depth, without)
    request = Request(
        arm=one.arm,
        klass=WorkloadClass(),
        tokens=one.tokens,
        decode_s=0.02 * (one.tokens - 1 - (one.accepted or 0)),
        accepted=one.accepted,
        drafted=one.drafted,
        steps=one.steps,
        per_position=one.accepted_per_position,
    )
    seen = usable(request)
    assert isinstance(seen, Usable)
    alphas = [hit / reach for hit, reach in zip(seen.hits, seen.reached, strict=True)]
    assert expected_tokens(alphas) == pytest.approx(seen.tokens_per_step)
    standing = Standing(
        decision_id=1, told=History(observations=measured(depth, without)), measurements=()
    )
    calibration = calibration_of(standing)
    assert calibration is not None
    assert calibration.baseline.alphas == pytest.approx(alphas, rel=0.02)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=5), st.integers(0, 500), plain)
def test_the_later_positions_are_as_they_were(steps: list[int], first: int, without: int) -> None:
    chain = sorted([first, *steps], reverse=True)
    assume(chain[0] > 0)
    before = PositionCounts(steps=chain[0], accepted=tuple(chain[1:]))
    after = per_decode_step(before, chain[0] + without)
    assert after.accepted == before.accepted
    rate = draft_rate(chain[0], chain[0] + without)
    assert after.accepted[0] / after.steps == pytest.approx(before.accepted[0] / chain[0] * rate)
    assert all(b <= a for a, b in itertools.pairwise((after.steps, *after.accepted)))


@pytest.mark.parametrize(("drafts", "steps"), [(1, 0), (3, 2), (-1, 5)])
def test_a_rate_that_no_engine_can_have_is_refused(drafts: int, steps: int) -> None:
    with pytest.raises(ValueError, match="steps cannot have had a draft"):
        draft_rate(drafts, steps)


def test_errors_are_those_of_all_steps() -> None:
    weights = {"code": 1.0, "prose": 1.0}
    found, head = texts_of(measured(2, 600)), texts_of(FULL.run(arm(2)))
    assert isinstance(found, Texts)
    assert isinstance(head, Texts)
    rare, often = (math.sqrt(one.covariance(2, weights)[2][2]) for one in (found, head))
    assert 0 < rare < often * 2
