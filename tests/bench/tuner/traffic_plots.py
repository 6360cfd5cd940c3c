"""The two plots of live traffic: regret by world and rule, and the depths of one year.

``python -m tests.bench.tuner.traffic_plots SAVED... --into docs/images`` draws what
``traffic --save`` kept.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tests.bench.tuner.style import COLOURS, INK, MUTED, plot
from tests.bench.tuner.table import mean
from tests.bench.tuner.traffic import merged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from tests.bench.tuner.traffic import Result
    from tests.bench.tuner.traffic_year import Year

    Rows = Sequence[Result]

RULES: Final = {
    "static 2": COLOURS[6],
    "EMA steps of one": COLOURS[3],
    "argmin, no hysteresis": COLOURS[4],
    "bench choice, never switched": COLOURS[5],
    "best static in hindsight": COLOURS[2],
    "reference rule": COLOURS[1],
    "ours": COLOURS[0],
}
TITLES: Final = {
    "stationary": "nothing changes",
    "mix": "the mix changes",
    "shift .6": "mix and acceptance change, sd 0.6",
    "shift 1.2": "mix and acceptance change, sd 1.2",
}
TICKS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
LEAST: Final = 0.03
DAY_S: Final = 86400.0
CHANGES: Final = ((0.35, "power cap"), (0.7, "engine update"))


def regrets(worlds: Mapping[str, Rows], path: Path) -> None:
    """Mean regret with its 95 % interval, one row of points per world; logarithmic."""
    order = [name for name in TITLES if name in worlds]
    with plot(path, 7.2, 4.2) as axes:
        for number, (rule, colour) in enumerate(RULES.items()):
            _points(axes, [worlds[name] for name in order], (rule, colour, number))
        axes.set_xscale("log")
        axes.set_xlim(LEAST, 80)
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(range(len(order)), [TITLES[name] for name in order])
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.set_title("Time lost against switching for free to the best depth")
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.1), ncols=4, fontsize="small")


def _points(axes: Axes, worlds: Sequence[Rows], rule: tuple[str, str, int]) -> None:
    name, colour, number = rule
    xs: list[float] = []
    ys: list[float] = []
    for place, rows in enumerate(worlds):
        values = [100 * r.regret for r in rows if r.rule == name]
        if not values:
            continue
        found = mean(values)
        y = place + (number - (len(RULES) - 1) / 2) * 0.1
        low = max(found.value - found.half, LEAST)
        axes.plot([low, found.value + found.half], [y, y], color=colour, linewidth=1.2)
        xs.append(max(found.value, LEAST))
        ys.append(y)
    axes.plot(xs, ys, "o", color=colour, markersize=5, label=name)


def year(years: Sequence[Year], path: Path) -> None:
    """Our depth and the truly best one over the year, on the machine of the median regret."""
    regret = [y.regret["ours"] for y in years]
    one = years[regret.index(statistics.median_low(regret))]
    end_s = 8760 * 3600.0
    with plot(path, 7.2, 2.8) as axes:
        for name, steps, colour, width in (
            ("truly best depth", one.best, MUTED, 0.7),
            ("depth that ran", one.path, COLOURS[0], 1.8),
        ):
            days = [s / DAY_S for s, _ in steps] + [end_s / DAY_S]
            depths = [d for _, d in steps]
            axes.step(
                days, [*depths, depths[-1]], where="post", color=colour, linewidth=width, label=name
            )
        deepest = max(d for _, d in (*one.best, *one.path))
        for share, what in CHANGES:
            axes.axvline(share * 365, color=INK, linewidth=0.7, linestyle=":")
            axes.annotate(what, (share * 365 + 2, deepest + 0.45), fontsize="small")
        axes.set_ylim(-0.3, deepest + 0.8)
        axes.set_yticks(range(deepest + 1))
        axes.set_xlim(0, 365)
        axes.set_xlabel("day")
        axes.set_ylabel("draft depth")
        lost = 100 * one.regret["ours"]
        axes.set_title(f"A year on one machine: {lost:.2f} % lost, the median of {len(years)}")
        axes.legend(loc="lower left", fontsize="small", ncols=2)


def main() -> None:
    """Draw all that the files hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.traffic_plots")
    parser.add_argument("saved", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    found = merged(args.saved)
    args.into.mkdir(parents=True, exist_ok=True)
    if found.worlds:
        regrets(found.worlds, args.into / "live_regret.svg")
    if found.years:
        year(found.years, args.into / "live_year.svg")


if __name__ == "__main__":
    main()
