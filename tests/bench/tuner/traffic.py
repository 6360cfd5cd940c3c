"""``python -m tests.bench.tuner.traffic [scenarios|year|cusum|show]``: live traffic, simulated.

``scenarios`` runs the design study's worlds under every rule, ``year`` 8760 h of changing
traffic, ``cusum`` the detectors. ``--save`` keeps the outcomes for ``traffic_plots`` and for
``show``, which prints several files as one table.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.bench.host import machine as host
from tests.bench.tuner import traffic_cusum, traffic_year
from tests.bench.tuner.fleet import DEEPEST, machine
from tests.bench.tuner.table import mean, quantile
from tests.bench.tuner.traffic_rules import Ema, Ours, Reference, calibrate
from tests.bench.tuner.traffic_run import Requests, run
from tests.bench.tuner.traffic_world import SCENARIOS, traffic
from tests.bench.tuner.traffic_year import Year

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.tuner.traffic_rules import Rule
    from tests.bench.tuner.traffic_world import Scenario

OURS: Final = "ours"
RIVALS: Final = ("argmin, no hysteresis", "EMA steps of one")
FEWEST_REQUESTS: Final = 50


@dataclass(frozen=True)
class Result:
    """What one rule did on one machine.

    Attributes:
        rule: Its name.
        regret: Time spent over that of a free oracle, minus one.
        switches: Switches.
        wrong: Those to a depth that was truly slower at that moment.
    """

    rule: str
    regret: float
    switches: int = 0
    wrong: int = 0


def live(seed: int, number: int, world: Scenario, *, rivals: bool) -> list[Result]:
    """One machine under every rule; empty if hardly anybody came."""
    which = machine(str(seed), number)
    rng = np.random.default_rng((seed, 99, number))
    happens = traffic(which, world, rng)
    if len(happens.arrivals) < FEWEST_REQUESTS:
        return []
    known = calibrate(which, rng)
    requests = Requests(which, happens, (seed, number))
    oracle = happens.oracle_s()
    out = [
        Result("static 3", happens.cost_s(3) / oracle - 1),
        Result("static 2", happens.cost_s(2) / oracle - 1),
        Result(
            "best static in hindsight",
            min(happens.cost_s(k) for k in range(DEEPEST + 1)) / oracle - 1,
        ),
        Result("bench choice, never switched", happens.cost_s(known.chosen) / oracle - 1),
    ]
    rules: dict[str, Rule] = {
        "reference rule": Reference(known, world.gap_s),
        OURS: Ours(known, world.gap_s),
    }
    if rivals:
        rules |= {
            RIVALS[0]: Reference(known, world.gap_s, hysteresis=False),
            RIVALS[1]: Ema(known),
        }
    for name, rule in rules.items():
        noise = np.random.default_rng((seed, 7, number))
        done = run(rule, requests, known.chosen, known.switch_s, noise)
        out.append(Result(name, done.spent_s / oracle - 1, done.switches, done.wrong))
    return out


def years(seed: int, numbers: range, hours: float | None) -> list[Year]:
    """A year on each of these machines."""
    world = replace(traffic_year.YEAR, hours=hours or traffic_year.YEAR.hours)
    return [traffic_year.live(machine(str(seed), n), (seed, n), world) for n in numbers]


@dataclass
class Saved:
    """What a run leaves on disk.

    Attributes:
        worlds: Results by scenario.
        years: Years.
    """

    worlds: dict[str, list[Result]] = field(default_factory=dict)
    years: list[Year] = field(default_factory=list)


def merged(paths: Sequence[Path]) -> Saved:
    """All outcomes of several files, which must be of different machines."""
    out = Saved()
    for path in paths:
        content = json.loads(path.read_text())
        for name, rows in content["worlds"].items():
            out.worlds.setdefault(name, []).extend(Result(**row) for row in rows)
        out.years += [Year(**year) for year in content["years"]]
    return out


def table(results: Sequence[Result]) -> str:
    """One row per rule."""
    lines = [
        "| rule | machines | regret % | 95 % quantile | switches | wrong |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r.rule for r in results):
        rows = [r for r in results if r.rule == name]
        regrets = [100 * r.regret for r in rows]
        switches, wrong = sum(r.switches for r in rows), sum(r.wrong for r in rows)
        lines.append(
            f"| {name} | {len(rows)} | {mean(regrets)} | {quantile(regrets, 0.95):.2f} "
            f"| {switches / len(rows):.2f} | {wrong} of {switches} |"
        )
    lines.append(_paired(results))
    return "\n".join(lines)


def _paired(results: Sequence[Result]) -> str:
    """Ours against the others on the same machines, which is what the comparison rests on."""
    ours = [r.regret for r in results if r.rule == OURS]
    parts: list[str] = []
    for name in dict.fromkeys(r.rule for r in results):
        theirs = [r.regret for r in results if r.rule == name]
        if name != OURS and len(theirs) == len(ours):
            differences = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
            parts.append(f"{name} {mean(differences)}")
    return "\nours minus, in points on the same machines: " + "; ".join(parts)


def year_table(lived: Sequence[Year]) -> str:
    """One row per rule, and what ours measured."""
    rows = [
        Result(name, regret, one.switches.get(name, 0), one.wrong.get(name, 0))
        for one in lived
        for name, regret in one.regret.items()
    ]
    measured, aborted = (mean([getattr(y, k) for y in lived]) for k in ("measured", "aborted"))
    return f"{table(rows)}\n\nours measured again {measured} times; cut short {aborted} times"


def main() -> None:
    """Print the command, the machine that ran it and the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.traffic")
    parser.add_argument(
        "what", nargs="?", default="scenarios", choices=("scenarios", "year", "cusum", "show")
    )
    parser.add_argument("saved", nargs="*", type=Path, help="files to show together")
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--rivals", type=int, default=10, help="machines for the two rivals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first machine")
    parser.add_argument("--scenario", action="append", choices=tuple(SCENARIOS))
    parser.add_argument("--hours", type=float, help="instead of those of the scenario")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sys.stdout.write(f"python -m tests.bench.tuner.traffic {' '.join(sys.argv[1:])}\n{host()}\n")
    if args.what == "cusum":
        sys.stdout.write(f"\n{traffic_cusum.table(args.seed, args.machines)}\n")
        return
    numbers = range(args.first, args.first + args.machines)
    if args.what == "show":
        found = merged(args.saved)
    elif args.what == "year":
        found = Saved(years=years(args.seed, numbers, args.hours))
    else:
        found = Saved()
        for name in args.scenario or SCENARIOS:
            world = replace(SCENARIOS[name], hours=args.hours or SCENARIOS[name].hours)
            found.worlds[name] = [
                one for n in numbers for one in live(args.seed, n, world, rivals=n < args.rivals)
            ]
    for name, results in found.worlds.items():
        sys.stdout.write(f"\n{name}\n\n{table(results)}\n")
    if found.years:
        sys.stdout.write(f"\n{year_table(found.years)}\n")
    if args.save is not None:
        args.save.write_text(json.dumps(asdict(found), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
