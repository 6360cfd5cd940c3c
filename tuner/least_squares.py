"""Weighted least squares for a handful of parameters, in plain Python.

Covers the estimate, its covariance and the residuals, and says when the data do not
determine the parameters. Not a linear algebra library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LinearFit", "least_squares"]

_SINGULAR = 1e-9
"""Share of a column that must be new; timings are not exact enough for less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """Estimate of beta in ``values = rows x beta + noise``.

    Attributes:
        beta: One parameter per column.
        covariance: Of ``beta`` for unit noise of a value with weight 1.
        residuals: Value less fit, per row.
        squares: Weighted sum of squared residuals.
        freedom: Rows less columns.
    """

    beta: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    residuals: tuple[float, ...]
    squares: float
    freedom: int

    @property
    def variance(self) -> float | None:
        """Noise variance of a value with weight 1; None if nothing is left to estimate it."""
        return self.squares / self.freedom if self.freedom else None

    def combined(self, weights: Sequence[float]) -> tuple[float, float | None]:
        """Value and standard error of a linear combination of the parameters."""
        value = sum(w * b for w, b in zip(weights, self.beta, strict=True))
        if self.variance is None:
            return value, None
        spread = sum(
            a * c * b
            for a, row in zip(weights, self.covariance, strict=True)
            for b, c in zip(weights, row, strict=True)
        )
        return value, math.sqrt(max(spread, 0.0) * self.variance)


def least_squares(
    rows: Sequence[Sequence[float]], values: Sequence[float], weights: Sequence[float]
) -> LinearFit | Unknown:
    """Fit; Unknown if the columns are not independent over the rows given.

    Columns are orthogonalised one after the other (modified Gram-Schmidt), which keeps
    the precision that the normal equations would square away.

    Args:
        rows: One row of regressors per value.
        values: What was measured.
        weights: Inverse variance of each value, up to a common factor; > 0.
    """
    roots = [math.sqrt(w) for w in weights]
    columns = [[r * x for r, x in zip(roots, column, strict=True)] for column in zip(*rows)]  # noqa: B905 - rows are equally long
    target = [r * y for r, y in zip(roots, values, strict=True)]
    size = len(columns)
    upper = [[0.0] * size for _ in range(size)]
    along = [0.0] * size
    basis: list[list[float]] = []
    for j, column in enumerate(columns):
        left = column
        for i, unit in enumerate(basis):
            upper[i][j] = _dot(unit, left)
            left = [x - upper[i][j] * u for x, u in zip(left, unit, strict=True)]
        norm = math.sqrt(_dot(left, left))
        if norm <= _SINGULAR * math.sqrt(_dot(column, column)):
            return Unknown("the measured steps do not tell all parameters apart")
        upper[j][j] = norm
        basis.append([x / norm for x in left])
        along[j] = _dot(basis[j], target)
        target = [y - along[j] * u for y, u in zip(target, basis[j], strict=True)]
    inverse = [_solve(upper, [float(i == j) for i in range(size)]) for j in range(size)]
    beta = _solve(upper, along)
    return LinearFit(
        beta=tuple(beta),
        covariance=tuple(
            tuple(sum(column[i] * column[j] for column in inverse) for j in range(size))
            for i in range(size)
        ),
        residuals=tuple(
            y - sum(x * b for x, b in zip(row, beta, strict=True))
            for row, y in zip(rows, values, strict=True)
        ),
        squares=_dot(target, target),
        freedom=len(values) - size,
    )


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _solve(upper: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve an upper triangular system."""
    out = [0.0] * len(right)
    for i in reversed(range(len(right))):
        known = sum(upper[i][j] * out[j] for j in range(i + 1, len(right)))
        out[i] = (right[i] - known) / upper[i][i]
    return out
