"""Play worlds by hand: ``python -m tests.faults.sim [--trace] SEED`` or ``FIRST-LAST``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.sim.play import Played, SimulationError, play


def main() -> int:
    """Play what was asked for; 1 where a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="one seed, or the first and the last with a dash between")
    parser.add_argument("--trace", action="store_true", help="tell all that happened")
    parser.add_argument("--keep-going", action="store_true", help="do not end with one that fails")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    began, broken, played = time.process_time(), 0, []
    for seed in range(int(first), int(last or first) + 1):
        outcome = _outcome(seed)
        if given.trace:
            _say("\n".join(f"{at - 1000.0:10.3f}  {text}" for at, text in outcome.trace))
        if isinstance(outcome, Played):
            played.append(outcome)
            continue
        _say(str(outcome))
        broken += 1
        if not given.keep_going:
            break
    _say(
        f"{len(played)} worlds without a fault, {broken} with one: "
        f"{sum(one.turns for one in played)} steps, {sum(one.starts for one in played)} engine "
        f"starts, {sum(sum(one.ends.values()) for one in played)} requests, "
        f"{sum(one.virtual_s for one in played) / 3600:.1f} h of their time, "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 1 if broken else 0


def _outcome(seed: int) -> Played | SimulationError:
    try:
        return play(seed)
    except SimulationError as error:
        return error


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
