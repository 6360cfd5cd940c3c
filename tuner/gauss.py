"""A Gaussian posterior over a few quantities from readings of weighted sums of them.

Covers the normal equations, their Cholesky factor, means, and covariances of weighted sums, in
plain Python for up to some thirty quantities. A prior is a reading like any other. Does not
know what the quantities are (``tuner.steps``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Posterior", "Reading", "posterior"]

Weights = dict[int, float]


@dataclass(frozen=True, slots=True)
class Reading:
    """A measured weighted sum of the quantities.

    Attributes:
        weights: Of the quantities, by index; those left out have weight 0.
        value: What was read.
        sd: Standard deviation of the reading, > 0.
    """

    weights: Mapping[int, float]
    value: float
    sd: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Jointly normal quantities.

    Attributes:
        mean: By index.
        factor: Lower triangle L of the precision matrix, L L^T; row i has i + 1 entries.
    """

    mean: tuple[float, ...]
    factor: tuple[tuple[float, ...], ...]

    def of(self, weights: Mapping[int, float]) -> float:
        """Mean of a weighted sum."""
        return math.fsum(w * self.mean[i] for i, w in weights.items())

    def covariance(self, sums: Sequence[Mapping[int, float]]) -> tuple[tuple[float, ...], ...]:
        """Covariance matrix of weighted sums."""
        whitened = [_forward(self.factor, weights) for weights in sums]
        return tuple(tuple(sum(map(mul, a, b)) for b in whitened) for a in whitened)

    def sd(self, weights: Mapping[int, float]) -> float:
        """Standard deviation of a weighted sum."""
        ((variance,),) = self.covariance([weights])
        return math.sqrt(variance)


def posterior(readings: Iterable[Reading], size: int) -> Posterior:
    """The quantities 0..size-1, given independent readings.

    The readings are summed in a canonical order, so their order plays no role.

    Raises:
        ValueError: The readings do not determine every quantity.
    """
    precision = [[0.0] * (i + 1) for i in range(size)]
    right = [0.0] * size
    for one in sorted(readings, key=_canonical):
        scale = 1 / one.sd**2
        entries = sorted(one.weights.items())
        for i, w in entries:
            right[i] += scale * w * one.value
            for j, v in entries:
                if j > i:
                    break
                precision[i][j] += scale * w * v
    factor = _cholesky(precision)
    middle = _forward(factor, dict(enumerate(right)))
    return Posterior(mean=_backward(factor, middle), factor=factor)


def _canonical(one: Reading) -> tuple[list[tuple[int, float]], float, float]:
    return sorted(one.weights.items()), one.value, one.sd


def _cholesky(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    out: list[list[float]] = []
    for i, row in enumerate(matrix):
        line: list[float] = []
        for j in range(i + 1):
            known = line if j == i else out[j]
            rest = row[j] - sum(map(mul, line, known))
            if j < i:
                line.append(rest / out[j][j])
            elif rest <= 0:
                msg = f"the readings do not determine quantity {i}"
                raise ValueError(msg)
            else:
                line.append(math.sqrt(rest))
        out.append(line)
    return tuple(tuple(line) for line in out)


def _forward(factor: Sequence[Sequence[float]], right: Mapping[int, float]) -> list[float]:
    """Solve L x = right."""
    out: list[float] = []
    for i, row in enumerate(factor):
        rest = right.get(i, 0.0) - sum(map(mul, row, out))
        out.append(rest / row[i])
    return out


def _backward(factor: Sequence[Sequence[float]], right: Sequence[float]) -> tuple[float, ...]:
    """Solve L^T x = right."""
    size = len(right)
    out = [0.0] * size
    for i in reversed(range(size)):
        rest = right[i] - sum(factor[j][i] * out[j] for j in range(i + 1, size))
        out[i] = rest / factor[i][i]
    return tuple(out)
