from __future__ import annotations

import math

import pytest

from tuner.acceptance import survival
from tuner.level import Level, deviation, logit, sigmoid, total_deviation


def test_log_odds_and_back() -> None:
    assert logit(0.5) == 0.0
    assert sigmoid(logit(0.93)) == pytest.approx(0.93)


def test_a_level_starts_at_its_prior_and_learns_by_precision() -> None:
    level = Level(4.0)
    assert (level.mean, level.var) == (0.0, 0.25)
    once = level.learn(1.0, 0.25)
    assert (once.mean, once.var) == (0.5, 0.125)
    assert once.learn(1.0, 0.25).mean == pytest.approx(2 / 3)


def test_what_fades_falls_back_to_the_prior() -> None:
    level = Level(4.0).learn(1.0, 0.25)
    assert level.fade(0.0).mean == Level(4.0).mean == 0.0
    half = level.fade(0.5)
    assert half.mean == pytest.approx(1 / 3)
    assert half.var > level.var
    assert level.learn(1.0, 0.25, keep=0.5) == half.learn(1.0, 0.25)


def test_one_shift_explains_all_positions() -> None:
    etas = [logit(a) for a in (0.9, 0.8)]
    moved = [sigmoid(e - 0.5) for e in etas]
    one, two = round(10_000 * moved[0]), round(10_000 * moved[0] * moved[1])
    seen = deviation(etas, (10_000, one), (one, two), 1.0)
    assert seen is not None
    assert seen.shift == pytest.approx(-0.5, abs=0.01)
    information = 10_000 * moved[0] * (1 - moved[0]) + one * moved[1] * (1 - moved[1])
    assert seen.variance == pytest.approx(1 / information, rel=0.1)


def test_over_dispersion_widens_a_deviation_and_does_not_move_it() -> None:
    plain = deviation([1.0], (100,), (60,), 1.0)
    wide = deviation([1.0], (100,), (60,), 2.0)
    assert plain is not None
    assert wide is not None
    assert wide.shift == plain.shift
    assert wide.variance == pytest.approx(2 * plain.variance)


def test_a_run_of_hits_shows_a_bounded_shift() -> None:
    seen = deviation([0.0], (50,), (50,), 1.0)
    assert seen is not None
    assert seen.shift == 2.0


def test_nothing_drafted_shows_nothing() -> None:
    assert deviation([1.0], (0,), (0,), 1.0) is None
    assert deviation([], (), (), 1.0) is None
    assert total_deviation([1.0], 0, 0, 1.0) is None
    assert total_deviation([], 10, 0, 1.0) is None


def test_the_total_alone_identifies_a_common_shift() -> None:
    etas = [logit(a) for a in (0.9, 0.8, 0.7)]
    mean = sum(survival([sigmoid(e + 0.4) for e in etas]))
    seen = total_deviation(etas, 10_000, round(10_000 * mean), 1.0)
    assert seen is not None
    assert seen.shift == pytest.approx(0.4, abs=0.01)


def test_at_depth_1_the_total_is_the_position() -> None:
    total = total_deviation([1.2], 400, 300, 1.5)
    position = deviation([1.2], (400,), (300,), 1.5)
    assert total is not None
    assert position is not None
    assert total.shift == pytest.approx(position.shift)
    assert total.variance == pytest.approx(position.variance, rel=0.02)
    assert math.isfinite(total.variance)
