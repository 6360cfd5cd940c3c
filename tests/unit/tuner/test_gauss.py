from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.gauss import Reading, posterior


def test_one_quantity_read_twice_is_the_weighted_mean() -> None:
    known = posterior([Reading({0: 1.0}, 1.0, 1.0), Reading({0: 1.0}, 4.0, 0.5)], 1)
    assert known.mean[0] == pytest.approx((1 + 4 * 4) / 5)
    assert known.sd({0: 1.0}) == pytest.approx(math.sqrt(1 / 5))


def test_a_sum_and_one_part_tell_the_other_part_with_both_errors() -> None:
    readings = [Reading({0: 1.0, 1: 1.0}, 5.0, 0.3), Reading({0: 1.0}, 2.0, 0.4)]
    known = posterior(readings, 2)
    assert known.mean == pytest.approx((2.0, 3.0))
    assert known.sd({1: 1.0}) == pytest.approx(0.5)
    assert known.sd({0: 1.0, 1: 1.0}) == pytest.approx(0.3), "the sum itself was read"
    assert known.of({0: 2.0, 1: -1.0}) == pytest.approx(1.0)


def test_a_common_error_cancels_in_a_difference() -> None:
    """Two readings with the same unknown offset, quantity 2."""
    readings = [
        Reading({0: 1.0, 2: 1.0}, 10.0, 0.01),
        Reading({1: 1.0, 2: 1.0}, 13.0, 0.01),
        Reading({2: 1.0}, 0.0, 5.0),
        *(Reading({i: 1.0}, 0.0, 1000.0) for i in (0, 1)),
    ]
    known = posterior(readings, 3)
    (first, cross), (_, second) = known.covariance([{0: 1.0}, {1: 1.0}])
    assert first == pytest.approx(25.0, rel=0.01)
    assert math.sqrt(first + second - 2 * cross) == pytest.approx(0.01 * math.sqrt(2), rel=1e-3)
    assert known.of({1: 1.0, 0: -1.0}) == pytest.approx(3.0, abs=1e-3)


def test_what_was_never_read_is_refused_and_not_guessed() -> None:
    with pytest.raises(ValueError, match="do not determine quantity 1"):
        posterior([Reading({0: 1.0}, 1.0, 1.0)], 2)


def test_nothing_is_known_of_nothing() -> None:
    assert posterior((), 0).mean == ()


_READINGS = st.lists(
    st.builds(
        Reading,
        st.dictionaries(st.integers(0, 2), st.floats(-3.0, 3.0), min_size=1),
        st.floats(-5.0, 5.0),
        st.floats(0.05, 5.0),
    ),
    max_size=8,
)
PRIOR = [Reading({i: 1.0}, 0.0, 3.0) for i in range(3)]


@given(_READINGS, st.randoms(use_true_random=False))
def test_the_order_of_readings_plays_no_role(readings: list[Reading], rng: object) -> None:
    shuffled = [*PRIOR, *readings]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands a random.Random
    assert posterior(shuffled, 3) == posterior([*PRIOR, *readings], 3)


@given(_READINGS, _READINGS, st.dictionaries(st.integers(0, 2), st.floats(-3.0, 3.0), min_size=1))
def test_more_readings_never_widen_anything(
    some: list[Reading], more: list[Reading], combination: dict[int, float]
) -> None:
    few = posterior([*PRIOR, *some], 3).sd(combination)
    assert posterior([*PRIOR, *some, *more], 3).sd(combination) <= few * (1 + 1e-9)
