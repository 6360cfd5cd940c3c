"""The two plots of the search: what a share of right choices costs, and how large errors are."""

from __future__ import annotations

import bisect
import statistics
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tests.bench.tuner.style import COLOURS, MUTED, plot
from tests.bench.tuner.table import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tests.bench.tuner.strategies import Outcome
    from tests.bench.tuner.table import Share

__all__ = ["draw", "frontier", "regrets"]

_OURS: Final = "search"
_MAIN: Final = {
    "static 2": COLOURS[6],
    "note 002 sweep": COLOURS[4],
    "sweep, 3 prompts": COLOURS[2],
    "LUCB": COLOURS[3],
    "search, memory unknown": COLOURS[5],
    "search": COLOURS[0],
}
"""Strategies whose regret is drawn, and their colours."""

_STARTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MISSES: Final = (0.05, 0.02, 0.01, 0.005, 0.002)
_MOST_MISSES: Final = 0.08
_LEAST_MISSES: Final = 0.0015
_GOAL_STARTS: Final = (1.0, 2.0)
_GOAL_MISSES: Final = 0.006
_NAMED_ON_THE_LEFT: Final = ("search", "sweep, stops at eviction", "sweep, 3 prompts")
"""Points with a neighbour on their right."""

_MOST_REGRET: Final = 0.08
_STEPS: Final = 160
_RAREST: Final = 5e-5


def frontier(results: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Share of machines within 2 % of the best depth against engine starts.

    Both axes are logarithmic, the share by what misses. Strategies that start no engine
    are left out.
    """
    with plot(path, 7.2, 4.6) as axes:
        axes.fill_between(_GOAL_STARTS, _LEAST_MISSES, _GOAL_MISSES, color=COLOURS[2], alpha=0.15)
        axes.annotate("goal", (1.03, _GOAL_MISSES * 0.92), color=COLOURS[2])
        for name, rows in results.items():
            starts = statistics.fmean(row.restarts for row in rows)
            if starts:
                _point(axes, name, starts, within(rows, 0.02))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(1, 40)
        axes.set_ylim(_MOST_MISSES, _LEAST_MISSES)
        axes.xaxis.set_major_locator(FixedLocator(_STARTS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_locator(FixedLocator(_MISSES))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * (1 - value):g} %"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("engine starts (mean)")
        axes.set_title("Machines on which the choice is within 2 % of the best depth")


def _point(axes: Axes, name: str, starts: float, hits: Share) -> None:
    miss, most, least = (max(1 - one, _LEAST_MISSES) for one in (hits.value, hits.low, hits.high))
    ours, left = name.startswith(_OURS), name in _NAMED_ON_THE_LEFT
    axes.errorbar(
        starts,
        miss,
        yerr=[[miss - least], [most - miss]],
        fmt="o" if ours else "s",
        color=COLOURS[0] if ours else MUTED,
        markersize=5,
        capsize=2,
        linewidth=1,
    )
    axes.annotate(
        name,
        (starts, miss),
        xytext=(-7 if left else 7, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize="small",
    )


def regrets(results: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Share of machines that lose more than x of the best depth's speed, main strategies."""
    limits = [_MOST_REGRET * step / _STEPS for step in range(_STEPS + 1)]
    with plot(path, 7.2, 4.6) as axes:
        for name, colour in _MAIN.items():
            if name not in results:
                continue
            losses = sorted(row.regret for row in results[name])
            shares = [1 - bisect.bisect_right(losses, limit) / len(losses) for limit in limits]
            kept = [(100 * x, y) for x, y in zip(limits, shares, strict=True) if y]
            axes.plot(
                *zip(*kept, strict=True),
                drawstyle="steps-post",
                label=name,
                color=colour,
                linewidth=2.0 if name == _OURS else 1.2,
            )
        for limit in (2, 3):
            axes.axvline(limit, color=MUTED, linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.set_ylim(_RAREST, 1)
        axes.set_xlim(0, 100 * _MOST_REGRET)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.set_xlabel("tokens per second given away against the best depth")
        axes.set_title("Machines on which more than that is given away")
        axes.legend()


def draw(results: Mapping[str, Sequence[Outcome]], folder: Path, suffix: str) -> list[Path]:
    """Both plots into a folder; ``suffix`` is svg, or png to look at. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"tuner_{name}.{suffix}" for name in ("frontier", "regret")]
    frontier(results, paths[0])
    regrets(results, paths[1])
    return paths
