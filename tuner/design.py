"""Which arm to start next and which cells to run on it: ask, measure, tell.

Covers the exhaustive sweep and the model-based search behind one interface. One engine
start per ask, because a depth is a start-up constant. All is pure: a design is a frozen
value, the history is what was told. "Does not fit" (memory) is kept apart from "does not
pay" (speed). Does not choose the arm to serve (``tuner.select``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.acceptance import TRUSTED_FULL_DRAFTS, PositionCounts, full_draft_ratio, pool_counts
from tuner.cost import CostFit, RowCost
from tuner.plan import (
    Ask,
    Cell,
    Elimination,
    History,
    Rejected,
    State,
    Stop,
    WorkloadPlan,
)
from tuner.select import cost_of
from tuner.speed import TIE_RATIO
from tuner.throughput import (
    DepthForecast,
    WorkloadPoint,
    p_beats,
    predict_depth,
    step_ratio,
)
from tuner.types import Arm, Budget, depth_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.summary import ArmSummary

__all__ = [
    "Ask",
    "Cell",
    "Design",
    "Elimination",
    "History",
    "ModelBased",
    "Rejected",
    "Stop",
    "Sweep",
    "WorkloadPlan",
]

FIRST_DEPTH = 2
"""Depth that the model-based search starts with, if it fits."""

DOUBT = 0.02
"""Chance of a better arm below which it is not worth an engine start."""

_MEASURED_SD = 0.02
"""Error of the logarithm of a measured arm's tokens per second."""


class Design(Protocol):
    """A strategy that asks for measurements."""

    def ask(self, history: History) -> Ask | Stop:
        """Next arm to start, or why there is none; pure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Measure every arm that fits, shallow to deep.

    Attributes:
        arms: Depths of one profile.
        workloads: What to run.
        repetitions: Of every prompt on the same start; they reduce timing noise only.
        budget: Limits; reaching one ends the sweep with what was measured.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int = 3
    budget: Budget = field(default_factory=Budget)

    def ask(self, history: History) -> Ask | Stop:
        """Next arm with missing cells."""
        state = State.of(self, history)
        for arm in state.open:
            return state.ask(arm, "is the next depth of the sweep")
        return state.stop("every depth that fits was measured", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBased:
    """Measure as few arms as the model of acceptance and row cost needs.

    Starts at depth 2 if it fits, learns the row cost from a second depth unless it is
    known, then measures the untried depth with the largest chance of being more than 2 %
    faster than the best measured one, while that chance exceeds 2 %.

    Attributes:
        arms: Depths of one profile.
        workloads: What to run.
        repetitions: Of every prompt on the same start.
        budget: Limits.
        row_cost: Known for this card and stack, or None.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int = 3
    budget: Budget = field(default_factory=Budget)
    row_cost: RowCost | None = None
    deepest: int | None = None

    def ask(self, history: History) -> Ask | Stop:
        """Next arm by chance of beating the best one."""
        state = State.of(self, history, deepest=self.deepest)
        for arm in state.open:
            if arm in state.attempts:
                return state.ask(arm, "lacks cells of its first start")
        best = max(
            state.measured, key=lambda row: (row.tps or 0.0, depth_order(row.arm)), default=None
        )
        if best is None:
            return self._first(state)
        base = self._base(state, history)
        cost = cost_of(state.measured) if len(state.measured) > 1 else self.row_cost
        if base is None or not isinstance(cost, CostFit | RowCost):
            return self._unpredictable(state)
        return self._promising(state, best, base, cost)

    def _first(self, state: State) -> Ask | Stop:
        shallow = [arm for arm in state.open if arm.depth <= FIRST_DEPTH]
        if shallow:
            return state.ask(
                max(shallow, key=depth_order), f"is where the search starts (at most {FIRST_DEPTH})"
            )
        for arm in state.open:
            return state.ask(arm, "is the shallowest depth left")
        return state.stop("no depth could be measured", ())

    def _base(self, state: State, history: History) -> _Base | None:
        """The deepest measured depth whose counts can be trusted, or None."""
        for row in sorted(state.measured, key=lambda one: depth_order(one.arm), reverse=True):
            if row.arm.depth and (points := _points(row, history)):
                return _Base(row.arm.depth, points)
        return None

    def _unpredictable(self, state: State) -> Ask | Stop:
        for arm in state.open:
            return state.ask(arm, "gives the row cost and the acceptance that are not known yet")
        return state.stop("every depth that fits was measured", ())

    def _promising(
        self, state: State, best: ArmSummary, base: _Base, cost: CostFit | RowCost
    ) -> Ask | Stop:
        top = best.tps or 0.0
        chances: list[tuple[float, Arm]] = []
        out: list[Rejected] = []
        for arm in state.open:
            forecast = _forecast(arm.depth, base, cost, state.measured)
            chance = p_beats(
                forecast.log_tps, forecast.sd_log, math.log(top), _MEASURED_SD, eps=TIE_RATIO
            )
            if arm.depth > base.depth and forecast.bound_tps < top:
                why = f"reaches at most {forecast.bound_tps:.1f} tok/s of {top:.1f}"
            elif chance <= DOUBT:
                why = f"is expected at {forecast.tps.mid:.1f} tok/s of {top:.1f}"
            else:
                chances.append((chance, arm))
                continue
            out.append(
                Rejected(arm=arm, verdict=Elimination.DOES_NOT_PAY, reason=f"{why}, does not pay")
            )
        if not chances:
            reason = f"{best.arm} is the best measured and no other has a chance above {DOUBT:.0%}"
            return state.stop(reason, out)
        chance, arm = max(chances, key=lambda one: (one[0], depth_order(one[1])))
        return state.ask(arm, f"beats {best.arm} by {TIE_RATIO:.0%} with a chance of {chance:.0%}")


@dataclass(frozen=True, slots=True)
class _Base:
    depth: int
    points: tuple[WorkloadPoint, ...]


def _points(row: ArmSummary, history: History) -> tuple[WorkloadPoint, ...] | None:
    """Counts and step time per workload; None unless all of them can be trusted."""
    out: list[WorkloadPoint] = []
    for workload, _ in row.workload_tps:
        counts = pool_counts(
            o for o in history.observations if o.arm == row.arm and o.workload == workload
        )
        times = [c.step_s for c in row.cells if c.workload == workload and c.step_s is not None]
        if not isinstance(counts, PositionCounts) or not counts.steps or not times:
            return None
        drafted = counts.steps * counts.depth - counts.cut
        if full_draft_ratio(drafted, counts.steps, counts.depth) < TRUSTED_FULL_DRAFTS:
            return None
        out.append(WorkloadPoint(counts=counts, step_s=sum(times) / len(times)))
    return tuple(out)


def _forecast(
    depth: int, base: _Base, cost: CostFit | RowCost, measured: Sequence[ArmSummary]
) -> DepthForecast:
    nearest = min(abs(row.arm.depth - depth) for row in measured)
    step = step_ratio(cost, base.depth, depth, nearest=nearest)
    return predict_depth(base.points, depth, step)
