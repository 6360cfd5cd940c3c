"""Shares, means and quantiles of outcomes with their 95 % intervals, and the Markdown table."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.tuner.strategies import Outcome

__all__ = ["Mean", "Share", "mean", "quantile", "share", "table", "within"]

_Z_95 = 1.959964

_HEADS = (
    "strategy",
    "machines",
    "within 2 %",
    "within 3 %",
    "mean regret",
    "99 % regret",
    "evicted",
    "starts (95 %)",
    "cells",
    "minutes",
)


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its 95 % interval (Wilson)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Percent."""
        return f"{100 * self.value:.2f} % [{100 * self.low:.2f}, {100 * self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with half of its 95 % interval (normal)."""

    value: float
    half: float

    def __str__(self) -> str:
        """Mean ± half."""
        return f"{self.value:.2f} ± {self.half:.2f}"


def share(hits: int, of: int) -> Share:
    """Share of ``of`` with its Wilson interval."""
    rate, z2 = hits / of, _Z_95**2
    middle = (rate + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z_95 * math.sqrt(rate * (1 - rate) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return Share(rate, max(0.0, middle - half), min(1.0, middle + half))


def within(rows: Sequence[Outcome], limit: float) -> Share:
    """Share of machines on which at most ``limit`` of the best speed is given away."""
    return share(sum(row.regret <= limit for row in rows), len(rows))


def mean(values: Sequence[float]) -> Mean:
    """Mean; a single value has no interval, which is shown as 0."""
    half = _Z_95 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Mean(statistics.fmean(values), half)


def quantile(values: Sequence[float], level: float) -> float:
    """The smallest value that at least ``level`` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(level * len(values)) - 1)]


def table(results: Mapping[str, Sequence[Outcome]]) -> str:
    """The results as a Markdown table.

    "Evicted" is the share of machines on which a depth was chosen that does not fit; the
    number after the starts is their 95 % quantile.
    """
    lines = [f"| {' | '.join(_HEADS)} |", f"|---|{'---:|' * (len(_HEADS) - 1)}"]
    lines += [f"| {' | '.join(_row(name, rows))} |" for name, rows in results.items()]
    return "\n".join(lines)


def _row(name: str, rows: Sequence[Outcome]) -> tuple[str, ...]:
    regrets = [row.regret for row in rows]
    starts = [row.restarts for row in rows]
    return (
        name,
        str(len(rows)),
        str(within(rows, 0.02)),
        str(within(rows, 0.03)),
        f"{mean([100 * regret for regret in regrets])} %",
        f"{100 * quantile(regrets, 0.99):.1f} %",
        f"{100 * statistics.fmean(row.evicted for row in rows):.2f} %",
        f"{mean(starts)} ({quantile(starts, 0.95):.0f})",
        str(mean([row.cells for row in rows])),
        str(mean([row.seconds / 60 for row in rows])),
    )
