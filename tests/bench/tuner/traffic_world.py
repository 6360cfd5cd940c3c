"""Live traffic on simulated machines: regimes of class mix and acceptance, requests, truth.

The design study's worlds (TUNER.md section 3.6) on the machines of ``fleet``: requests arrive
at random; for some hours the class mix and a shift of all acceptances stay as they are, then
both are drawn anew. Requests are drawn in aggregated form, as binomials per position, with a
deviation of their own. The true speed of every depth in every regime is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.bench.tuner.fleet import DEEPEST, WORKLOADS, Machine, tokens_per_step
from tuner.acceptance import expected_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.bench.tuner.fleet import Cond

REQUEST_LOGIT_SD: Final = 0.25
STEP_SD: Final = 0.03
TOKENS_SD: Final = 0.8
LEAST_TOKENS: Final = 40
MIX_ALPHA: Final = 0.35
RUN_TOKENS: Final = 12.5
"""Mean tokens until the text leaves the regime it is in, per direction (``fleet.DWELL`` / 2)."""


@dataclass(frozen=True)
class Scenario:
    """One kind of traffic.

    Attributes:
        hours: How long it lasts.
        gap_s: Mean seconds between two requests while people are awake.
        regime_h: Mean hours until mix and shift change.
        shift_sd: Standard deviation, in logits, of the shift common to all classes.
        class_sd: The same of a shift of each class alone.
        night: Share of the day without requests.
        walk_sd: Standard deviation per day of a slow walk of the common shift.
    """

    hours: float
    gap_s: float
    regime_h: float
    shift_sd: float = 0.0
    class_sd: float = 0.0
    night: float = 0.0
    walk_sd: float = 0.0


SCENARIOS: Final = {
    "mix": Scenario(hours=72, gap_s=45, regime_h=8),
    "shift .6": Scenario(hours=72, gap_s=15, regime_h=8, shift_sd=0.6),
    "shift 1.2": Scenario(hours=72, gap_s=15, regime_h=24, shift_sd=1.2),
    "stationary": Scenario(hours=168, gap_s=15, regime_h=1e6),
}


@dataclass(frozen=True)
class Regime:
    """A stretch of time in which nothing changes.

    Attributes:
        from_s: Its start.
        to_s: Its end.
        mix: Share of the requests by workload.
        conds: Conditional acceptances by workload in both text regimes.
        s_per_token: True seconds per token by workload and depth.
    """

    from_s: float
    to_s: float
    mix: tuple[float, ...]
    conds: tuple[tuple[Cond, Cond], ...]
    s_per_token: tuple[tuple[float, ...], ...]

    def needs(self, depth: int) -> float:
        """True seconds per token of the mix."""
        return sum(p * row[depth] for p, row in zip(self.mix, self.s_per_token, strict=True))


@dataclass(frozen=True)
class Arrival:
    """One request: when, what, how long, and in which regime."""

    at_s: float
    workload: int
    tokens: int
    regime: int


@dataclass(frozen=True)
class Traffic:
    """All that happens on one machine."""

    regimes: tuple[Regime, ...]
    arrivals: tuple[Arrival, ...]

    def cost_s(self, depth: int) -> float:
        """Seconds that all requests take at one depth."""
        return sum(
            a.tokens * self.regimes[a.regime].s_per_token[a.workload][depth] for a in self.arrivals
        )

    def oracle_s(self) -> float:
        """The same of who switches to the best depth at every change of regime, for free."""
        sums = np.zeros((len(self.regimes), DEEPEST + 1))
        for a in self.arrivals:
            sums[a.regime] += a.tokens * np.array(self.regimes[a.regime].s_per_token[a.workload])
        return float(sums.min(axis=1).sum())


def traffic(machine: Machine, world: Scenario, rng: np.random.Generator) -> Traffic:
    """Draw the regimes and the requests of a machine."""
    end_s, at_s = world.hours * 3600, 0.0
    regimes: list[Regime] = []
    walk = 0.0
    while at_s < end_s:
        length_s = float(rng.exponential(world.regime_h * 3600))
        shift = float(rng.normal(0, world.shift_sd)) if world.shift_sd else 0.0
        walk += float(rng.normal(0, world.walk_sd)) * math.sqrt(length_s / 86400)
        classes = rng.normal(0, world.class_sd, len(WORKLOADS))
        mix = tuple(float(p) for p in rng.dirichlet([MIX_ALPHA] * len(WORKLOADS)))
        shifts = [shift + walk + float(c) for c in classes]
        regimes.append(_regime(machine, (at_s, min(end_s, at_s + length_s)), mix, shifts))
        at_s += length_s
    arrivals: list[Arrival] = []
    for index, regime in enumerate(regimes):
        times = _times(world, regime, rng)
        kinds = rng.choice(len(WORKLOADS), len(times), p=regime.mix)
        sizes = rng.lognormal(math.log(500) - TOKENS_SD**2 / 2, TOKENS_SD, len(times))
        arrivals += [
            Arrival(float(t), int(w), max(LEAST_TOKENS, int(n)), index)
            for t, w, n in zip(times, kinds, sizes, strict=True)
        ]
    return Traffic(tuple(regimes), tuple(arrivals))


def _times(world: Scenario, regime: Regime, rng: np.random.Generator) -> list[float]:
    count = rng.poisson((regime.to_s - regime.from_s) / world.gap_s)
    times = np.sort(rng.uniform(regime.from_s, regime.to_s, count))
    return [float(t) for t in times if (t % 86400) >= world.night * 86400]


def _regime(
    machine: Machine, span: tuple[float, float], mix: tuple[float, ...], shifts: Sequence[float]
) -> Regime:
    conds = tuple(
        (_shifted(pair[0], by), _shifted(pair[1], by))
        for pair, by in zip(machine.regimes, shifts, strict=True)
    )
    return Regime(
        from_s=span[0],
        to_s=span[1],
        mix=mix,
        conds=conds,
        s_per_token=tuple(
            tuple(row[k] / tokens_per_step(pair, k) for k in range(DEEPEST + 1))
            for pair, row in zip(conds, machine.step_s, strict=True)
        ),
    )


def _shifted(cond: Cond, by: float) -> Cond:
    if not by:
        return cond
    return tuple(1 / (1 + math.exp(-by) * (1 - a) / a) for a in cond)


@dataclass(frozen=True)
class Counts:
    """What the engine counts of many requests of one workload in one regime at one depth."""

    steps: NDArray[np.int64]
    hits: NDArray[np.int64]


def sample(
    regime: Regime, workload: int, depth: int, tokens: NDArray[np.int64], rng: np.random.Generator
) -> Counts:
    """Draw the counters of requests of these lengths, whatever their order.

    Steps are shared among both text regimes with the variance of runs of ``RUN_TOKENS``; each
    request deviates by ``REQUEST_LOGIT_SD`` as a whole.
    """
    pair = regime.conds[workload]
    expected = tokens_per_step(pair, depth)
    steps = np.maximum(1, (tokens / expected).astype(np.int64))
    if depth == 0:
        return Counts(steps, np.zeros((len(tokens), 0), dtype=np.int64))
    first, second = (expected_tokens(cond[:depth]) for cond in pair)
    share = (expected - second) / (first - second) if first != second else 0.5
    runs = np.maximum(1.0, steps * expected / (2 * RUN_TOKENS))
    share_of = rng.beta(share * runs + 1e-3, (1 - share) * runs + 1e-3)
    split = rng.binomial(steps, share_of)
    own = rng.normal(0, REQUEST_LOGIT_SD, len(tokens))
    hits = np.zeros((len(tokens), depth), dtype=np.int64)
    for cond, alive in ((pair[0], split), (pair[1], steps - split)):
        left = alive
        for place in range(depth):
            odds = cond[place] / (1 - cond[place]) * np.exp(own)
            left = rng.binomial(left, odds / (1 + odds))
            hits[:, place] += left
    return Counts(steps, hits)
