"""Simulated machines whose true speeds are known: text, acceptance, step cost, memory ceiling.

The prior is that of the design study: acceptances and row costs drawn around those of the
two studies, text that changes between two regimes, a depth from which layers are evicted.
Everything is drawn from the seed; the same machine has the same texts at every depth.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from tuner.plan import Ask, Cell, History, WorkloadPlan
from tuner.replay import Told
from tuner.types import Arm, Drafter, Evicted, Observation, Residency, Resident, Start

DEEPEST: Final = 5
WORKLOADS: Final = ("code", "long", "prose", "short")
_WORKLOAD_LOGIT: Final = (0.35, 0.0, -0.35, 0.0)
TOKENS: Final = 384
DWELL: Final = 25
"""Mean tokens until the text changes between its two regimes."""

RUN_SD: Final = 0.03
START_SD: Final = 0.01
HOT_SLOWDOWN: Final = (1.1, 1.4)

RESTART_S: Final = (20.0, 60.0)
CELL_S: Final = 23.0
"""Seconds of one repetition, the gate before it included."""

_CEILINGS: Final = (1, 2, 3, 4, 5)
_CEILING_WEIGHTS: Final = (0.12, 0.33, 0.22, 0.13, 0.20)

Cond = tuple[float, ...]


def arm(depth: int) -> Arm:
    """The simulated model at a depth."""
    return Arm(profile="model", drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth)


def plans(prompts: int) -> tuple[WorkloadPlan, ...]:
    """All workloads with this many prompts each."""
    return tuple(WorkloadPlan(name=name, prompts=prompts) for name in WORKLOADS)


def tokens_per_step(regimes: tuple[Cond, Cond], depth: int) -> float:
    """Long-run tokens per step of a text that changes between two regimes.

    A step has the acceptance of the regime it starts in. Regimes change per token, so the
    regime of the next step depends on how long this one was: a two-state chain.
    """
    means: list[float] = []
    leave: list[float] = []
    for cond in regimes:
        reach, mean, changed = 1.0, 0.0, 0.0
        for length in range(1, depth + 2):
            go_on = cond[length - 1] if length <= depth else 0.0
            ends = reach * (1 - go_on)
            mean += ends * length
            changed += ends * (1 - (1 - 2 / DWELL) ** length) / 2
            reach *= go_on
        means.append(mean)
        leave.append(changed)
    share = leave[1] / (leave[0] + leave[1])
    return share * means[0] + (1 - share) * means[1]


@dataclass(frozen=True)
class Walk:
    """What one reply showed at one depth."""

    steps: int
    accepted: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """One machine.

    Attributes:
        seed: Of its texts and of its noise.
        regimes: Conditional acceptances per workload in both regimes.
        step_s: Seconds per step by workload and depth, eviction included.
        ceiling: Deepest depth that fits.
        hot: Chance that a repetition is slowed down by heat.
        logs_read: Whether an eviction is seen.
    """

    seed: str
    regimes: tuple[tuple[Cond, Cond], ...]
    step_s: tuple[tuple[float, ...], ...]
    ceiling: int
    hot: float = 0.0
    logs_read: bool = True

    def tps(self, depth: int) -> float:
        """True tokens per second, mean over workloads."""
        speeds = [
            tokens_per_step(regimes, depth) / step[depth]
            for regimes, step in zip(self.regimes, self.step_s, strict=True)
        ]
        return sum(speeds) / len(speeds)

    def walk(self, workload: int, prompt: int, depth: int) -> Walk:
        """Decode a prompt; the text is the same at every depth."""
        kept = self.text(workload, prompt)
        accepted = [0] * depth
        at = steps = 0
        while at < TOKENS:
            taken = min(kept[at], depth)
            for position in range(taken):
                accepted[position] += 1
            at += taken + 1
            steps += 1
        return Walk(steps=steps, accepted=tuple(accepted))

    def text(self, workload: int, prompt: int) -> tuple[int, ...]:
        """Draft tokens that would be right if a draft started at each token."""
        rng = _rng(f"{self.seed}/{workload}/{prompt}")
        regime = int(rng.random() < 0.5)
        out: list[int] = []
        for _ in range(TOKENS):
            regime ^= rng.random() < 1 / DWELL
            right = 0
            for chance in self.regimes[workload][regime]:
                if rng.random() >= chance:
                    break
                right += 1
            out.append(right)
        return tuple(out)

    def resides(self, depth: int) -> Residency:
        """What the log says of a depth."""
        if depth > self.ceiling and self.logs_read:
            return Evicted(layers=depth - self.ceiling)
        return Resident()

    def run(self, ask: Ask, history: History) -> Told:
        """Start an arm; noise depends on the machine and the number of the start."""
        number = len(history.starts)
        rng = _rng(f"{self.seed}/start {number}")
        residency = self.resides(ask.arm.depth)
        start = Start(arm=ask.arm, start_id=f"{number}", residency=residency)
        seconds = rng.uniform(*RESTART_S)
        if isinstance(residency, Evicted):
            return Told(start=start, seconds=seconds)
        offset = rng.gauss(0.0, START_SD)
        found = tuple(self._observe(ask.arm, cell, start, offset, rng) for cell in ask.cells)
        return Told(start=start, observations=found, seconds=seconds + CELL_S * len(found))

    def _observe(
        self, which: Arm, cell: Cell, start: Start, offset: float, rng: random.Random
    ) -> Observation:
        workload = WORKLOADS.index(cell.workload)
        seen = self.walk(workload, cell.prompt, which.depth)
        noise = math.exp(rng.gauss(offset, RUN_SD))
        if rng.random() < self.hot:
            noise *= rng.uniform(*HOT_SLOWDOWN)
        return Observation(
            arm=which,
            workload=cell.workload,
            prompt=cell.prompt,
            repetition=cell.repetition,
            start_id=start.start_id,
            fingerprint="f",
            tokens=1 + seen.steps + sum(seen.accepted),
            decode_s=seen.steps * self.step_s[workload][which.depth] * noise,
            steps=seen.steps if which.depth else 0,
            drafted=seen.steps * which.depth,
            accepted=sum(seen.accepted),
            accepted_per_position=seen.accepted if which.depth else None,
            digest=f"{cell.workload}/{cell.prompt}",
            residency=start.residency,
        )


def machine(seed: str, number: int, *, hot: float = 0.0, logs_read: bool = True) -> Machine:
    """Draw a machine from the prior."""
    name = f"{seed}/{number}"
    rng = _rng(name)
    base = rng.gauss(_logit(0.89), 0.5)
    fall = rng.uniform(0.78, 1.0)
    ratios = [_within(fall + rng.uniform(-0.06, 0.03), 0.5, 1.02) for _ in range(DEEPEST - 1)]
    contrast = rng.uniform(0.2, 0.9)
    regimes: list[tuple[Cond, Cond]] = []
    for shift in _WORKLOAD_LOGIT:
        level = base + rng.gauss(shift, 0.2)
        regimes.append((_chain(level - contrast, ratios), _chain(level + contrast, ratios)))
    plain_s = 1 / rng.uniform(20.0, 45.0)
    row_cost = _within(math.exp(rng.gauss(math.log(0.38), 0.3)), 0.15, 0.9)
    ceiling = rng.choices(_CEILINGS, _CEILING_WEIGHTS)[0]
    slowdown = rng.uniform(1.6, 2.3)
    relative = [1.0]
    for _ in range(DEEPEST):
        relative.append(relative[-1] + row_cost * (1 + rng.gauss(0.0, 0.12)))
    for depth in range(ceiling + 1, DEEPEST + 1):
        relative[depth] *= slowdown + 0.15 * max(depth - ceiling - 1, 0)
    long_s = rng.uniform(1.0, 1.15)
    return Machine(
        seed=name,
        regimes=tuple(regimes),
        step_s=tuple(
            tuple(plain_s * (long_s if workload == "long" else 1.0) * r for r in relative)
            for workload in WORKLOADS
        ),
        ceiling=ceiling,
        hot=hot,
        logs_read=logs_read,
    )


def _chain(level: float, ratios: list[float]) -> Cond:
    out = [1 / (1 + math.exp(-level))]
    for ratio in ratios:
        out.append(_within(out[-1] * ratio, 0.02, 0.995))
    return tuple(out)


def _rng(name: str) -> random.Random:
    return random.Random(name)  # noqa: S311 - a simulation, no secret


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
