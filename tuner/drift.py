"""Whether acceptance or step time has moved: a two-sided CUSUM over standardised values.

An alarm asks for a fresh look; it never switches anything by itself. A ``Detector`` learns
from a class's own requests what is normal, with the variance between requests: without that
variance every seventeenth request is an alarm (TUNER.md section 3.6; measured again in
docs/benchmarks_live.md). A ``StepWatch`` does the same for the time of a step and tells an
eviction in flight from a slow drift.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EVICTION_RATIO",
    "LEARNING_REQUESTS",
    "Cusum",
    "Detector",
    "Direction",
    "Pace",
    "StepWatch",
    "alarm_index",
    "cusum",
    "request_z",
]

LEARNING_REQUESTS: Final = 30
"""Requests before a detector may raise an alarm."""

MEMORY_REQUESTS: Final = 500
"""Requests over which a detector's reference goes on learning; more than this are forgotten."""

OUTLIER_SD: Final = 3.0
"""Standard deviations at which a value that teaches the reference is cut."""

EVICTION_RATIO: Final = 1.33
"""Measured step time over its reference from which layers must have left the card: 1.4
(TUNER.md section 4) less twice the error of two requests. Note 002's evicted starts were at
least 1.70 times slower."""

STEP_SD: Final = 0.05
"""Least standard deviation assumed of the log step time between requests."""

UNSEEN_SD: Final = 0.10
"""Standard deviation of a calibrated log step time as a reference for live requests, which
differ in context fill."""

STEP_OUTLIER: Final = 7.0
"""Standardised step time at which one request is cut: no alarm comes from one alone."""


class Direction(enum.Enum):
    """Which way the values have moved."""

    NONE = 0
    UP = 1
    DOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cusum:
    """State of the detector; a value, every push makes a new one.

    Attributes:
        kappa: Slack per value, in standard deviations.
        h: Alarm threshold; 8 means one false alarm in about 6500 requests.
        up: Upper sum.
        down: Lower sum.
    """

    kappa: float = 0.5
    h: float = 8.0
    up: float = 0.0
    down: float = 0.0

    def push(self, z: float) -> Cusum:
        """Detector after one more value."""
        return Cusum(
            kappa=self.kappa,
            h=self.h,
            up=max(0.0, self.up + z - self.kappa),
            down=max(0.0, self.down - z - self.kappa),
        )

    @property
    def alarm(self) -> Direction:
        """Which sum exceeds the threshold; up if both do."""
        if self.up > self.h:
            return Direction.UP
        return Direction.DOWN if self.down > self.h else Direction.NONE

    def sum(self, way: Direction) -> float:
        """The sum of a direction; 0 for none."""
        return {Direction.UP: self.up, Direction.DOWN: self.down}.get(way, 0.0)

    def reset(self) -> Cusum:
        """The detector at zero, with the same parameters."""
        return Cusum(kappa=self.kappa, h=self.h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A CUSUM that learns its own reference from the first requests and refines it.

    Attributes:
        requests: Requests that taught the reference, at most ``MEMORY_REQUESTS``.
        mean: Reference mean.
        tau2: Variance between requests, what sampling does not explain.
        cusum: Sums since the reference was usable.
    """

    requests: int = 0
    mean: float = 0.0
    tau2: float = 0.0
    cusum: Cusum = field(default_factory=Cusum)

    def push(self, value: float, variance: float) -> Detector:
        """The detector after one request.

        The value is standardised before it teaches. One beyond ``OUTLIER_SD`` teaches as
        much as one at that distance, so that a few odd requests do not widen the reference;
        and none teaches while a sum is above half its threshold, else a slow drift would
        become what is normal.

        Args:
            value: What the request showed, on a scale on which sampling is about normal.
            variance: Sampling variance of the value, without what differs between requests.
        """
        ready = self.requests >= LEARNING_REQUESTS
        sums = self.cusum.push(self.z(value, variance)) if ready else self.cusum
        if max(sums.up, sums.down) > sums.h / 2:
            return replace(self, cusum=sums)
        count = min(self.requests + 1, MEMORY_REQUESTS)
        off = value - self.mean
        if self.requests >= LEARNING_REQUESTS // 3:
            bound = OUTLIER_SD * math.sqrt(variance + self.tau2)
            off = min(max(off, -bound), bound)
        spread = off * off * (count - 1) / count - variance if count > 1 else 0.0
        return Detector(
            requests=count,
            mean=self.mean + off / count,
            tau2=max(self.tau2 + (spread - self.tau2) / max(count - 1, 1), 0.0),
            cusum=sums,
        )

    def z(self, value: float, variance: float) -> float:
        """Standardised value; ``variance`` must be positive where ``tau2`` is 0."""
        return (value - self.mean) / math.sqrt(variance + self.tau2)

    @property
    def alarm(self) -> Direction:
        """Which way the values have moved away from the reference."""
        return self.cusum.alarm


class Pace(enum.StrEnum):
    """What the time of a step says."""

    STEADY = "steady"
    EVICTED = "evicted"
    SLOWER = "slower"
    FASTER = "faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWatch:
    """Watches the log step time of one arm and class.

    Attributes:
        reference: Log of the calibrated seconds per step, or None where none is known: then
            the first ``LEARNING_REQUESTS`` are the reference, unwatched.
        requests: Requests that taught the live reference.
        mean: Live mean of the log step time.
        var: Live variance of the log step time.
        cusum: Sums of standardised log ratios.
        run: Log ratios summed since the upper sum last was zero.
        length: How many these are.
        last: The last two log ratios, the later one first.
    """

    reference: float | None = None
    requests: int = 0
    mean: float = 0.0
    var: float = 0.0
    cusum: Cusum = field(default_factory=Cusum)
    run: float = 0.0
    length: int = 0
    last: tuple[float, float] = (0.0, 0.0)

    def push(self, step_s: float) -> StepWatch:
        """The watch after a request whose mean step took ``step_s`` seconds (> 0)."""
        value = math.log(step_s)
        expected = self._expected()
        count = min(self.requests + 1, MEMORY_REQUESTS)
        if expected is None:
            off = value - self.mean
            return replace(
                self, requests=count, mean=self.mean + off / count, var=self._spread(off, count)
            )
        mean, sd = expected
        sums = self.cusum.push(min(max((value - mean) / sd, -STEP_OUTLIER), STEP_OUTLIER))
        rising = sums.up > 0
        bound = OUTLIER_SD * sd
        off = min(max(value, mean - bound), mean + bound) - self.mean
        return StepWatch(
            reference=self.reference,
            requests=count,
            mean=self.mean + off / count,
            var=self._spread(off, count),
            cusum=sums,
            run=self.run + value - mean if rising else 0.0,
            length=self.length + 1 if rising else 0,
            last=(value - mean, self.last[0]),
        )

    @property
    def ratio(self) -> float:
        """Step time over its reference; 1 while it is not rising.

        The geometric mean of the rising run, or the lesser of the last two where that is
        more: a run may have begun with noise before the step that matters.
        """
        return math.exp(max(self.run / self.length, min(self.last))) if self.length else 1.0

    @property
    def pace(self) -> Pace:
        """Steady, or in which way the time has moved."""
        alarm = self.cusum.alarm
        if alarm is Direction.DOWN:
            return Pace.FASTER
        if alarm is Direction.NONE:
            return Pace.STEADY
        return Pace.EVICTED if self.ratio >= EVICTION_RATIO else Pace.SLOWER

    def _expected(self) -> tuple[float, float] | None:
        if self.requests >= LEARNING_REQUESTS:
            return self.mean, max(math.sqrt(self.var), STEP_SD)
        return None if self.reference is None else (self.reference, UNSEEN_SD)

    def _spread(self, off: float, count: int) -> float:
        return self.var + (off * off * (count - 1) / count - self.var) / count


def cusum(values: Iterable[float], start: Cusum) -> tuple[Cusum, ...]:
    """The detector after each value."""
    out: list[Cusum] = []
    state = start
    for z in values:
        state = state.push(z)
        out.append(state)
    return tuple(out)


def alarm_index(values: Iterable[float], start: Cusum) -> int | None:
    """0-based index of the first value that raises the alarm, or None."""
    for index, state in enumerate(cusum(values, start)):
        if state.alarm is not Direction.NONE:
            return index
    return None


def request_z(
    steps: int, accepted: int, *, mean: float, variance: float, tau2: float, phi: float = 1.0
) -> float:
    """Standardised acceptance of one request against a reference.

    Args:
        steps: Verification steps of the request.
        accepted: Accepted draft tokens.
        mean: Reference mean per step.
        variance: Reference variance per step.
        tau2: Variance of the mean between requests; without it an alarm is false
            every 17 requests.
        phi: Over-dispersion within a request.
    """
    return (accepted / steps - mean) / math.sqrt(phi * variance / steps + tau2)
