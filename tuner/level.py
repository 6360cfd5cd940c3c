"""A quantity learnt from live requests that forgets: a Gaussian with a prior at zero.

The building block of live acceptance. On the logit scale the acceptance of a draft position
is the calibrated one plus what all requests share, plus what a class shares, plus what is
the position's own: each is one ``Level``. Forgetting lets it fall back to the calibration,
and makes it less sure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Level", "Seen", "deviation", "logit", "sigmoid", "total_deviation"]

FARTHEST: Final = 2.0
"""Largest deviation, in logits, that one request may show; a run of hits has no finite one."""

_NEWTON_STEPS: Final = 2
_LEAST_INFORMATION: Final = 1e-9


def logit(share: float) -> float:
    """Log odds of a share in (0, 1)."""
    return math.log(share / (1 - share))


def sigmoid(x: float) -> float:
    """The share with these log odds."""
    return 1 / (1 + math.exp(-x))


@dataclass(frozen=True, slots=True)
class Level:
    """Gaussian posterior of one quantity.

    Attributes:
        prior: Precision of the prior, which has mean 0.
        weight: Precision of what was learnt and not yet forgotten.
        total: Sum of what was learnt, weighted by its precision.
    """

    prior: float
    weight: float = 0.0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """Posterior mean."""
        return self.total / (self.prior + self.weight)

    @property
    def var(self) -> float:
        """Posterior variance."""
        return 1 / (self.prior + self.weight)

    def learn(self, value: float, variance: float, keep: float = 1.0) -> Level:
        """The posterior after one more value; of what was learnt before ``keep`` stays."""
        return Level(
            self.prior,
            self.weight * keep + 1 / variance,
            self.total * keep + value / variance,
        )

    def fade(self, keep: float) -> Level:
        """The posterior when only this share of the evidence still counts."""
        return Level(self.prior, self.weight * keep, self.total * keep)


@dataclass(frozen=True, slots=True)
class Seen:
    """How far one request lies from what was expected, on the logit scale.

    Attributes:
        shift: Deviation common to all its positions.
        variance: Sampling variance of ``shift``.
    """

    shift: float
    variance: float


def deviation(
    etas: Sequence[float], reached: Sequence[int], accepted: Sequence[int], phi: float
) -> Seen | None:
    """Fit one shift to all positions of a request: two Newton steps on the likelihood.

    Args:
        etas: Expected log odds per position.
        reached: Steps that got to each position.
        accepted: Steps that accepted it.
        phi: Over-dispersion within the request.

    Returns:
        None where nothing was drafted.
    """
    shift = information = 0.0
    for _ in range(_NEWTON_STEPS):
        residual = information = 0.0
        for eta, n, hits in zip(etas, reached, accepted, strict=True):
            p = sigmoid(eta + shift)
            residual += hits - n * p
            information += n * p * (1 - p)
        if information < _LEAST_INFORMATION:
            return None
        shift = min(max(shift + residual / information, -FARTHEST), FARTHEST)
    return Seen(shift, phi / information)


def total_deviation(etas: Sequence[float], steps: int, accepted: int, phi: float) -> Seen | None:
    """As ``deviation``, from the accepted total alone: what aggregate counters identify.

    The mean accepted per step is the sum of the survivals S_i, its slope in the shift the sum
    over i of (1 - alpha_i) (S_i + S_{i+1} + ...), its variance sum (2i - 1) S_i - mean^2.
    """
    shift = variance = 0.0
    for _ in range(_NEWTON_STEPS):
        alphas = [sigmoid(eta + shift) for eta in etas]
        mean = slope = square = missed = 0.0
        chain = 1.0
        for place, alpha in enumerate(alphas):
            chain *= alpha
            missed += 1 - alpha
            mean += chain
            square += (2 * place + 1) * chain
            slope += missed * chain
        if steps * slope < _LEAST_INFORMATION:
            return None
        variance = phi * (square - mean * mean) / (steps * slope * slope)
        shift = min(max(shift + (accepted / steps - mean) / slope, -FARTHEST), FARTHEST)
    return Seen(shift, variance)
