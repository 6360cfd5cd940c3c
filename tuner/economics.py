"""What a draft depth earns and costs: E[tokens/step], Cost, their ratio, and the misfit.

    tok/s at depth k over that without drafting = E(k) / Cost(k),
    E(k) = 1 + a1 + a1 a2 + ...,   Cost(k) = t(k) / t(0)

A drafter that drafts at some steps only (n-grams; ``tuner.drafts.OCCASIONAL``) leaves the other
steps plain: they give one token for one plain step. With r the measured rate of drafts
(``tuner.drafts.draft_rate``: steps with a draft, which the engine counts, over all N - 1 - A
steps of a reply), and E and Cost those of a step with a draft, means over all steps are

    E_r(k) = (1 - r) + r E(k) = 1 + r (E(k) - 1),   Cost_r(k) = 1 + r (Cost(k) - 1)

and the gain is E_r / Cost_r, as tokens and time add up over steps (a ratio of sums, no mean of
ratios): it lies between 1 and E / Cost.

Each with an interval, and measured speed over formula beside it: where the formula misses
the measurement, that is shown. Covers one workload's counts with one cost. Predictions
of untried depths are ``tuner.throughput``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import DEFAULT_PHI, e_hat
from tuner.cost import CostFit, RowCost
from tuner.special import t_quantile
from tuner.step_cost import Estimate
from tuner.types import Interval, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.acceptance import PositionCounts
    from tuner.step_cost import StepCost

__all__ = ["DepthEconomics", "economics"]

_Z_95 = 1.96
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthEconomics:
    """The balance of one depth.

    Attributes:
        depth: Draft depth.
        tokens_per_step: E(k) with a 95 % interval, over all steps, those without a draft too.
        cost: Mean step time over that without drafting; as narrow as its value where
            ``cost_known`` is False.
        gain: ``tokens_per_step`` over ``cost``: tok/s over those without drafting.
        cost_known: Whether the error of the cost is known and part of the intervals.
        measured: tok/s that were measured over tok/s measured without drafting, or None.
        misfit: ``measured`` over ``gain``, less 1; None without a measurement.
    """

    depth: int
    tokens_per_step: Interval
    cost: Interval
    gain: Interval
    cost_known: bool
    measured: float | None
    misfit: float | None

    @property
    def explained(self) -> bool | None:
        """Whether the measurement lies within the formula's interval; None without one."""
        if self.measured is None:
            return None
        return self.gain.low <= self.measured <= self.gain.high

    def __str__(self) -> str:
        """One line for a report."""
        line = (
            f"depth {self.depth}: {_text(self.tokens_per_step)} tokens per step for "
            f"{_text(self.cost)} plain steps is {_text(self.gain)} times the speed"
        )
        if not self.cost_known:
            line += " (error of the cost not known)"
        if self.measured is None or self.misfit is None:
            return line
        return f"{line}; measured {self.measured:.2f} ({round(self.misfit, 3) + 0.0:+.1%})"


def economics(
    counts: PositionCounts,
    cost: StepCost | CostFit | RowCost,
    *,
    measured_tps: Mapping[int, float] | None = None,
    context_tokens: float | None = None,
    phi: float = DEFAULT_PHI,
    draft_rate: float = 1.0,
) -> tuple[DepthEconomics, ...] | Unknown:
    """Balance of every depth from 1 to that of the counts, shallow to deep.

    Args:
        counts: Steps with a draft and accepted positions, at least one step.
        cost: What a step with a draft costs; a ``CostFit`` is one to the mean times of all steps
            and holds the rate of drafts already.
        measured_tps: Tokens per second by depth; compared only if depth 0 is there too.
        context_tokens: Context fill, for a ``StepCost``; None is the mean it was fitted at.
        phi: Over-dispersion of the text.
        draft_rate: Share of the steps that had a draft, as measured; its own error is not part
            of the intervals.

    Returns:
        The rows; Unknown if the cost says nothing about this context.

    Raises:
        ValueError: The rate is none of a drafter that drafted.
    """
    if not 0 < draft_rate <= 1:
        msg = f"a draft at {draft_rate:g} of the steps is no rate"
        raise ValueError(msg)
    speeds = measured_tps or {}
    plain_tps = speeds.get(0)
    out: list[DepthEconomics] = []
    for depth in range(1, counts.depth + 1):
        relative = _relative(cost, depth, context_tokens, draft_rate)
        if isinstance(relative, Unknown):
            return relative
        drafting, deviation = e_hat(counts, depth, phi=phi)
        expected, deviation = 1 + draft_rate * (drafting - 1), draft_rate * deviation
        tokens_se = deviation / expected
        cost_se = 0.0 if relative.se is None else relative.se / relative.value
        wide = _factor(relative.freedom) * cost_se
        gain = expected / relative.value
        measured = speeds[depth] / plain_tps if plain_tps and depth in speeds else None
        out.append(
            DepthEconomics(
                depth=depth,
                tokens_per_step=_around(expected, _Z_95 * tokens_se),
                cost=_around(relative.value, wide),
                gain=_around(gain, math.hypot(_Z_95 * tokens_se, wide)),
                cost_known=relative.se is not None,
                measured=measured,
                misfit=None if measured is None else measured / gain - 1,
            )
        )
    return tuple(out)


def _relative(
    cost: StepCost | CostFit | RowCost, depth: int, context_tokens: float | None, rate: float
) -> Estimate | Unknown:
    """Mean T(depth) / T(0) of any kind of cost, where so many steps draft."""
    match cost:
        case CostFit():
            se = None if cost.c_se is None else cost.c_se * depth
            return Estimate(value=1 + cost.c * depth, se=se, freedom=len(cost.residuals) - 2)
        case RowCost():
            full: Estimate | Unknown = Estimate(
                value=1 + cost.c * depth, se=cost.sd * depth, freedom=0
            )
        case _:
            full = cost.relative(depth, context_tokens)
    if isinstance(full, Unknown):
        return full
    se = None if full.se is None else rate * full.se
    return Estimate(value=1 + rate * (full.value - 1), se=se, freedom=full.freedom)


def _factor(freedom: int) -> float:
    """Standard errors in half a 95 % interval; 0 degrees: the error itself is known."""
    return t_quantile(_LEVEL, freedom) if freedom else _Z_95


def _around(value: float, half_log: float) -> Interval:
    """Interval of a positive value from half its width in logarithms."""
    return Interval(
        low=value * math.exp(-half_log), mid=value, high=value * math.exp(half_log), level=_LEVEL
    )


def _text(interval: Interval) -> str:
    return f"{interval.mid:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
