"""Quantiles and tails of the beta, Fisher and Student distributions, from ``math`` alone.

Accurate to about 1e-10 for the parameters that counts of steps produce; not a
general statistics library.
"""

from __future__ import annotations

import functools
import math

__all__ = [
    "beta_cdf",
    "beta_quantile",
    "f_upper_p",
    "normal_cdf",
    "t_quantile",
    "t_two_sided_p",
]

_TINY = 1e-300
_PRECISION = 1e-14
_TERMS = 10_000
_BISECTIONS = 50


def normal_cdf(x: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta function I_x(a, b), for a, b > 0."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(x, a, b) / a
    return 1.0 - front * _continued_fraction(1 - x, b, a) / b


@functools.lru_cache(maxsize=4096)
def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with ``beta_cdf(x, a, b) == p``, by bisection to 1e-15.

    Cached: a search looks at the same counts again after every start.
    """
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def f_upper_p(f: float, df1: int, df2: int) -> float:
    """P(F >= f) of Fisher's distribution with ``df1`` and ``df2`` degrees of freedom."""
    return beta_cdf(df2 / (df2 + df1 * f), df2 / 2, df1 / 2)


def t_two_sided_p(t: float, df: int) -> float:
    """P(|T| >= |t|) of Student's distribution with ``df`` degrees of freedom."""
    return beta_cdf(df / (df + t * t), df / 2, 0.5)


def t_quantile(level: float, df: int) -> float:
    """The t > 0 with P(|T| <= t) == level."""
    x = beta_quantile(1 - level, df / 2, 0.5)
    return math.sqrt(df * (1 - x) / x)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluate the fraction of I_x(a, b) by the modified method of Lentz."""
    c, d = 1.0, 1.0 / _away_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _away_from_zero(1 + even * d)
        c = _away_from_zero(1 + even / c)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _away_from_zero(1 + odd * d)
        c = _away_from_zero(1 + odd / c)
        result *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return result


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
