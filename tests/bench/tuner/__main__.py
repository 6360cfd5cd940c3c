"""Strategies that look for the best depth, on simulated machines.

``python -m tests.bench.tuner --machines N --seed S`` measures and prints a table;
``... table`` prints it from saved runs and ``... plot`` draws the plots of the documentation.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.host import machine
from tests.bench.tuner.compare import Conditions, measure
from tests.bench.tuner.results import Run, labelled, load, merged, save
from tests.bench.tuner.strategies import STRATEGIES
from tests.bench.tuner.table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PROG = "python -m tests.bench.tuner"
_MEMORY_UNKNOWN = "memory unknown"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, or show what was saved."""
    words = list(sys.argv[1:] if argv is None else argv)
    shows = {"table": _table, "plot": _plot}
    if words and words[0] in shows:
        shows[words[0]](words[1:])
    else:
        _measure(words)


def _measure(words: list[str]) -> None:
    """Print the command, the machine that ran it and the table."""
    parser = argparse.ArgumentParser(prog=_PROG, description=__doc__)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=1, help="processes; they change no number")
    parser.add_argument("--hot", type=float, default=0.0, help="share of repetitions in heat")
    parser.add_argument("--logs-unread", action="store_true", help="evictions are not seen")
    for name, which in (("bias", "all short steps"), ("tilt", "those below full depth")):
        drawn = f"error of {which} (log), drawn per machine"
        parser.add_argument(f"--{name}", type=float, default=0.0, metavar="SD", help=drawn)
        everywhere = f"error of {which} (log), the same everywhere"
        parser.add_argument(
            f"--{name}-fixed", type=float, default=0.0, metavar="X", help=everywhere
        )
    parser.add_argument(
        "--irregular", type=float, default=0.12, metavar="SD", help="of a row's cost"
    )
    parser.add_argument("--memory", choices=("known", "unknown"), help="only these searches")
    parser.add_argument("--only", nargs="+", choices=tuple(STRATEGIES), metavar="NAME")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep every outcome (JSON)")
    args = parser.parse_args(words)
    conditions = Conditions(
        hot=args.hot,
        logs_read=not args.logs_unread,
        bias=args.bias_fixed,
        bias_sd=args.bias,
        tilt=args.tilt_fixed,
        tilt_sd=args.tilt,
        irregular=args.irregular,
    )
    outcomes = measure(
        [name for name in args.only or STRATEGIES if _asked_for(name, args.memory)],
        machines=args.machines,
        seed=args.seed,
        conditions=conditions,
        jobs=args.jobs,
        progress=_progress(args.machines) if sys.stderr.isatty() else None,
    )
    run = Run.of(
        outcomes,
        command=f"{_PROG} {shlex.join(words)}",
        machine=machine(),
        seed=args.seed,
        conditions=conditions,
    )
    if args.save is not None:
        save(run, args.save)
    sys.stdout.write(f"{run.command}\n{run.machine}\n\n{table(outcomes)}\n")


def _asked_for(name: str, memory: str | None) -> bool:
    if memory is None or not name.startswith("search"):
        return True
    return (_MEMORY_UNKNOWN in name) == (memory == "unknown")


def _progress(machines: int) -> Callable[[int], None]:
    def show(done: int) -> None:
        end = "\n" if done == machines else ""
        sys.stderr.write(f"\r{done} of {machines} machines{end}")
        sys.stderr.flush()

    return show


def _table(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog=f"{_PROG} table")
    parser.add_argument("--results", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--fleets", action="store_true", help="name every row's fleet")
    args = parser.parse_args(words)
    named = labelled if args.fleets else merged
    sys.stdout.write(f"{table(named([load(path) for path in args.results]))}\n")


def _plot(words: list[str]) -> None:
    from tests.bench.tuner.plots import draw  # noqa: PLC0415 - matplotlib is not always there

    parser = argparse.ArgumentParser(prog=f"{_PROG} plot")
    parser.add_argument("--results", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--format", default="svg", choices=("svg", "png"))
    args = parser.parse_args(words)
    for path in draw(merged([load(one) for one in args.results]), args.out, args.format):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
