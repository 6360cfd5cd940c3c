from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.tuner.machine import Machine, arm
from tuner.acceptance import (
    DEFAULT_PHI,
    PositionCounts,
    aggregate_identify,
    alpha_intervals,
    beta_posterior,
    cond_from_counts,
    counts_of,
    distinct_texts,
    log_ratio_e,
    phi_for,
    pool_counts,
)
from tuner.types import Observation, Unknown


def one(depth: int = 2) -> Observation:
    return Machine().run(arm(depth))[0]


@pytest.mark.parametrize(
    ("steps", "accepted", "cut"),
    [
        (10, (11,), 0),
        (10, (5, 6), 0),
        (-1, (), 0),
        (10, (5, -1), 0),
        (10, (9, 8), 4),
        (10, (9,), -1),
    ],
)
def test_counts_that_no_engine_can_produce_are_refused(
    steps: int, accepted: tuple[int, ...], cut: int
) -> None:
    with pytest.raises(ValueError, match=r"counts must not increase|cut draft tokens"):
        PositionCounts(steps=steps, accepted=accepted, cut=cut)


def test_counts_add_up_only_at_equal_depth() -> None:
    a = PositionCounts(steps=10, accepted=(8, 4), cut=1)
    assert a.plus(a) == PositionCounts(steps=20, accepted=(16, 8), cut=2)
    with pytest.raises(ValueError, match="depth 2 and 1"):
        a.plus(PositionCounts(steps=10, accepted=(8,)))


def test_a_position_that_no_step_reached_is_unknown_and_not_zero() -> None:
    first, second = cond_from_counts(PositionCounts(steps=5, accepted=(0, 0)))
    assert first == 0.0
    assert second == Unknown("no step reached position 2")


def test_cut_drafts_widen_the_upper_end_only() -> None:
    full = alpha_intervals(PositionCounts(steps=100, accepted=(80, 60)))
    cut = alpha_intervals(PositionCounts(steps=100, accepted=(80, 60), cut=10))
    for plain, wide in zip(full, cut, strict=True):
        assert wide.low == plain.low
        assert wide.mid == plain.mid
        assert wide.high > plain.high


def test_a_cut_token_excuses_a_position_only_as_far_as_it_can_concern_it() -> None:
    """Two positions: a draft without the first lacks both, so 10 tokens excuse 5 and 10."""
    first, second = alpha_intervals(PositionCounts(steps=100, accepted=(80, 60), cut=10))
    assert first.high == alpha_intervals(PositionCounts(steps=95, accepted=(80,)))[0].high
    assert second.high == alpha_intervals(PositionCounts(steps=70, accepted=(60,)))[0].high


def test_more_cut_tokens_than_misses_leave_no_miss() -> None:
    posterior = beta_posterior(PositionCounts(steps=100, accepted=(98, 50), cut=40))[0]
    assert posterior.interval.high == pytest.approx(0.9996, abs=1e-3)


def test_more_text_narrows_the_interval_and_dispersion_widens_it() -> None:
    small = PositionCounts(steps=100, accepted=(90, 66))
    large = PositionCounts(steps=1000, accepted=(900, 660))

    def width(counts: PositionCounts, phi: float) -> float:
        second = alpha_intervals(counts, phi=phi)[1]
        return second.high - second.low

    assert width(large, 1.5) < width(small, 1.5) < width(small, 3.0)


def test_aggregate_counters_identify_the_first_position_only_at_depth_1() -> None:
    assert aggregate_identify(1, 100, 93).conditionals == (0.93,)
    deeper = aggregate_identify(2, 100, 162)
    assert isinstance(deeper.conditionals, Unknown)
    assert deeper.expected == pytest.approx(2.62)
    assert deeper.first_low <= 0.93 <= deeper.first_high


def test_the_ratio_of_a_depth_to_itself_is_one_without_error() -> None:
    log_ratio, error = log_ratio_e(PositionCounts(steps=200, accepted=(186, 137)), 2, 2)
    assert log_ratio == 0.0
    assert error == pytest.approx(0.0, abs=1e-9)


def test_dispersion_is_measured_from_8_requests_and_clipped() -> None:
    even = PositionCounts(steps=100, accepted=(80, 60))
    good, bad = (PositionCounts(steps=100, accepted=(n, n)) for n in (98, 20))
    sure = PositionCounts(steps=100, accepted=(100, 100))
    assert phi_for([even] * 7) == DEFAULT_PHI
    assert phi_for([even] * 8) == 1.0
    assert phi_for([good, bad] * 4) == 10.0
    assert phi_for([sure] * 8) == DEFAULT_PHI, "no variance, nothing to disperse"
    assert phi_for([PositionCounts(steps=0, accepted=(0,))] * 8) == DEFAULT_PHI


def test_repetitions_of_one_text_count_once() -> None:
    machine = Machine()
    counts = pool_counts(machine.run(arm(2)))
    assert counts == PositionCounts(steps=800, accepted=(744, 548))
    distinct = distinct_texts(reversed(machine.run(arm(2))))
    assert len(distinct) == 4
    assert {o.repetition for o in distinct} == {0}, "the first one in a canonical order"


def test_an_excluded_observation_is_not_pooled() -> None:
    left_out = [dataclasses.replace(o, excluded="hot") for o in Machine().run(arm(2))]
    assert pool_counts(left_out) == Unknown("nothing was measured")


def test_without_position_counters_depth_1_is_still_identified() -> None:
    bare = Machine(positions=False)
    assert counts_of(bare.run(arm(1))[0]) == PositionCounts(steps=200, accepted=(186,))
    assert pool_counts(bare.run(arm(2))) == Unknown("the build does not count positions")
    aggregate_free = dataclasses.replace(bare.run(arm(1))[0], accepted=None)
    assert isinstance(counts_of(aggregate_free), Unknown)


def test_counters_that_contradict_each_other_are_unknown() -> None:
    assert isinstance(counts_of(dataclasses.replace(one(), steps=None)), Unknown)
    too_many = dataclasses.replace(one(), accepted_per_position=(9, 8, 7))
    assert counts_of(too_many) == Unknown("3 positions were counted at depth 2")
    rising = counts_of(dataclasses.replace(one(), accepted_per_position=(100, 150)))
    assert isinstance(rising, Unknown)
    assert "contradict" in rising.reason


def test_positions_that_the_engine_clamped_away_count_as_never_accepted() -> None:
    clamped = dataclasses.replace(one(), accepted_per_position=(186,), drafted=200)
    assert counts_of(clamped) == PositionCounts(steps=200, accepted=(186, 0), cut=200)


def test_without_drafted_tokens_nobody_knows_whether_drafts_were_cut() -> None:
    verdict = counts_of(dataclasses.replace(one(), drafted=None))
    assert verdict == Unknown("the build does not count drafted tokens")


def test_depth_0_has_no_positions() -> None:
    assert pool_counts(Machine().run(arm(0))) == PositionCounts(steps=0, accepted=())


def test_the_two_tiny_heads_are_told_apart_by_their_second_position() -> None:
    """Shared models' README, alpha at depth 2 over 4 prompts; 384 tokens each here."""
    chained = alpha_intervals(PositionCounts(steps=153, accepted=(123, 108)))[1]
    unchained = alpha_intervals(PositionCounts(steps=165, accepted=(135, 82)))[1]
    assert chained.low > unchained.high
    assert math.isclose(chained.mid, 0.878, abs_tol=0.02)
