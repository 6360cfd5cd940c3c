"""Simulated machines whose true speeds are known: text, acceptance, step cost, memory ceiling.

The prior is that of the design study: acceptances and row costs drawn around those of the
two studies, text that changes between two regimes, a depth from which layers are evicted.
Everything is drawn from the seed; the same machine has the same texts at every depth.

A short step shows what an engine shows (``tuner.types.ShortStep``): at depth k it drafts k
tokens whatever it verifies, so the time at another depth has to be reconstructed. Its plain
step also runs the head's catch-up, which depth 0 does not have.
"""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass
from typing import Final

from tuner.plan import Ask, Cell, History, WorkloadPlan
from tuner.replay import Told
from tuner.types import (
    Arm,
    Drafter,
    Evicted,
    Observation,
    Residency,
    Resident,
    ShortStep,
    Start,
)

DEEPEST: Final = 5
WORKLOADS: Final = ("code", "long", "prose", "short")
_WORKLOAD_LOGIT: Final = (0.35, 0.0, -0.35, 0.0)
TOKENS: Final = 384
DWELL: Final = 25
"""Mean tokens until the text changes between its two regimes."""

RUN_SD: Final = 0.03
START_SD: Final = 0.01
HOT_SLOWDOWN: Final = (1.1, 1.4)
SHORT_SD: Final = 1.5 * RUN_SD
"""Noise of one short step: the mean of 12 has 1.3 %."""

DRAFT_SHARE: Final = (0.05, 0.30)
"""Share of a row's cost that drafts the token; TUNER.md 3.3 infers about 15 %."""

CATCH_UP: Final = (0.0, 0.04)
"""What a plain step costs more in an engine that drafts; TUNER.md 3.2 infers 2 % of 27B."""

RESTART_S: Final = (20.0, 60.0)
CELL_S: Final = 23.0
"""Seconds of one repetition, the gate before it included."""

NEW_SHAPE: Final = (0.0, 0.60)
NEW_SHAPE_SPREAD: Final = (0.75, 1.25)
"""What a step of a new batch shape takes longer, as a share of a plain step, and what a depth
multiplies it by. Every short step with rows is one: 0.34 to 0.57 were measured on an H200."""

SHORT_STEP_S: Final = 0.5
"""Seconds of one short step: its reply, the tail of its prompt and replies that miss."""

_KEPT_TEXTS: Final = 512
_KEPT_WALKS: Final = 4096
_SHORT_CONTEXT: Final = 512

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
        resident_s: Seconds per step by depth as if all depths fitted; workload "code".
        draft_s: Seconds that drafting one token takes.
        catch_up_s: What a plain step takes longer in an engine that drafts.
        new_shape_s: What a short step with rows takes longer than a steady one, by depth.
        hot: Chance that a repetition is slowed down by heat.
        logs_read: Whether an eviction is seen.
        bias: Error of the logarithm of every short step against steady steps.
        tilt: The same, of all short steps but those at full depth.
    """

    seed: str
    regimes: tuple[tuple[Cond, Cond], ...]
    step_s: tuple[tuple[float, ...], ...]
    ceiling: int
    resident_s: tuple[float, ...]
    draft_s: float
    catch_up_s: float
    new_shape_s: tuple[float, ...]
    hot: float = 0.0
    logs_read: bool = True
    bias: float = 0.0
    tilt: float = 0.0

    def tps(self, depth: int) -> float:
        """True tokens per second, mean over workloads."""
        speeds = [
            tokens_per_step(regimes, depth) / step[depth]
            for regimes, step in zip(self.regimes, self.step_s, strict=True)
        ]
        return sum(speeds) / len(speeds)

    def walk(self, workload: int, prompt: int, depth: int) -> Walk:
        """Decode a prompt; the text is the same at every depth."""
        return _walk(self.seed, self.regimes[workload], workload, prompt, depth)

    def short_s(self, depth: int, rows: int) -> float:
        """True seconds of a short step in an engine of this depth, without noise and bias."""
        slowdown = self.step_s[0][depth] / self.resident_s[depth]
        if depth and rows == 0:
            return slowdown * (self.resident_s[0] + self.catch_up_s)
        extra_s = (depth - rows) * self.draft_s + (self.new_shape_s[depth] if rows else 0.0)
        return slowdown * (self.resident_s[rows] + extra_s)

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
        short = self._short(ask, start, offset)
        return Told(
            start=start,
            observations=found,
            short_steps=short,
            seconds=seconds + CELL_S * len(found) + SHORT_STEP_S * len(short),
        )

    def _short(self, ask: Ask, start: Start, offset: float) -> tuple[ShortStep, ...]:
        rng = _rng(f"{self.seed}/short steps {start.start_id}")
        depth = ask.arm.depth
        return tuple(
            ShortStep(
                arm=ask.arm,
                start_id=start.start_id,
                fingerprint="f",
                rows=rows,
                step_s=self.short_s(depth, rows)
                * math.exp(
                    rng.gauss(offset + self.bias + (self.tilt if rows < depth else 0.0), SHORT_SD)
                ),
                context_tokens=_SHORT_CONTEXT,
            )
            for _ in range(ask.short_steps)
            for rows in range(depth + 1)
        )

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


def machine(
    seed: str,
    number: int,
    *,
    hot: float = 0.0,
    logs_read: bool = True,
    bias: float = 0.0,
    bias_sd: float = 0.0,
    tilt: float = 0.0,
    tilt_sd: float = 0.0,
    irregular: float = 0.12,
) -> Machine:
    """Draw a machine from the prior.

    Args:
        seed: Of the fleet.
        number: Of the machine in the fleet.
        hot: Chance that a repetition is slowed down by heat.
        logs_read: Whether an eviction is seen.
        bias: Log error of the short steps of every machine.
        bias_sd: Deviation of a further one, drawn per machine.
        tilt: Log error of the short steps of every machine, but those at full depth.
        tilt_sd: Deviation of a further one, drawn per machine.
        irregular: Deviation of a row's cost against the machine's mean row cost.
    """
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
        relative.append(relative[-1] + row_cost * (1 + rng.gauss(0.0, irregular)))
    resident_s = tuple(plain_s * r for r in relative)
    for depth in range(ceiling + 1, DEEPEST + 1):
        relative[depth] *= slowdown + 0.15 * max(depth - ceiling - 1, 0)
    long_s = rng.uniform(1.0, 1.15)
    short = _rng(f"{name}/short")
    draft_s = plain_s * row_cost * short.uniform(*DRAFT_SHARE)
    catch_up_s = plain_s * short.uniform(*CATCH_UP)
    new_shape_s = plain_s * short.uniform(*NEW_SHAPE)
    return Machine(
        seed=name,
        regimes=tuple(regimes),
        step_s=tuple(
            tuple(plain_s * (long_s if workload == "long" else 1.0) * r for r in relative)
            for workload in WORKLOADS
        ),
        ceiling=ceiling,
        resident_s=resident_s,
        draft_s=draft_s,
        catch_up_s=catch_up_s,
        new_shape_s=tuple(
            new_shape_s * short.uniform(*NEW_SHAPE_SPREAD) for _ in range(DEEPEST + 1)
        ),
        hot=hot,
        logs_read=logs_read,
        bias=bias + short.gauss(0.0, bias_sd),
        tilt=tilt + short.gauss(0.0, tilt_sd),
    )


@functools.lru_cache(maxsize=_KEPT_TEXTS)
def _text(seed: str, regimes: tuple[Cond, Cond], workload: int, prompt: int) -> tuple[int, ...]:
    """Draft tokens that would be right if a draft started at each token."""
    rng = _rng(f"{seed}/{workload}/{prompt}")
    regime = int(rng.random() < 0.5)
    out: list[int] = []
    for _ in range(TOKENS):
        regime ^= rng.random() < 1 / DWELL
        right = 0
        for chance in regimes[regime]:
            if rng.random() >= chance:
                break
            right += 1
        out.append(right)
    return tuple(out)


@functools.lru_cache(maxsize=_KEPT_WALKS)
def _walk(seed: str, regimes: tuple[Cond, Cond], workload: int, prompt: int, depth: int) -> Walk:
    kept = _text(seed, regimes, workload, prompt)
    accepted = [0] * depth
    at = steps = 0
    while at < TOKENS:
        taken = min(kept[at], depth)
        for position in range(taken):
            accepted[position] += 1
        at += taken + 1
        steps += 1
    return Walk(steps=steps, accepted=tuple(accepted))


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
