"""What a decode step takes at every depth, from all starts of a profile at once.

One linear-Gaussian model, solved by Gauss-Newton. A step at depth j >= 1 takes
T(j) = t0 * (1 + h + g_1 + ... + g_j), where h is the head's catch-up, which depth 0 does not
have (TUNER.md 3.2), and the increments g_i scatter around the row cost c. In an engine of
depth k a short step that verifies r tokens takes t0 * (1 + h) for r = 0 and
t0 * (1 + h + g_1 + ... + g_r + (k - r) * d + a) for r >= 1: an MTP head drafts k tokens
whatever it verifies, and a step of a new batch shape rebuilds the graph, which costs a, the
same for every r of a start, on the embedded engine and on an H200 (docs/benchmarks.md). The
steady step of the same start tells a. Every start has its own offset and every workload its own
factor; all short steps share a bias, and so do those that verify fewer rows than they draft.
Does not know what the steps earn (``tuner.texts``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tuner.gauss import Posterior, Reading, posterior
from tuner.types import Drafter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.cost import RowCost
    from tuner.timing import StartTimes

__all__ = ["START_SD", "StepTimes", "step_times"]

START_SD = 0.01
"""Deviation of one start's step times from those of others, of the logarithm; TUNER.md 3.5."""

_ROW_COST = 0.38
_ROW_COST_SD = 0.12
"""Row cost where nothing is known of the card; TUNER.md 3.4."""

_LEAST_ROW_COST_SD = 1e-3
"""No row cost is known better, not even one that was printed without an error."""

_IRREGULAR = 0.15
"""Deviation of one row's cost from the mean, as a share of it; TUNER.md 3.2."""

_LEAST_IRREGULAR = 0.03
_DRAFT_SHARE = 0.175
_DRAFT_SHARE_SD = 0.08
"""Share of a row that drafts its token; TUNER.md 3.3 infers about 15 %."""
_LEAST_DRAFT_SD = 0.003
"""Where a row costs next to nothing: a tenth of what it is on the studies' cards."""

_CATCH_UP = 0.5
_CATCH_UP_SD = 0.5
_LEAST_CATCH_UP_SD = 0.03
"""Catch-up and its deviation in draft tokens, for it is one pass of the head: 1.1 to 1.5 of them
in the embedded engine, less where TUNER.md 3.2 expects 2 % of a step of 27B."""

_BIAS_SD = 0.015
"""Of a bias common to all short steps, and of one of those that verify fewer rows than they
draft, of the logarithm."""

_ONCE_SD = 0.5
"""Of a, as a share of a plain step: 0.7 on a toy model on a CPU, 0.4 on a 27B on an H200."""

_OWN_ONCE_SD = 0.1
"""Of what one start's a differs from that of others: 0.34, 0.41 and 0.57 of a plain step at depth
1, 2 and 3 of a 27B on an H200."""

_WORKLOAD_SD = 0.3
_MEAN_WORKLOAD_SD = 1e-3
"""The factors of the workloads are relative to their mean."""

_DRAFTS_ALL: Final = (Drafter.MTP, Drafter.MTP_FILE)
"""Drafters that draft to the full depth before the limit of a reply cuts (TUNER.md 2.3)."""

_FLAT_SD = 10.0
_ROUNDS = 40
_SETTLED = 1e-5
"""Movement of every quantity below which the linearisation is right."""

_RARE_Z = 3.09
"""A normal value exceeds it with a chance of 1e-3."""

_NOTHING: Final[Mapping[int, float]] = MappingProxyType({})
_LEAST_FACTOR = 0.2
"""Below this multiple of a plain step no step time is believed in the linearisation."""

_LEVEL, _C, _DRAFT, _CATCH, _BIAS, _PARTIAL, _ONCE, _FIRST = range(8)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Logarithms of the step times by depth, jointly normal.

    Attributes:
        mean: Of the logarithm of the seconds at depth 0, 1, ..., without a start's offset.
        covariance: Between depths.
        row_cost: (T(K) / T(0) - 1) / K of the deepest depth K.
        row_cost_sd: Its standard deviation.
        workloads: Factor of the step time of a workload, by name.
        offsets: Per start, in the order given: mean and standard deviation of its offset.
        strain: Chi squared of the fit, readings and assumptions together, over what it exceeds
            by chance once in a thousand; above 1 they contradict each other.
        scatter: Root of chi squared per time: how much more than their noise the times scatter.
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    row_cost: float
    row_cost_sd: float
    workloads: tuple[tuple[str, float], ...]
    offsets: tuple[tuple[float, float], ...]
    strain: float
    scatter: float


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the quantities stand.

    Level, c, d, h, two biases, a, g_1..g_K, offsets, each start's share in a, workloads.
    """

    deepest: int
    starts: int
    workloads: tuple[str, ...]

    @property
    def size(self) -> int:
        return _FIRST + self.deepest + 2 * self.starts + len(self.workloads)

    def row(self, depth: int) -> int:
        return _FIRST + depth - 1

    def offset(self, start: int) -> int:
        return _FIRST + self.deepest + start

    def once(self, start: int) -> int:
        return _FIRST + self.deepest + self.starts + start

    def workload(self, name: str) -> int:
        return _FIRST + self.deepest + 2 * self.starts + self.workloads.index(name)


def step_times(
    starts: Sequence[StartTimes],
    deepest: int,
    row_cost: RowCost | None = None,
    *,
    offset_sd: Sequence[float] | None = None,
) -> StepTimes:
    """Joint posterior of the step times at depth 0..deepest.

    Args:
        starts: At least one.
        deepest: At least the depth of every start.
        row_cost: Known for this card and stack, or None for the prior of the studies.
        offset_sd: Deviation of each start's offset; ``START_SD`` by default.
    """
    names = tuple(sorted({name for one in starts for name, _ in one.steady}))
    layout = _Layout(deepest=deepest, starts=len(starts), workloads=names)
    cost, cost_sd = (_ROW_COST, _ROW_COST_SD) if row_cost is None else (row_cost.c, row_cost.sd)
    point = [0.0] * layout.size
    point[_C], point[_DRAFT] = cost, _DRAFT_SHARE * cost
    for depth in range(1, deepest + 1):
        point[layout.row(depth)] = cost
    first = starts[0]
    point[_LEVEL] = first.steady[0][1].value - math.log1p(cost * first.arm.depth)
    level = point[_LEVEL]
    known, readings = posterior((), 0), list[Reading]()
    for _ in range(_ROUNDS):
        readings = _prior(layout, point, cost, cost_sd, level)
        for index, one in enumerate(starts):
            sd = START_SD if offset_sd is None else offset_sd[index]
            readings.append(Reading({layout.offset(index): 1.0}, 0.0, sd))
            readings.append(Reading({layout.once(index): 1.0}, 0.0, _OWN_ONCE_SD))
            readings += _of_start(layout, index, one, point)
        known = posterior(readings, layout.size)
        moved = max(abs(a - b) for a, b in zip(known.mean, point, strict=True))
        point = list(known.mean)
        if moved < _SETTLED:
            break
    times = sum(len(one.steady) + len(one.short) for one in starts)
    squares = math.fsum(((r.value - known.of(r.weights)) / r.sd) ** 2 for r in readings)
    return _result(layout, known, squares, times)


def _chi_squared(freedom: int) -> float:
    """What chi squared exceeds with a chance of 1e-3, by Wilson and Hilferty (1931).

    Every quantity has an assumption of its own, so only the times are degrees of freedom.
    """
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + _RARE_Z * math.sqrt(spread)) ** 3


def _prior(
    layout: _Layout, point: Sequence[float], cost: float, cost_sd: float, level: float
) -> list[Reading]:
    irregular = max(_IRREGULAR * abs(point[_C]), _LEAST_IRREGULAR)
    return [
        Reading({_LEVEL: 1.0}, level, _FLAT_SD),
        Reading({_C: 1.0}, cost, max(cost_sd, _LEAST_ROW_COST_SD)),
        Reading(
            {_DRAFT: 1.0, _C: -_DRAFT_SHARE},
            0.0,
            max(_DRAFT_SHARE_SD * max(cost, point[_C]), _LEAST_DRAFT_SD),
        ),
        Reading(
            {_CATCH: 1.0, _DRAFT: -_CATCH_UP},
            0.0,
            math.hypot(_CATCH_UP_SD * point[_DRAFT], _LEAST_CATCH_UP_SD),
        ),
        Reading({_BIAS: 1.0}, 0.0, _BIAS_SD),
        Reading({_PARTIAL: 1.0}, 0.0, _BIAS_SD),
        Reading({_ONCE: 1.0}, 0.0, _ONCE_SD),
        *(
            Reading({layout.row(depth): 1.0, _C: -1.0}, 0.0, irregular)
            for depth in range(1, layout.deepest + 1)
        ),
        *(Reading({layout.workload(name): 1.0}, 0.0, _WORKLOAD_SD) for name in layout.workloads),
        Reading({layout.workload(name): 1.0 for name in layout.workloads}, 0.0, _MEAN_WORKLOAD_SD),
    ]


def _of_start(
    layout: _Layout, index: int, one: StartTimes, point: Sequence[float]
) -> list[Reading]:
    depth, own = one.arm.depth, layout.offset(index)
    out: list[Reading] = []
    for name, time in one.steady:
        value, weights = _linear(layout, point, depth)
        weights |= {own: 1.0, layout.workload(name): 1.0}
        out.append(Reading(weights, time.value - value, time.sd))
    for rows, time in one.short:
        further = {_CATCH: 1.0} if depth and not rows else {}
        if rows:
            further = {_ONCE: 1.0, layout.once(index): 1.0}
            if one.arm.drafter in _DRAFTS_ALL:
                further[_DRAFT] = float(depth - rows)
        value, weights = _linear(layout, point, rows, further)
        weights |= {own: 1.0, _BIAS: 1.0} | ({_PARTIAL: 1.0} if rows < depth else {})
        out.append(Reading(weights, time.value - value, time.sd))
    return out


def _linear(
    layout: _Layout,
    point: Sequence[float],
    rows: int,
    further: Mapping[int, float] = _NOTHING,
) -> tuple[float, dict[int, float]]:
    """Logarithm of t0 * (1 + h + g_1 + ... + g_rows + further), without h at 0 rows.

    Linear around ``point``: constant and weights.
    """
    inner = dict.fromkeys(map(layout.row, range(1, rows + 1)), 1.0) | dict(further)
    if rows:
        inner[_CATCH] = 1.0
    factor = max(1 + sum(w * point[i] for i, w in inner.items()), _LEAST_FACTOR)
    slope = {i: w / factor for i, w in inner.items()}
    constant = math.log(factor) - sum(w * point[i] for i, w in slope.items())
    return constant, {_LEVEL: 1.0} | slope


def _result(layout: _Layout, known: Posterior, squares: float, count: int) -> StepTimes:
    lines = [_linear(layout, known.mean, depth) for depth in range(layout.deepest + 1)]
    mean = tuple(constant + known.of(weights) for constant, weights in lines)
    covariance = known.covariance([weights for _, weights in lines])
    row_cost, row_cost_sd = known.mean[_C], known.sd({_C: 1.0})
    if layout.deepest:
        times = math.exp(mean[-1] - mean[0])
        variance = covariance[-1][-1] + covariance[0][0] - 2 * covariance[-1][0]
        row_cost = (times - 1) / layout.deepest
        row_cost_sd = times * math.sqrt(max(variance, 0.0)) / layout.deepest
    offsets = [layout.offset(i) for i in range(layout.starts)]
    return StepTimes(
        mean=mean,
        covariance=covariance,
        row_cost=row_cost,
        row_cost_sd=row_cost_sd,
        workloads=tuple(
            (name, math.exp(known.mean[layout.workload(name)])) for name in layout.workloads
        ),
        offsets=tuple((known.mean[i], known.sd({i: 1.0})) for i in offsets),
        strain=squares / _chi_squared(count),
        scatter=math.sqrt(squares / count),
    )
