"""Tokens per second from acceptance and row cost: predictions, bounds, forecasts.

Covers one workload at a time; what all measurements of a profile say together is
``tuner.belief``. A forecast for other hardware is a ratio to depth 0,
never tokens per second. Does not know what fits into memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import expected_tokens, survival
from tuner.special import normal_cdf
from tuner.types import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "RESIDENCY_SUSPICION",
    "SLACK",
    "RatioForecast",
    "e_ratio",
    "forecast_ratios",
    "measured_over_forecast",
    "monotone_bound_tps",
    "optimistic",
    "p_beats",
    "predict_tps",
    "upper_bound_tps",
]

SLACK = 1.08
"""How much a conditional acceptance may exceed the one before it; 1.03 was observed."""

RESIDENCY_SUSPICION = 0.90
"""Measured over forecast below which residency is suspect even if no log line says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioForecast:
    """Speed at a depth relative to depth 0, forecast and not measured.

    Attributes:
        depth: Draft depth.
        ratio: tok/s at this depth over tok/s at depth 0 of the same model and card.
    """

    depth: int
    ratio: Interval

    def __str__(self) -> str:
        """Short text that cannot be mistaken for a measurement."""
        return f"depth {self.depth}: {self.ratio.mid:.2f}x depth 0 (forecast)"


def predict_tps(cond: Sequence[float], t0_s: float, c: float) -> float:
    """Tokens per second at depth len(cond)."""
    return expected_tokens(cond) / (t0_s * (1 + c * len(cond)))


def upper_bound_tps(cond: Sequence[float], t0_s: float, c: float, depth: int) -> float:
    """Tokens per second if every position beyond ``cond`` were always accepted."""
    reach = survival(cond)[-1] if cond else 1.0
    tokens = expected_tokens(cond) + (depth - len(cond)) * reach
    return tokens / (t0_s * (1 + c * depth))


def monotone_bound_tps(
    cond: Sequence[float], t0_s: float, c: float, depth: int, *, slack: float = SLACK
) -> float:
    """Tokens per second if no position beyond ``cond`` beats the one before by ``slack``."""
    return predict_tps(optimistic(cond, depth, slack=slack), t0_s, c)


def optimistic(cond: Sequence[float], depth: int, *, slack: float = SLACK) -> tuple[float, ...]:
    """``cond`` continued to ``depth``, every further one ``slack`` times the last, at most 1."""
    out = list(cond)
    while len(out) < depth:
        out.append(min(1.0, out[-1] * slack) if out else 1.0)
    return tuple(out)


def e_ratio(cond: Sequence[float]) -> float:
    """E(k) / E(k - 1): what the last position adds to the tokens per step."""
    return expected_tokens(cond) / expected_tokens(cond[:-1])


def p_beats(l_j: float, s_j: float, l_inc: float, s_inc: float, *, eps: float = 0.02) -> float:
    """P(tps_j > (1 + eps) * tps_inc), from means and deviations of log tokens per second."""
    margin = (l_j - l_inc) - math.log1p(eps)
    deviation = math.hypot(s_j, s_inc)
    if deviation == 0.0:
        return float(margin > 0)
    return normal_cdf(margin / deviation)


def forecast_ratios(alphas: Sequence[Interval], row_cost: float) -> tuple[RatioForecast, ...]:
    """Speed relative to depth 0 for depth 0..len(alphas): E(k) / (1 + row_cost * k).

    The bounds take all acceptances at their lower, or all at their upper, ends. They do
    not contain the error of the row cost.
    """
    out: list[RatioForecast] = []
    for depth in range(len(alphas) + 1):
        known = alphas[:depth]
        rows = 1 + row_cost * depth
        low, mid, high = (
            expected_tokens(cond) / rows
            for cond in (
                [a.low for a in known],
                [a.mid for a in known],
                [a.high for a in known],
            )
        )
        level = known[0].level if known else 1.0
        ratio = Interval(low=low, mid=mid, high=high, level=level)
        out.append(RatioForecast(depth=depth, ratio=ratio))
    return tuple(out)


def measured_over_forecast(measured_tps: float, forecast_tps: float) -> float:
    """Share of the resident forecast that was reached; see ``RESIDENCY_SUSPICION``."""
    return measured_tps / forecast_tps
