"""Tokens per second from acceptance and row cost: predictions, bounds, forecasts.

Covers one workload at a time. A forecast for other hardware is a ratio to depth 0,
never tokens per second. Does not know what fits into memory.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import expected_tokens, survival
from tuner.cost import CostFit, RowCost
from tuner.special import normal_cdf
from tuner.types import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.acceptance import PositionCounts

__all__ = [
    "RESIDENCY_SUSPICION",
    "SLACK",
    "DepthForecast",
    "RatioForecast",
    "StepRatio",
    "WorkloadPoint",
    "e_ratio",
    "forecast_ratios",
    "measured_over_forecast",
    "monotone_bound_tps",
    "optimistic",
    "p_beats",
    "predict_depth",
    "predict_tps",
    "step_ratio",
    "upper_bound_tps",
]

SLACK = 1.08
"""How much a conditional acceptance may exceed the one before it; 1.03 was observed."""

RESIDENCY_SUSPICION = 0.90
"""Measured over forecast below which residency is suspect even if no log line says so."""

_STEP_SD = 0.02
"""Error of a step time's logarithm that remains even beside a measured depth."""

_IRREGULAR = 0.15
_TEXT_SD = 0.012
"""Error of log E at another depth, from other texts meeting other drafts."""

_LEAST_RATIO = 0.7
"""Least factor by which a conditional acceptance is expected to fall per position."""

_Z_95 = 1.96


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPoint:
    """What one workload showed at the deepest measured depth.

    Attributes:
        counts: Position counts; at least one step at depth >= 1.
        step_s: Seconds per decode step.
    """

    counts: PositionCounts
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRatio:
    """Step time at another depth over that at the measured one.

    Attributes:
        ratio: Central value.
        sd_log: Standard deviation of its logarithm.
    """

    ratio: float
    sd_log: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthForecast:
    """Predicted speed of a depth that was not tried.

    Attributes:
        depth: The depth.
        tps: Tokens per second, mean over workloads, with a 95 % interval.
        log_tps: Logarithm of the central value.
        sd_log: Its standard deviation.
        bound_tps: Speed if every further position were as good as ``SLACK`` allows;
            equals the central value for depths that the counts cover.
    """

    depth: int
    tps: Interval
    log_tps: float
    sd_log: float
    bound_tps: float


def step_ratio(cost: CostFit | RowCost, base: int, depth: int, *, nearest: int) -> StepRatio:
    """Step time at ``depth`` over that at ``base``.

    Args:
        cost: A fit to measured depths, or a row cost known beforehand.
        base: Measured depth.
        depth: Wanted depth.
        nearest: Rows between ``depth`` and the nearest measured depth; increments per
            row are irregular by about 15 %.
    """
    ratio = (1 + cost.c * depth) / (1 + cost.c * base)
    irregular = _STEP_SD + _IRREGULAR * abs(cost.c) * nearest / (1 + cost.c * depth)
    if isinstance(cost, CostFit):
        return StepRatio(ratio=ratio, sd_log=irregular)
    dearer = cost.c + cost.sd
    moved = (1 + dearer * depth) / (1 + dearer * base)
    return StepRatio(ratio=ratio, sd_log=math.hypot(irregular, math.log(moved / ratio)))


def predict_depth(points: Sequence[WorkloadPoint], depth: int, step: StepRatio) -> DepthForecast:
    """Predict an untried depth from the counts of a measured one, per workload.

    Depths that the counts cover use their prefix; deeper ones continue the last ratio of
    conditional acceptances (at most 1), and are bounded by ``SLACK``.
    """
    central = bound = 0.0
    for point in points:
        seconds = point.step_s * step.ratio
        likely, best = _continued(point.counts, depth)
        central += expected_tokens(likely) / seconds / len(points)
        bound += expected_tokens(best) / seconds / len(points)
    text = _TEXT_SD if bound == central else _TEXT_SD + math.log(bound / central)
    deviation = math.hypot(text, step.sd_log)
    return DepthForecast(
        depth=depth,
        tps=Interval(
            low=central * math.exp(-_Z_95 * deviation),
            mid=central,
            high=central * math.exp(_Z_95 * deviation),
        ),
        log_tps=math.log(central),
        sd_log=deviation,
        bound_tps=bound,
    )


def _continued(counts: PositionCounts, depth: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Conditional acceptances at ``depth``: likely, and the best that ``SLACK`` allows."""
    chain = (counts.steps, *counts.accepted)
    known = [now / before if before else 0.0 for before, now in itertools.pairwise(chain)][:depth]
    last = known[-1] if known else 1.0
    before = known[-2] if len(known) > 1 else 1.0
    ratio = min(max(last / before if before else 1.0, _LEAST_RATIO), 1.0)
    likely = list(known)
    while len(likely) < depth:
        likely.append(likely[-1] * ratio)
    return tuple(likely), optimistic(known, depth)
