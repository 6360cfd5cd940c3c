"""Rules that pick a depth from live traffic: ours, the design study's reference, and two rivals.

Every rule sees the same things: what a calibration measured, then one request after the
other. ``Ours`` is ``tuner.live`` + ``tuner.outlook`` + ``tuner.policy`` as the daemon would
use them; ``Reference`` is the rule of TUNER.md section 3.6.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tests.bench.tuner.fleet import DEEPEST, WORKLOADS, arm
from tuner.baseline import Baseline
from tuner.carry import recalibrated, restarted
from tuner.classes import Band, Kind, WorkloadClass
from tuner.drift import Direction
from tuner.live import Live, push
from tuner.moment import Mode, Moment, PolicyState, Rules
from tuner.outlook import StepCost, outlook
from tuner.policy import decide
from tuner.request import Request
from tuner.types import Act, Drafter
from tuner.worth import switch_decision

if TYPE_CHECKING:
    from tests.bench.tuner.fleet import Machine
    from tuner.types import Decision

EVERY: Final = 10
"""Requests between two decisions of the reference rule."""

LOOK_EVERY: Final = 20
"""Requests between two of ours."""

PROMPTS: Final = 3
STEP_ERROR_SD: Final = 0.015
"""Error of a calibrated step time against those of the other depths."""

CLASSES: Final = (
    WorkloadClass(kind=Kind.CODE),
    WorkloadClass(band=Band.LONG),
    WorkloadClass(kind=Kind.PROSE),
    WorkloadClass(),
)
"""Of the fleet's workloads, in their order."""


@dataclass(frozen=True)
class Calibration:
    """What a calibration measured.

    Attributes:
        measured: Depth whose positions were counted.
        steps: Verification steps by workload.
        hits: Accepted per position by workload.
        step_s: Seconds per step by depth, mean over workloads, with its error.
        slowness: Step time of a workload against the mean.
        chosen: The depth of the highest mean speed.
        ceiling: The deepest depth that fits.
        switch_s: Seconds that a switch costs, lost prompt caches included.
    """

    measured: int
    steps: tuple[int, ...]
    hits: tuple[tuple[int, ...], ...]
    step_s: tuple[float, ...]
    slowness: tuple[float, ...]
    chosen: int
    ceiling: int
    switch_s: float


def calibrate(machine: Machine, rng: np.random.Generator) -> Calibration:
    """Measure a machine; the texts are those of the fleet."""
    pace = np.array(machine.step_s)
    step_s = pace.mean(axis=0) * np.exp(rng.normal(0, STEP_ERROR_SD, DEEPEST + 1))
    slowness = pace.mean(axis=1) / pace.mean()
    deep = machine.ceiling
    speeds = np.zeros(deep + 1)
    for depth in range(deep + 1):
        for workload in range(len(WORKLOADS)):
            steps, hits = _counts(machine, workload, deep)
            expected = 1 + sum(hits[:depth]) / steps
            speeds[depth] += expected / (step_s[depth] * slowness[workload])
    measured = min(3, deep)
    counts = [_counts(machine, workload, measured) for workload in range(len(WORKLOADS))]
    return Calibration(
        measured=measured,
        steps=tuple(steps for steps, _ in counts),
        hits=tuple(hits for _, hits in counts),
        step_s=tuple(float(s) for s in step_s),
        slowness=tuple(float(s) for s in slowness),
        chosen=int(speeds.argmax()),
        ceiling=deep,
        switch_s=float(rng.uniform(20, 60)) + 30.0,
    )


def _counts(machine: Machine, workload: int, depth: int) -> tuple[int, tuple[int, ...]]:
    walks = [machine.walk(workload, prompt, depth) for prompt in range(PROMPTS)]
    hits = tuple(sum(w.accepted[i] for w in walks) for i in range(depth))
    return sum(w.steps for w in walks), hits


@dataclass(frozen=True)
class Served:
    """One finished request."""

    at_s: float
    workload: int
    tokens: int
    steps: int
    hits: tuple[int, ...]
    decode_s: float
    idle_s: float = math.inf


class Rule(Protocol):
    """Picks the depth after every request."""

    def after(self, one: Served, depth: int) -> int:
        """The depth from now on; the rule is told of nothing else."""
        ...


class Reference:
    """The design study's rule; without ``hysteresis`` simply the best prediction."""

    half, prior, mix_half = 200, 150.0, 80

    def __init__(self, known: Calibration, gap_s: float, *, hysteresis: bool = True) -> None:
        self.known, self.hysteresis = known, hysteresis
        self.horizon_tokens = 2 * 3600 * 500 / gap_s
        depth = known.measured
        base = np.zeros((len(WORKLOADS), DEEPEST))
        for workload, (steps, hits) in enumerate(zip(known.steps, known.hits, strict=True)):
            rates = [n / steps for n in hits]
            ratio = rates[-1] / (rates[-2] if depth > 1 else 1.0)
            for place in range(DEEPEST):
                beyond = rates[-1] * ratio ** (place - depth + 1)
                base[workload, place] = rates[place] if place < depth else beyond
        self.base = base
        self.hits = np.zeros_like(base)
        self.steps = np.zeros(len(WORKLOADS))
        self.mix = np.full(len(WORKLOADS), 1 / len(WORKLOADS))
        self.seen, self.last_s, self.hold_s = 0, -math.inf, 1800.0
        self.previous: int | None = None

    def after(self, one: Served, depth: int) -> int:
        """Learn, and every ten requests compare."""
        w = one.workload
        self.seen += 1
        self.mix *= 0.5 ** (1 / self.mix_half)
        self.mix[w] += (1 - 0.5 ** (1 / self.mix_half)) * one.tokens / 500
        if depth:
            keep = 0.5 ** (1 / self.half)
            self.hits[w] *= keep
            self.steps[w] = self.steps[w] * keep + one.steps
            self.hits[w, :depth] += one.hits
        if self.seen % EVERY:
            return depth
        paces = [self._pace(j, depth) for j in range(self.known.ceiling + 1)]
        best = int(np.argmin(paces))
        if best == depth or (self.hysteresis and not self._pays(one.at_s, depth, best, paces)):
            return depth
        self.hold_s = self.hold_s * 4 if best == self.previous else 1800.0
        self.last_s, self.previous = one.at_s, depth
        return best

    def _pays(self, now_s: float, depth: int, best: int, paces: list[float]) -> bool:
        verdict = switch_decision(
            tps_now=1 / paces[depth],
            tps_new=1 / paces[best],
            sd_log=0.035 if best <= depth else 0.05,
            horizon_tokens=self.horizon_tokens,
            cost_s=self.known.switch_s,
        )
        hold_s = self.hold_s if best == self.previous else 1800.0
        return verdict.switch and now_s - self.last_s >= hold_s

    def _pace(self, depth: int, running: int) -> float:
        """Seconds per token of the mix, up to a common factor."""
        kept = self.base[:, :depth].copy()
        if running:
            live = self.steps > 0
            deepest = (self.prior * self.base + self.hits) / (self.prior + self.steps)[:, None]
            scale = deepest[:, running - 1] / np.maximum(self.base[:, running - 1], 1e-3)
            scale = np.where(live, scale, 1.0)
            seen = np.arange(depth) < running
            kept = np.where(live[:, None] & seen, deepest[:, :depth], kept * scale[:, None])
        kept = np.minimum.accumulate(np.clip(kept, 0, 1), axis=1)
        slow = np.array(self.known.slowness) * self.known.step_s[depth]
        return float((self.mix / self.mix.sum() * slow / (1 + kept.sum(axis=1))).sum())


class Ema:
    """SGLang's rule: one step up or down by a moving mean of the accepted length."""

    def __init__(self, known: Calibration) -> None:
        self.ceiling, self.seen = known.ceiling, 0
        self.mean: float | None = None

    def after(self, one: Served, depth: int) -> int:
        """Move every five requests after ten."""
        self.seen += 1
        if depth:
            rate = sum(one.hits) / one.steps
            self.mean = rate if self.mean is None else 0.8 * self.mean + 0.2 * rate
        if self.seen % 5 or self.seen <= 10:
            return depth
        after = depth
        if depth == 0 or self.mean is None:
            after = 1
        elif self.mean <= depth - 1 - 0.75 and depth > 1:
            after = depth - 1
        elif self.mean > depth - 0.5 and depth < self.ceiling:
            after = depth + 1
        if after != depth:
            self.mean = None
        return after


class Ours:
    """The tuner's own: learn, look ahead, decide."""

    def __init__(self, known: Calibration, gap_s: float, rules: Rules | None = None) -> None:
        self.rules = rules or Rules(mode=Mode.IDLE)
        self.tokens_per_s = 500 / gap_s
        self.state = PolicyState()
        self.last: Decision | None = None
        self.seen = 0
        self.stale: tuple[str, ...] = ()
        self.drifted = False
        self.known, self.name, self.costs = known, "first", _costs(known)
        self.live = Live(
            profile="model",
            drafter=Drafter.MTP,
            baselines=_baselines(known),
            step_s=tuple((c.arm, c.step_s) for c in self.costs),
        )

    def calibrated(self, known: Calibration, name: str, keep: float) -> None:
        """Go on from a new calibration."""
        self.known, self.name, self.costs = known, name, _costs(known)
        self.stale = ()
        times = tuple((c.arm, c.step_s) for c in self.costs)
        self.live = recalibrated(self.live, _baselines(known), times, keep=keep)

    def after(self, one: Served, depth: int) -> int:
        """Learn, and every ``LOOK_EVERY`` requests decide."""
        self.learn(one, depth)
        self.seen += 1
        return depth if self.seen % LOOK_EVERY else self.decided(one.at_s, depth, one.idle_s)

    def learn(self, one: Served, depth: int) -> None:
        """Tell the live state."""
        self.live, alarms = push(
            self.live,
            Request(
                arm=arm(depth),
                klass=CLASSES[one.workload],
                tokens=1 + one.steps + sum(one.hits),
                decode_s=one.decode_s,
                accepted=sum(one.hits),
                drafted=one.steps * depth,
                steps=one.steps if depth else 0,
                per_position=one.hits,
            ),
        )
        self.drifted = self.drifted or any(a.acceptance is not Direction.NONE for a in alarms)

    def decided(self, at_s: float, depth: int, idle_s: float) -> int:
        """Let the policy look."""
        self.state, self.last = decide(
            self.rules,
            self.state,
            Moment(
                at_s=at_s,
                running=arm(depth),
                prospects=outlook(self.live, self.costs, arm(depth)),
                tokens_per_s=self.tokens_per_s,
                switch_cost_s=self.known.switch_s,
                calibration=self.name,
                stale=self.stale,
                drifted=self.drifted,
                idle_s=idle_s,
            ),
        )
        self.drifted = False
        if self.last.act is not Act.SWITCH or self.last.arm is None:
            return depth
        self.live = restarted(self.live)
        return self.last.arm.depth


def _costs(known: Calibration) -> tuple[StepCost, ...]:
    return tuple(
        StepCost(arm=arm(k), step_s=known.step_s[k], sd=STEP_ERROR_SD)
        for k in range(known.ceiling + 1)
    )


def _baselines(known: Calibration) -> tuple[Baseline, ...]:
    return tuple(
        Baseline(klass=klass, alphas=_alphas(steps, hits), steps=steps)
        for klass, steps, hits in zip(CLASSES, known.steps, known.hits, strict=True)
    )


def _alphas(steps: int, hits: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(b / a if a else 0.5 for a, b in itertools.pairwise((steps, *hits)))
