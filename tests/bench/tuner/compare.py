"""Strategies over a fleet of simulated machines, on one core or several."""

from __future__ import annotations

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.tuner.fleet import Machine, machine
from tests.bench.tuner.strategies import STRATEGIES, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Conditions", "measure"]

_CHUNK = 20
"""Machines that a process is given at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What differs from the documented prior; the defaults are the prior.

    Attributes:
        hot: Share of repetitions that heat slows down.
        logs_read: Whether an eviction is seen in the log.
        bias: Error of the logarithm of every short step against steady steps.
        bias_sd: Standard deviation of a further one, drawn once per machine.
        tilt: Such an error of all short steps but those at full depth.
        tilt_sd: Standard deviation of a further one, drawn once per machine.
        irregular: Standard deviation of a row's cost against the machine's mean row cost.
    """

    hot: float = 0.0
    logs_read: bool = True
    bias: float = 0.0
    bias_sd: float = 0.0
    tilt: float = 0.0
    tilt_sd: float = 0.0
    irregular: float = 0.12

    def machine(self, seed: str, number: int) -> Machine:
        """Draw a machine."""
        return machine(
            seed,
            number,
            hot=self.hot,
            logs_read=self.logs_read,
            bias=self.bias,
            bias_sd=self.bias_sd,
            tilt=self.tilt,
            tilt_sd=self.tilt_sd,
            irregular=self.irregular,
        )


def measure(
    names: Iterable[str],
    *,
    machines: int,
    seed: str,
    conditions: Conditions | None = None,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, list[Outcome]]:
    """Run strategies over the same machines; the number of processes changes nothing.

    Args:
        names: Which of ``STRATEGIES``.
        machines: How many machines.
        seed: Of the fleet.
        conditions: Of the fleet; by default the documented prior.
        jobs: Processes; 1 runs here.
        progress: Told the number of finished machines after each.

    Returns:
        Outcomes by strategy, in the order of the machines.
    """
    wanted = tuple(names)
    run = functools.partial(_run, wanted, seed, conditions or Conditions())
    out: dict[str, list[Outcome]] = {name: [] for name in wanted}

    def take(number: int, outcomes: tuple[Outcome, ...]) -> None:
        for name, outcome in zip(wanted, outcomes, strict=True):
            out[name].append(outcome)
        if progress is not None:
            progress(number)

    if jobs == 1:
        for number in range(machines):
            take(number + 1, run(number))
        return out
    # Fresh processes: one that is forked from a process with threads may hang.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=spawn) as pool:
        for number, outcomes in enumerate(pool.map(run, range(machines), chunksize=_CHUNK)):
            take(number + 1, outcomes)
    return out


def _run(
    names: tuple[str, ...], seed: str, conditions: Conditions, number: int
) -> tuple[Outcome, ...]:
    """All strategies on one machine, one after the other: its texts are made once."""
    one = conditions.machine(seed, number)
    return tuple(STRATEGIES[name](one) for name in names)
