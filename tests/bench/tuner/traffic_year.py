"""A year on one machine: slow drift, regimes, idle nights, a power cap and a new engine.

Unlike in the scenarios of the design study the policy has to wait for an idle card, results
become stale twice, and it may ask for a measurement: that takes ``MEASURE_S`` and is lost if
a request comes in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.bench.tuner.fleet import DEEPEST
from tests.bench.tuner.traffic_rules import Ours, Reference, calibrate
from tests.bench.tuner.traffic_run import START_SD, Outcome, Requests, run
from tests.bench.tuner.traffic_world import STEP_SD, Scenario, Traffic, traffic
from tuner.live import KEPT
from tuner.types import Act

if TYPE_CHECKING:
    from tests.bench.tuner.fleet import Machine

YEAR: Final = Scenario(
    hours=8760, gap_s=120, regime_h=72, shift_sd=0.6, class_sd=0.2, night=1 / 3, walk_sd=0.05
)
IDLE_S: Final = 120.0
LOOK_S: Final = 1800.0
MEASURE_S: Final = 600.0


@dataclass(frozen=True)
class Epoch:
    """A stretch without a change of the machine; ``stale`` is what changed at its start."""

    machine: Machine
    world: Traffic
    stale: tuple[str, ...]


@dataclass(frozen=True)
class Year:
    """What a year brought.

    Attributes:
        regret: By rule, against the free oracle.
        switches: By rule that switches.
        wrong: Switches to a depth that was truly slower at that moment.
        measured: Measurements that our policy asked for and finished.
        aborted: Those that a request cut short.
        path: When ours changed the depth, in seconds, and to which.
        best: When the truly best depth changed, and to which.
    """

    regret: dict[str, float]
    switches: dict[str, int]
    wrong: dict[str, int]
    measured: int
    aborted: int
    path: tuple[tuple[float, int], ...]
    best: tuple[tuple[float, int], ...]


def epochs(machine: Machine, world: Scenario, rng: np.random.Generator) -> list[Epoch]:
    """A power cap after 35 % of the time makes plain steps 25 % slower and rows cheaper by a
    sixth; an engine update after 70 % changes the cost of rows by about 15 %.
    """
    capped = _changed(machine, 1.25, 0.85)
    updated = _changed(capped, 0.97, math.exp(float(rng.normal(0, 0.15))))
    parts = (
        (machine, 0.35, ()),
        (capped, 0.35, ("power_cap_w was 225 and is 150",)),
        (updated, 0.3, ("engine was b10434 and is b11434",)),
    )
    return [
        Epoch(which, traffic(which, replace(world, hours=world.hours * share), rng), stale)
        for which, share, stale in parts
    ]


def _changed(machine: Machine, plain: float, row: float) -> Machine:
    steps = tuple(
        tuple(steps[0] * plain * (1 + (s / steps[0] - 1) * row) for s in steps)
        for steps in machine.step_s
    )
    return replace(machine, step_s=steps)


def live(machine: Machine, seed: tuple[int, ...], world: Scenario = YEAR) -> Year:
    """One year under every rule."""
    rng = np.random.default_rng((*seed, 99))
    parts = epochs(machine, world, rng)
    known = calibrate(machine, rng)
    drawn = [
        Requests(part.machine, part.world, (*seed, number)) for number, part in enumerate(parts)
    ]
    oracle = sum(part.world.oracle_s() for part in parts)
    fixed = [sum(part.world.cost_s(k) for part in parts) for k in range(DEEPEST + 1)]
    again = [
        calibrate(part.machine, np.random.default_rng((*seed, n))) for n, part in enumerate(parts)
    ]
    spent = {
        "static 3": fixed[3],
        "static 2": fixed[2],
        "best static in hindsight": min(fixed),
        "bench choice, never switched": fixed[known.chosen],
        "bench choice, made again when stale": sum(
            part.world.cost_s(k.chosen if n else known.chosen)
            for n, (part, k) in enumerate(zip(parts, again, strict=True))
        ),
    }
    reference, depth = Reference(known, world.gap_s / (1 - world.night)), known.chosen
    old: list[Outcome] = []
    for number, requests in enumerate(drawn):
        noise = np.random.default_rng((*seed, 7, number))
        old.append(run(reference, requests, depth, known.switch_s, noise))
        depth = old[-1].path[-1][1] if old[-1].path else depth
    ours = _Keeper(Ours(known, world.gap_s / (1 - world.night)), known.chosen, seed)
    for number, (part, requests) in enumerate(zip(parts, drawn, strict=True)):
        ours.serve(part, requests, number, sum(p.world.regimes[-1].to_s for p in parts[:number]))
    spent["reference rule"] = sum(o.spent_s for o in old)
    spent["ours"] = ours.spent_s
    return Year(
        regret={name: value / oracle - 1 for name, value in spent.items()},
        switches={"reference rule": sum(o.switches for o in old), "ours": ours.switches},
        wrong={"reference rule": sum(o.wrong for o in old), "ours": ours.wrong},
        measured=ours.measured,
        aborted=ours.aborted,
        path=((0.0, known.chosen), *ours.path),
        best=_best(parts),
    )


class _Keeper:
    """Serves the requests of a year under our policy, which acts when the card is idle."""

    def __init__(self, rule: Ours, depth: int, seed: tuple[int, ...]) -> None:
        self.rule, self.depth, self.seed = rule, depth, seed
        self.spent_s = 0.0
        self.switches = self.wrong = self.measured = self.aborted = 0
        self.path: list[tuple[float, int]] = []
        self.rng = np.random.default_rng((*seed, 11))
        self.offset = float(self.rng.normal(0, START_SD))

    def serve(self, part: Epoch, requests: Requests, number: int, base_s: float) -> None:
        """One epoch; ``base_s`` is when it begins."""
        self.rule.stale = part.stale
        arrivals, regimes = part.world.arrivals, part.world.regimes
        noise = np.random.default_rng((*self.seed, 7, number)).normal(0, STEP_SD, len(arrivals))
        free_s = 0.0
        for index, a in enumerate(arrivals):
            took_s = a.tokens * regimes[a.regime].s_per_token[a.workload][self.depth]
            self.spent_s += took_s
            free_s = max(free_s, a.at_s) + took_s
            one = requests.served(index, self.depth, math.exp(self.offset + float(noise[index])))
            self.rule.learn(one, self.depth)
            last = index + 1 == len(arrivals)
            next_s = regimes[-1].to_s if last else arrivals[index + 1].at_s
            look_s = free_s + IDLE_S
            while look_s < next_s:
                at = (base_s + look_s, look_s - free_s, next_s - look_s)
                self._look(part, a.regime, at)
                look_s += LOOK_S

    def _look(self, part: Epoch, regime: int, at: tuple[float, float, float]) -> None:
        now_s, idle_s, left_s = at
        after = self.rule.decided(now_s, self.depth, idle_s)
        if self.rule.last is not None and self.rule.last.act is Act.MEASURE:
            if left_s < MEASURE_S:
                self.aborted += 1
                return
            self.measured += 1
            known = calibrate(part.machine, self.rng)
            keep = 1.0 if any("cap" in s for s in self.rule.stale) else KEPT
            self.rule.calibrated(known, f"calibration {self.measured}", keep)
            self.offset = float(self.rng.normal(0, START_SD))
            return
        if after == self.depth:
            return
        needs = part.world.regimes[regime].needs
        self.wrong += needs(after) > needs(self.depth)
        self.switches += 1
        self.spent_s += self.rule.known.switch_s
        self.offset = float(self.rng.normal(0, START_SD))
        self.depth = after
        self.path.append((now_s, after))


def _best(parts: list[Epoch]) -> tuple[tuple[float, int], ...]:
    out: list[tuple[float, int]] = []
    base_s = 0.0
    for part in parts:
        for regime in part.world.regimes:
            best = min(range(DEEPEST + 1), key=regime.needs)
            if not out or out[-1][1] != best:
                out.append((base_s + regime.from_s, best))
        base_s += part.world.regimes[-1].to_s
    return tuple(out)
