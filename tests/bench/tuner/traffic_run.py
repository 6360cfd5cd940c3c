"""Run a rule through the traffic of a machine and count what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.bench.tuner.traffic_rules import Served
from tests.bench.tuner.traffic_world import STEP_SD, sample

if TYPE_CHECKING:
    from tests.bench.tuner.fleet import Machine
    from tests.bench.tuner.traffic_rules import Rule
    from tests.bench.tuner.traffic_world import Counts, Traffic

START_SD: Final = 0.01


@dataclass(frozen=True)
class Outcome:
    """What a rule did.

    Attributes:
        spent_s: Seconds of decoding and of switching.
        switches: Switches.
        wrong: Those to a depth that was truly slower on the traffic of that moment.
        path: When it switched and to which depth.
    """

    spent_s: float
    switches: int
    wrong: int
    path: tuple[tuple[float, int], ...]


class Requests:
    """Counters of a machine's requests at any depth, drawn one regime and depth at a time."""

    def __init__(self, machine: Machine, world: Traffic, seed: tuple[int, ...]) -> None:
        self.machine, self.world, self.seed = machine, world, seed
        self.places: dict[tuple[int, int], list[int]] = {}
        self.place: list[int] = []
        for index, a in enumerate(world.arrivals):
            group = self.places.setdefault((a.regime, a.workload), [])
            self.place.append(len(group))
            group.append(index)
        self.drawn: dict[tuple[int, int, int], Counts] = {}

    def served(self, index: int, depth: int, factor: float) -> Served:
        """What the engine says of a request at a depth; ``factor`` is on the step time."""
        a = self.world.arrivals[index]
        key = (a.regime, a.workload, depth)
        if key not in self.drawn:
            tokens = np.array(
                [self.world.arrivals[i].tokens for i in self.places[key[:2]]], dtype=np.int64
            )
            rng = np.random.default_rng((*self.seed, *key))
            regime = self.world.regimes[a.regime]
            self.drawn[key] = sample(regime, a.workload, depth, tokens, rng)
        counts = self.drawn[key]
        place = self.place[index]
        steps = int(counts.steps[place])
        return Served(
            at_s=a.at_s,
            workload=a.workload,
            tokens=a.tokens,
            steps=steps,
            hits=tuple(int(n) for n in counts.hits[place]),
            decode_s=steps * self.machine.step_s[a.workload][depth] * factor,
        )


def run(
    rule: Rule, requests: Requests, start: int, switch_s: float, rng: np.random.Generator
) -> Outcome:
    """Serve all requests under a rule; a switch costs its seconds and a new start's offset."""
    world = requests.world
    depth, spent_s, wrong = start, 0.0, 0
    path: list[tuple[float, int]] = []
    offset = float(rng.normal(0, START_SD))
    noise = rng.normal(0, STEP_SD, len(world.arrivals))
    for index, a in enumerate(world.arrivals):
        regime = world.regimes[a.regime]
        spent_s += a.tokens * regime.s_per_token[a.workload][depth]
        one = requests.served(index, depth, math.exp(offset + float(noise[index])))
        after = rule.after(one, depth)
        if after != depth:
            wrong += regime.needs(after) > regime.needs(depth)
            path.append((a.at_s, after))
            spent_s += switch_s
            offset = float(rng.normal(0, START_SD))
            depth = after
    return Outcome(spent_s, len(path), wrong, tuple(path))
