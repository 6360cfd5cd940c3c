"""``python -m tests.bench.tuner --machines N --seed S``: strategies on simulated machines."""

from __future__ import annotations

import argparse
import sys

from tests.bench.__main__ import machine
from tests.bench.tuner.compare import STRATEGIES, measure, table


def main() -> None:
    """Print the command, the machine that ran it and the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner", description=__doc__)
    parser.add_argument("--machines", type=int, default=200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--hot", type=float, default=0.0, help="share of repetitions in heat")
    parser.add_argument("--logs-unread", action="store_true", help="evictions are not seen")
    parser.add_argument("--only", action="append", choices=tuple(STRATEGIES), metavar="STRATEGY")
    args = parser.parse_args()
    results = measure(
        args.only or STRATEGIES,
        machines=args.machines,
        seed=args.seed,
        hot=args.hot,
        logs_read=not args.logs_unread,
    )
    sys.stdout.write(f"{' '.join(sys.argv[1:])}\n{machine()}\n\n{table(results)}\n")


if __name__ == "__main__":
    main()
