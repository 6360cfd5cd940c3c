"""What each strategy does on a simulated machine, and how good that was, with intervals."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.bench.tuner.fleet import DEEPEST, Machine, arm, machine, plans
from tuner.cost import RowCost
from tuner.design import ModelBased, Sweep
from tuner.replay import Replayed, replay
from tuner.select import rejection, summarise
from tuner.speed import TIE_RATIO
from tuner.types import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["STRATEGIES", "Outcome", "Share", "measure", "share", "table"]

_ARMS: Final = tuple(arm(depth) for depth in range(DEEPEST + 1))
_ENOUGH: Final = Budget(max_restarts=2 * len(_ARMS))
_Z_95 = 1.959964


@dataclass(frozen=True)
class Outcome:
    """One strategy on one machine.

    Attributes:
        depth: What it chose.
        regret: Share of the best depth's true tokens per second that it gives away.
        restarts: Engine starts.
        cells: Repetitions measured.
        seconds: Simulated wall time.
    """

    depth: int
    regret: float
    restarts: int = 0
    cells: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Share:
    """A share with its 95 % interval (Wilson)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Percent."""
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


def share(hits: int, of: int) -> Share:
    """Share of ``of`` with its Wilson interval."""
    rate, z2 = hits / of, _Z_95**2
    middle = (rate + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z_95 * math.sqrt(rate * (1 - rate) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return Share(rate, max(0.0, middle - half), min(1.0, middle + half))


def _static(depth: int) -> Callable[[Machine], Outcome]:
    return lambda one: _outcome(one, depth)


def _sweep(one: Machine, *, prompts: int = 1, repetitions: int = 3) -> Replayed:
    return replay(
        Sweep(arms=_ARMS, workloads=plans(prompts), repetitions=repetitions, budget=_ENOUGH),
        one,
    )


def _model(one: Machine, *, fits: bool = False, cost: bool = False) -> Replayed:
    """The search; ``fits`` tells it the memory ceiling, ``cost`` the row cost within 10 %."""
    known = one.step_s[0][1] / one.step_s[0][0] - 1
    return replay(
        ModelBased(
            arms=_ARMS,
            workloads=plans(3),
            repetitions=1,
            budget=_ENOUGH,
            deepest=one.ceiling if fits else None,
            row_cost=RowCost(c=known, sd=0.1 * known, source="simulated") if cost else None,
        ),
        one,
    )


def _outcome(one: Machine, depth: int, done: Replayed | None = None) -> Outcome:
    best = max(one.tps(depth) for depth in range(DEEPEST + 1))
    regret = 1 - one.tps(depth) / best
    if done is None:
        return Outcome(depth, regret)
    return Outcome(depth, regret, done.restarts, done.cells, done.history.spent_s)


def _chosen(one: Machine, done: Replayed) -> Outcome:
    """By ``choose_depth``: on a tie the least memory."""
    return _outcome(one, done.decision.arm.depth if done.decision.arm else 0, done)


def _fastest(one: Machine, done: Replayed) -> Outcome:
    """By the highest mean, whatever the intervals say."""
    rows = summarise(done.history.observations, done.history.starts)
    able = [row for row in rows if rejection(row) is None]
    best = max(able, key=lambda row: row.tps or 0.0)
    return _outcome(one, best.arm.depth, done)


def _frugal(one: Machine, done: Replayed) -> Outcome:
    """By the least memory of those whose mean is within the tie ratio of the highest."""
    rows = summarise(done.history.observations, done.history.starts)
    speeds = {row.arm.depth: row.tps or 0.0 for row in rows if rejection(row) is None}
    top = max(speeds.values())
    near = [depth for depth, tps in speeds.items() if tps * (1 + TIE_RATIO) >= top]
    return _outcome(one, min(near), done)


STRATEGIES: Final[Mapping[str, Callable[[Machine], Outcome]]] = {
    "static 2": _static(2),
    "static 3": _static(3),
    "Sweep, 1 prompt x 3, highest mean": lambda m: _fastest(m, _sweep(m)),
    "Sweep, 1 prompt x 3": lambda m: _chosen(m, _sweep(m)),
    "Sweep, 3 prompts x 1, highest mean": lambda m: _fastest(
        m, _sweep(m, prompts=3, repetitions=1)
    ),
    "Sweep, 3 prompts x 1": lambda m: _chosen(m, _sweep(m, prompts=3, repetitions=1)),
    "ModelBased, highest mean": lambda m: _fastest(m, _model(m)),
    "ModelBased": lambda m: _chosen(m, _model(m)),
    "ModelBased, least memory within 2 %": lambda m: _frugal(m, _model(m)),
    "ModelBased, memory known": lambda m: _chosen(m, _model(m, fits=True)),
    "ModelBased, memory and row cost known": lambda m: _chosen(m, _model(m, fits=True, cost=True)),
    "ModelBased, memory and row cost known, highest mean": lambda m: _fastest(
        m, _model(m, fits=True, cost=True)
    ),
}
"""Unless another rule is said, the depth is chosen as the program does it: ``choose_depth``."""


def measure(
    names: Iterable[str], *, machines: int, seed: str, hot: float = 0.0, logs_read: bool = True
) -> dict[str, list[Outcome]]:
    """Run strategies over the same machines."""
    fleet = [machine(seed, n, hot=hot, logs_read=logs_read) for n in range(machines)]
    return {name: [STRATEGIES[name](one) for one in fleet] for name in names}


def table(results: Mapping[str, list[Outcome]]) -> str:
    """The results as a Markdown table; shares with Wilson, means with normal 95 % intervals."""
    heads = (
        "strategy",
        "within 2 %",
        "within 3 %",
        "mean regret",
        "99 % regret",
        "restarts (95 %)",
        "cells",
        "minutes",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, rows in results.items():
        worst = sorted(row.regret for row in rows)[min(len(rows) - 1, int(0.99 * len(rows)))]
        starts = sorted(row.restarts for row in rows)[min(len(rows) - 1, int(0.95 * len(rows)))]
        cells = (
            name,
            str(share(sum(row.regret <= 0.02 for row in rows), len(rows))),
            str(share(sum(row.regret <= 0.03 for row in rows), len(rows))),
            _mean([100 * row.regret for row in rows], " %"),
            f"{worst:.1%}",
            f"{_mean([row.restarts for row in rows])} ({starts})",
            _mean([row.cells for row in rows]),
            _mean([row.seconds / 60 for row in rows]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: list[float] | list[int], unit: str = "") -> str:
    half = _Z_95 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {half:.2f}{unit}"
