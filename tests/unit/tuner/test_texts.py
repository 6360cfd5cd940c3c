from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.tuner.machine import Machine, arm
from tuner.acceptance import PositionCounts, log_ratio_e
from tuner.texts import Texts, texts_of
from tuner.types import Observation, Unknown

COUNTS = PositionCounts(steps=200, accepted=(180, 135))
ALIKE = {"a": 1.0, "b": 1.0}


def texts(*counts: PositionCounts, phi: float = 1.5) -> Texts:
    return Texts(counts=tuple(zip("abc", counts, strict=False)), phi=phi)


def expected(depth: int, *counts: PositionCounts) -> float:
    return math.exp(texts(*counts or (COUNTS,)).log_mean(depth, {"a": 1.0, "b": 1.0}))


def test_shallower_depths_use_the_prefix_of_the_counts() -> None:
    assert [expected(depth) for depth in range(3)] == pytest.approx([1.0, 1.9, 2.575])


def test_deeper_depths_continue_the_fall_of_the_acceptance_and_are_bounded() -> None:
    falling = 0.75 * (0.75 / 0.9)
    assert expected(3) == pytest.approx(2.575 + 0.675 * falling)
    bound = texts(COUNTS).log_bound(3, ALIKE)
    assert math.exp(bound) == pytest.approx(2.575 + 0.675 * 0.81)
    assert texts(COUNTS).log_bound(2, ALIKE) == texts(COUNTS).log_mean(2, ALIKE)


def test_an_acceptance_that_rises_is_not_expected_to_rise_further() -> None:
    rising = PositionCounts(steps=100, accepted=(60, 48))
    assert expected(3, rising) == pytest.approx(1 + 0.6 + 0.48 + 0.48 * 0.8)


def test_a_chain_that_was_never_accepted_stays_at_one_token() -> None:
    assert expected(3, PositionCounts(steps=100, accepted=(0, 0))) == 1.0


def test_depth_1_alone_predicts_depth_2() -> None:
    assert expected(2, PositionCounts(steps=100, accepted=(90,))) == pytest.approx(
        1 + 0.9 + 0.9 * 0.81
    )


def test_workloads_are_averaged_by_their_weights() -> None:
    two = texts(COUNTS, PositionCounts(steps=100, accepted=(50, 10)))
    assert math.exp(two.log_mean(1, ALIKE)) == pytest.approx((1.9 + 1.5) / 2)
    assert math.exp(two.log_mean(1, {"a": 3.0, "b": 1.0})) == pytest.approx((3 * 1.9 + 1.5) / 4)


def log_sd(one: Texts, i: int, j: int, weights: dict[str, float] | None = None) -> float:
    c = one.covariance(max(i, j), weights or ALIKE)
    return math.sqrt(c[i][i] + c[j][j] - 2 * c[i][j])


def test_the_error_of_a_ratio_is_that_of_the_paired_formula() -> None:
    for i, j in ((2, 1), (2, 0), (1, 0)):
        _, se = log_ratio_e(COUNTS, i, j, phi=1.5)
        assert log_sd(texts(COUNTS), i, j) == pytest.approx(se)


def test_two_equal_workloads_halve_the_variance_and_a_weight_of_one_does_not() -> None:
    one, two = texts(COUNTS), texts(COUNTS, COUNTS)
    assert log_sd(two, 2, 1) == pytest.approx(log_sd(one, 2, 1) / math.sqrt(2))
    assert log_sd(two, 2, 1, {"a": 1.0, "b": 0.0}) == pytest.approx(log_sd(one, 2, 1))


def test_beyond_the_counts_the_error_grows_with_the_distance_to_the_bound() -> None:
    one = texts(COUNTS)
    near, far = log_sd(one, 3, 2), log_sd(one, 4, 2)
    gap = one.log_bound(3, ALIKE) - one.log_mean(3, ALIKE)
    assert near == pytest.approx(0.45 * gap)
    assert far > near
    assert log_sd(one, 4, 3) < far, "what two continued depths share cancels"
    certain = texts(PositionCounts(steps=100, accepted=(100, 100)))
    assert log_sd(certain, 3, 2) == pytest.approx(0.003), "a bound that is no distance away"


def test_the_deepest_counts_that_can_be_trusted_are_taken() -> None:
    machine = Machine()
    deep = machine.run(arm(3))
    found = texts_of([*machine.run(arm(2)), *deep])
    assert isinstance(found, Texts)
    assert found.depth == 3
    assert [name for name, _ in found.counts] == ["code", "prose"]
    cut = [dataclasses.replace(o, drafted=(o.drafted or 0) * 9 // 10) for o in deep]
    shallow = texts_of([*machine.run(arm(2)), *cut])
    assert isinstance(shallow, Texts)
    assert shallow.depth == 2


def without(field: str) -> list[Observation]:
    missing = {field: None}
    return [dataclasses.replace(o, **missing) for o in Machine().run(arm(2))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "observations",
    [
        [],
        Machine().run(arm(0)),
        without("accepted_per_position"),
        without("steps"),
        [dataclasses.replace(o, excluded="hot") for o in Machine().run(arm(2))],
        [
            dataclasses.replace(o, steps=0, drafted=0, accepted=0, accepted_per_position=(0, 0))
            for o in Machine().run(arm(2))
        ],
    ],
)
def test_without_counts_that_can_be_trusted_it_is_unknown(observations: list[Observation]) -> None:
    assert isinstance(texts_of(observations), Unknown)
