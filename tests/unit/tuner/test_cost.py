from __future__ import annotations

import math
import random
import statistics

import pytest

from tuner.cost import CostFit, RowCost, StepPoint, fit_cost
from tuner.types import Unknown

MLX_SERVE = ((1, 25.41), (2, 31.18), (3, 35.70), (4, 41.33), (6, 53.58))
"""Step times in ms per depth of mlx-serve #282, an independent linear machine."""


def points(*pairs: tuple[int, float]) -> list[StepPoint]:
    return [StepPoint(depth=depth, step_s=step_s) for depth, step_s in pairs]


def fitted(*pairs: tuple[int, float]) -> CostFit:
    fit = fit_cost(points(*pairs))
    assert isinstance(fit, CostFit)
    return fit


def test_the_fit_shows_its_misfit_per_point() -> None:
    fit = fitted(*MLX_SERVE)
    assert max(abs(r) for r in fit.residuals) == pytest.approx(0.017, abs=2e-3)
    for (depth, step_s), residual in zip(MLX_SERVE, fit.residuals, strict=True):
        assert fit.step_s(depth) * (1 + residual) == pytest.approx(step_s)


def test_two_points_fit_exactly_and_leave_no_error_estimate() -> None:
    fit = fitted((0, 10.0), (2, 18.0))
    assert fit.c == pytest.approx(0.4)
    assert fit.c_se is None


def test_the_standard_error_is_that_of_repeated_fits() -> None:
    rng = random.Random(1)  # noqa: S311 - noise of a simulation
    fits = [
        fitted(*((k, (1 + 0.4 * k) + rng.gauss(0, 0.02)) for k in (0, 1, 2, 3, 5)))
        for _ in range(1500)
    ]
    printed = statistics.fmean(fit.c_se or 0.0 for fit in fits)
    assert printed == pytest.approx(statistics.stdev(fit.c for fit in fits), rel=0.1)


def test_a_heavier_point_draws_the_line() -> None:
    light = StepPoint(depth=1, step_s=2.0)
    heavy = StepPoint(depth=1, step_s=1.4, weight=9.0)
    fit = fit_cost([StepPoint(depth=0, step_s=1.0), light, heavy])
    assert isinstance(fit, CostFit)
    assert fit.step_s(1) == pytest.approx(1.46)


@pytest.mark.parametrize("pairs", [(), ((1, 2.0),), ((1, 2.0), (1, 2.1))])
def test_without_two_depths_the_row_cost_is_unknown(pairs: tuple[tuple[int, float], ...]) -> None:
    assert isinstance(fit_cost(points(*pairs)), Unknown)


def test_a_line_through_a_negative_start_is_refused() -> None:
    assert isinstance(fit_cost(points((1, 1.0), (2, 3.0))), Unknown)


@pytest.mark.parametrize(
    ("c", "sd"), [(-0.1, 0.1), (math.nan, 0.1), (101.0, 0.1), (0.4, -0.1), (0.4, math.inf)]
)
def test_a_row_cost_that_no_card_has_is_refused(c: float, sd: float) -> None:
    with pytest.raises(ValueError, match="no row costs"):
        RowCost(c=c, sd=sd, source="a typing error")
