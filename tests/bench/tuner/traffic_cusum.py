"""How long the detectors run without a false alarm, and how soon they see a true one.

The design study's requests (TUNER.md section 3.6): acceptances .92 and .76, lengths around
180 steps, a deviation of .35 logits between requests. "Known" detectors are given the true
mean and variance between requests; "learnt" ones are ``tuner.drift.Detector`` as shipped,
which learns both from the same requests and watches from the thirtieth on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.drift import (
    LEARNING_REQUESTS,
    Cusum,
    Detector,
    Direction,
    Pace,
    StepWatch,
    request_z,
)
from tuner.level import deviation, logit

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHAS: Final = (0.92, 0.76)
LOGIT_SD: Final = 0.35
SHIFTS: Final = (-0.3, -0.6, -1.0)
LONGEST: Final = 20_000
LONGEST_DELAY: Final = 5_000
SLOWDOWNS: Final = (1.1, 1.4, 1.7)


@dataclass(frozen=True)
class Row:
    """One detector.

    Attributes:
        name: Which.
        arl0: Mean requests until a false alarm, cut at ``LONGEST``.
        arl0_se: Its standard error.
        delays: Mean and 95 % quantile of the requests until a true alarm, per shift.
    """

    name: str
    arl0: float
    arl0_se: float
    delays: tuple[tuple[float, float], ...]


class Source:
    """Requests of one class."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batches: dict[float, list[tuple[int, int, int]]] = {}

    def draw(self, shift: float) -> tuple[int, int, int]:
        """Steps and both positions' counts of one request."""
        batch = self.batches.setdefault(shift, [])
        if not batch:
            rng = self.rng
            steps = np.maximum(20, rng.lognormal(math.log(180), 0.6, 4096).astype(np.int64))
            own = rng.normal(0, LOGIT_SD, 4096) + shift
            first, second = (1 / (1 + np.exp(-(logit(a) + own))) for a in ALPHAS)
            one = rng.binomial(steps, first)
            two = rng.binomial(one, second)
            batch += [(int(v), int(a), int(b)) for v, a, b in zip(steps, one, two, strict=True)]
        return batch.pop()


def known(source: Source, kappa: float, h: float, *, between: bool) -> Callable[[], Watch]:
    """A CUSUM on accepted tokens per step with the true reference."""
    some = [source.draw(0.0) for _ in range(8000)]
    rates = np.array([(a + b) / v for v, a, b in some])
    mean = ALPHAS[0] + ALPHAS[0] * ALPHAS[1]
    variance = ALPHAS[0] + 3 * ALPHAS[0] * ALPHAS[1] - mean**2
    tau2 = float(rates.var() - np.mean([variance / v for v, _, _ in some])) if between else 0.0

    def fresh() -> Watch:
        return Known(Cusum(kappa=kappa, h=h), float(rates.mean()), variance, tau2)

    return fresh


class Watch:
    """A detector at work."""

    def push(self, steps: int, first: int, second: int) -> bool:
        """Whether this request raises the alarm."""
        raise NotImplementedError


class Known(Watch):
    """With the true reference."""

    def __init__(self, sums: Cusum, mean: float, variance: float, tau2: float) -> None:
        self.sums, self.mean, self.variance, self.tau2 = sums, mean, variance, tau2

    def push(self, steps: int, first: int, second: int) -> bool:
        z = request_z(steps, first + second, mean=self.mean, variance=self.variance, tau2=self.tau2)
        self.sums = self.sums.push(z)
        return self.sums.alarm is not Direction.NONE


class Learnt(Watch):
    """As shipped."""

    etas: Final = tuple(logit(a) for a in ALPHAS)

    def __init__(self) -> None:
        self.detector = Detector()

    def push(self, steps: int, first: int, second: int) -> bool:
        seen = deviation(self.etas, (steps, first), (first, second), 1.0)
        if seen is None:
            return False
        self.detector = self.detector.push(seen.shift, seen.variance)
        return self.detector.alarm is not Direction.NONE


def length(watch: Watch, source: Source, shift: float, longest: int) -> int:
    """Requests until the alarm."""
    for count in range(1, longest):
        if watch.push(*source.draw(shift)):
            return count
    return longest


def row(name: str, fresh: Callable[[], Watch], source: Source, *, runs: int, calm: int) -> Row:
    """Measure one detector; before a shift it sees ``calm`` requests, without an alarm."""
    clear = [length(fresh(), source, 0.0, LONGEST) for _ in range(runs)]
    delays: list[tuple[float, float]] = []
    for shift in SHIFTS:
        found: list[int] = []
        while len(found) < runs // 2:
            watch = fresh()
            if not any(watch.push(*source.draw(0.0)) for _ in range(calm)):
                found.append(length(watch, source, shift, LONGEST_DELAY))
        delays.append((float(np.mean(found)), float(np.quantile(found, 0.95))))
    spread = float(np.std(clear)) / math.sqrt(runs)
    return Row(name, float(np.mean(clear)), spread, tuple(delays))


def rows(seed: int, runs: int) -> list[Row]:
    """All detectors of the table."""
    source = Source(seed)
    out = [
        row(
            "known, without the variance between requests, h 8",
            known(source, 0.5, 8, between=False),
            source,
            runs=runs,
            calm=0,
        )
    ]
    for h in (5, 8, 10):
        fresh = known(source, 0.5, h, between=True)
        out.append(row(f"known, h {h}", fresh, source, runs=runs, calm=0))
    return out + [
        row(f"learnt, {calm} requests before the shift", Learnt, source, runs=runs, calm=calm)
        for calm in (LEARNING_REQUESTS, 100, 400)
    ]


def step_rows(seed: int, runs: int) -> list[tuple[float, int, float, float, float]]:
    """Step watch: slow-down, calm requests, mean and 95 % delay, share called an eviction.

    Steps vary by 3 % between requests. Without calm requests the reference is a calibrated
    step time that is 3 % off.
    """
    rng = np.random.default_rng(seed)
    out: list[tuple[float, int, float, float, float]] = []
    for slow in SLOWDOWNS:
        for calm in (0, 100):
            delays, evicted = [], 0
            for _ in range(runs):
                watch = StepWatch(reference=float(rng.normal(0, 0.03)))
                for noise in rng.normal(0, 0.03, calm):
                    watch = watch.push(math.exp(float(noise)))
                count = 0
                while watch.pace is Pace.STEADY and count < LONGEST_DELAY:
                    watch = watch.push(slow * math.exp(float(rng.normal(0, 0.03))))
                    count += 1
                delays.append(count)
                evicted += watch.pace is Pace.EVICTED
            out.append(
                (
                    slow,
                    calm,
                    float(np.mean(delays)),
                    float(np.quantile(delays, 0.95)),
                    evicted / runs,
                )
            )
    return out


def table(seed: int, runs: int) -> str:
    """Both tables as Markdown."""
    lines = [
        "| detector | requests to a false alarm | "
        + " | ".join(f"delay at {s:+.1f} logits (95 %)" for s in SHIFTS)
        + " |",
        "|---|---|" + "---|" * len(SHIFTS),
    ]
    for one in rows(seed, runs):
        delays = " | ".join(f"{mean:.0f} ({high:.0f})" for mean, high in one.delays)
        lines.append(f"| {one.name} | {one.arl0:.0f} ± {1.96 * one.arl0_se:.0f} | {delays} |")
    lines += [
        "",
        "| step time | calm requests | delay (95 %) | called an eviction |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {slow:.1f}x | {calm} | {mean:.1f} ({high:.0f}) | {share:.0%} |"
        for slow, calm, mean, high, share in step_rows(seed, runs)
    ]
    return "\n".join(lines)
