"""What a verification row costs: step times against depth, t(k) = t0 * (1 + c * k).

Covers the fit with its residuals and errors, the in-process micro-probe, the ratios
that a study's table implies and the break-even of one more position. The fill of the
context is ``tuner.step_cost``'s. The row cost c belongs to a card and its kernels: it is
fitted, never assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import expected_tokens, survival
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CostFit",
    "RowCost",
    "StepPoint",
    "breakeven_next",
    "fit_cost",
    "implied_step_ratio",
    "marginal_cost_from_gain",
    "microprobe_cost",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """Step time measured at one depth.

    Attributes:
        depth: Verification rows besides the first one.
        step_s: Seconds per step (expected tokens / tokens per second, of the same run).
        weight: Relative weight in a fit.
    """

    depth: int
    step_s: float
    weight: float = 1.0


_LARGEST = 100.0
"""Of a row cost; on a processor it is about 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """A row cost known beforehand.

    Attributes:
        c: Cost of one verification row as a share of a plain step, 0 to 100.
        sd: Its standard deviation, 0 to 100.
        source: Where it comes from, for sentences.
    """

    c: float
    sd: float
    source: str

    def __post_init__(self) -> None:
        """Refuse what no posterior can start from."""
        if not (0 <= self.c <= _LARGEST and 0 <= self.sd <= _LARGEST):
            msg = f"no row costs {self.c} of a step with a deviation of {self.sd}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFit:
    """Weighted least squares of t(k) = t0 * (1 + c * k).

    Attributes:
        t0_s: Step time at depth 0, seconds.
        c: Row cost as a share of ``t0_s``.
        c_se: Standard error of ``c``; None with two points, which leave no residual.
        residuals: measured / fitted - 1 per point, in the order of the points. The
            misfit is shown, not hidden.
    """

    t0_s: float
    c: float
    c_se: float | None
    residuals: tuple[float, ...]

    def step_s(self, depth: int) -> float:
        """Fitted seconds per step."""
        return self.t0_s * (1 + self.c * depth)


def fit_cost(points: Sequence[StepPoint]) -> CostFit | Unknown:
    """Fit the row cost; Unknown without two depths or if the line makes no sense."""
    total = sum(p.weight for p in points)
    if len({p.depth for p in points}) < 2:  # noqa: PLR2004 - a line needs two depths
        return Unknown("the row cost needs step times at two depths")
    mean_k = sum(p.weight * p.depth for p in points) / total
    mean_t = sum(p.weight * p.step_s for p in points) / total
    spread = sum(p.weight * (p.depth - mean_k) ** 2 for p in points)
    slope = sum(p.weight * (p.depth - mean_k) * (p.step_s - mean_t) for p in points) / spread
    start = mean_t - slope * mean_k
    if start <= 0:
        return Unknown("the fitted step time at depth 0 is not positive")
    errors = [p.step_s - (start + slope * p.depth) for p in points]
    freedom = len(points) - 2
    error: float | None = None
    if freedom > 0:
        squares = sum(p.weight * e * e for p, e in zip(points, errors, strict=True))
        variance = squares / freedom
        # delta method for c = slope / start; cov(slope, start) = -mean_k * variance / spread
        gradient = (1 + slope / start * mean_k) / start
        error = math.sqrt(variance * (gradient**2 / spread + (slope / start**2) ** 2 / total))
    return CostFit(
        t0_s=start,
        c=slope / start,
        c_se=error,
        residuals=tuple(e / (p.step_s - e) for p, e in zip(points, errors, strict=True)),
    )


def implied_step_ratio(raw_tps: float, cond: Sequence[float], tps: float) -> float:
    """t(k)/t0 that a measured speed implies, given the speed without drafting."""
    return expected_tokens(cond) * raw_tps / tps


def marginal_cost_from_gain(cond: Sequence[float], gain: float) -> float:
    """Relative step cost of the last position, t(k)/t(k-1) - 1, given its speed gain."""
    return expected_tokens(cond) / expected_tokens(cond[:-1]) / (1 + gain) - 1


def microprobe_cost(t0: float, t1: float, tk: float, depth: int) -> tuple[float, float]:
    """Verification row and draft token, from three step times of one engine (depth >= 2).

    Args:
        t0: Plain step (reply limited to 2 tokens). This is not depth 0: the engine
            still runs the head's catch-up.
        t1: Step that verifies one draft token (reply limited to 3 tokens).
        tk: Full step.
        depth: The engine's draft depth; it drafts that many tokens before cutting.

    Returns:
        Time of one row and of one draft token, in the unit of the arguments.
    """
    row = (tk - t1) / (depth - 1)
    return row, (t1 - t0 - row) / depth


def breakeven_next(cond: Sequence[float], c: float) -> float:
    """The alpha_{k+1} above which one more position pays; above 1 it never can."""
    reach = survival(cond)[-1] if cond else 1.0
    return expected_tokens(cond) * c / ((1 + c * len(cond)) * reach)
