from __future__ import annotations

import math

import pytest

from tuner.special import (
    beta_cdf,
    beta_quantile,
    f_upper_p,
    normal_cdf,
    t_quantile,
    t_two_sided_p,
)


def test_the_uniform_and_the_arcsine_distribution_come_out_exactly() -> None:
    assert beta_cdf(0.3, 1, 1) == pytest.approx(0.3, abs=1e-12)
    assert beta_cdf(0.3, 0.5, 0.5) == pytest.approx(2 / math.pi * math.asin(math.sqrt(0.3)))
    assert beta_cdf(-0.1, 2, 3) == 0.0
    assert beta_cdf(1.1, 2, 3) == 1.0


@pytest.mark.parametrize(("a", "b"), [(2, 5), (94.0, 8.0), (5000.5, 12.0), (1.0, 40.0)])
def test_the_distribution_function_is_symmetric_and_inverts_the_quantile(
    a: float, b: float
) -> None:
    for p in (0.025, 0.5, 0.975):
        x = beta_quantile(p, a, b)
        assert beta_cdf(x, a, b) == pytest.approx(p, abs=1e-9)
        assert beta_cdf(x, a, b) == pytest.approx(1 - beta_cdf(1 - x, b, a), abs=1e-9)


@pytest.mark.parametrize(
    ("df", "printed"), [(1, 12.706), (2, 4.303), (3, 3.182), (10, 2.228), (100, 1.984)]
)
def test_student_quantiles_are_those_of_the_printed_tables(df: int, printed: float) -> None:
    assert t_quantile(0.95, df) == pytest.approx(printed, abs=5e-4)
    assert t_two_sided_p(printed, df) == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(
    ("df1", "df2", "printed"), [(1, 10, 4.965), (2, 10, 4.103), (5, 2, 19.296), (10, 60, 1.993)]
)
def test_the_tail_of_fishers_distribution_is_that_of_the_printed_tables(
    df1: int, df2: int, printed: float
) -> None:
    assert f_upper_p(printed, df1, df2) == pytest.approx(0.05, abs=1e-4)
    assert f_upper_p(0.0, df1, df2) == 1.0


def test_the_normal_distribution_function_is_that_of_the_tables() -> None:
    assert normal_cdf(1.959964) == pytest.approx(0.975, abs=1e-6)
    assert normal_cdf(0.0) == 0.5


def test_huge_parameters_converge_and_absurd_ones_end() -> None:
    assert beta_cdf(0.5, 1e5, 1e5) == pytest.approx(0.5, abs=1e-9)
    assert 0.0 <= beta_cdf(0.5, 1e12, 1e12) <= 1.0
