"""Step times of engine starts, reduced to readings: a central value and its noise.

Covers which times count (usable, resident, of one fingerprint), outliers, and noise estimated
from the scatter itself. Steady steps are whole replies, per workload; short steps are single
ones, per number of rows. Does not know how they depend on the depth (``tuner.steps``).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tuner.acceptance import TRUSTED_FULL_DRAFTS
from tuner.speed import RUN_NOISE
from tuner.summary import decode_steps, not_usable
from tuner.types import Arm, Host, passes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.plan import History
    from tuner.types import Observation

__all__ = ["LogTime", "StartTimes", "main_fingerprint", "start_times"]

_SHORT_NOISE = 0.045
"""Relative noise of one short step, assumed as long as few were seen; TUNER.md 3.5."""

_PRIOR_WEIGHT = 6.0
"""Degrees of freedom that an assumed noise counts for."""

_LEAST_SD = 0.003
"""Error of a step time's logarithm that no number of steps removes."""

_OUTLIER = 3.5
_MAD_TO_SD = 1.4826

K = TypeVar("K", str, int)


@dataclass(frozen=True, slots=True)
class LogTime:
    """Logarithm of a step time in seconds.

    Attributes:
        value: Mean without outliers.
        sd: Standard deviation of its noise.
        count: Times that it is the mean of.
    """

    value: float
    sd: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """What one engine start says about step times.

    Attributes:
        arm: What ran.
        start_id: Which start.
        steady: Per workload, ordered by its name; never empty.
        short: Per number of rows verified, ascending.
        host: There is no device, by design: nothing can be evicted from it.
    """

    arm: Arm
    start_id: str
    steady: tuple[tuple[str, LogTime], ...]
    short: tuple[tuple[int, LogTime], ...] = ()
    host: bool = False

    def noisier(self, factor: float) -> StartTimes:
        """The same with so many times the noise."""
        return replace(
            self,
            steady=tuple((name, replace(t, sd=t.sd * factor)) for name, t in self.steady),
            short=tuple((rows, replace(t, sd=t.sd * factor)) for rows, t in self.short),
        )


def main_fingerprint(observations: Iterable[Observation]) -> str | None:
    """The fingerprint of most usable observations; None if there is none."""
    counts = Counter(o.fingerprint for o in observations if not_usable(o) is None)
    return min(counts, key=lambda name: (-counts[name], name), default=None)


def start_times(history: History) -> tuple[StartTimes, ...]:
    """Step times of every start that passes, of the main fingerprint, ordered by depth and id.

    Not of arms whose drafts were cut, by an engine with fewer heads than the depth or by p-min:
    a step at their depth has fewer rows and earns less than one of as many full drafts.
    """
    fingerprint = main_fingerprint(history.observations)
    cut = _cut_arms(one for one in history.observations if one.fingerprint == fingerprint)
    failed = {(s.arm, s.start_id) for s in history.starts if not passes(s.residency)}
    failed |= {(o.arm, o.start_id) for o in history.observations if not passes(o.residency)}
    hosts = {(s.arm, s.start_id) for s in history.starts if isinstance(s.residency, Host)}
    hosts |= {(o.arm, o.start_id) for o in history.observations if isinstance(o.residency, Host)}
    steady: dict[tuple[Arm, str], dict[str, list[float]]] = {}
    for one in history.observations:
        steps = decode_steps(one) if not_usable(one) is None and one.arm not in cut else None
        if one.fingerprint == fingerprint and steps is not None:
            times = steady.setdefault((one.arm, one.start_id), {}).setdefault(one.workload, [])
            times.append(math.log(one.decode_s / steps))
    short: dict[tuple[Arm, str], dict[int, list[float]]] = {}
    for step in history.short_steps:
        if step.fingerprint == fingerprint:
            logs = short.setdefault((step.arm, step.start_id), {}).setdefault(step.rows, [])
            logs.append(math.log(step.step_s))
    return tuple(
        StartTimes(
            arm=arm,
            start_id=start_id,
            steady=_centres(times, RUN_NOISE),
            short=_centres(short.get((arm, start_id), {}), _SHORT_NOISE),
            host=(arm, start_id) in hosts,
        )
        for (arm, start_id), times in sorted(
            steady.items(), key=lambda item: (item[0][0].depth, item[0][0], item[0][1])
        )
        if (arm, start_id) not in failed
    )


def _cut_arms(observations: Iterable[Observation]) -> frozenset[Arm]:
    """Arms that drafted fewer tokens than ``TRUSTED_FULL_DRAFTS`` of what full drafts have."""
    drafted, full = Counter[Arm](), Counter[Arm]()
    for one in observations:
        if not_usable(one) is None and one.steps and one.drafted is not None:
            drafted[one.arm] += one.drafted
            full[one.arm] += one.steps * one.arm.depth
    return frozenset(
        arm for arm, tokens in full.items() if drafted[arm] < TRUSTED_FULL_DRAFTS * tokens
    )


def _centres(groups: dict[K, list[float]], assumed: float) -> tuple[tuple[K, LogTime], ...]:
    """Mean per group without outliers, ordered by the group's name.

    The groups share their noise, so that a group of three is judged by all of them. Of an
    even group all may lie far from the middle; then none is the outlier, and all count.
    """
    middles = {name: statistics.median(values) for name, values in groups.items()}
    residuals = {name: [v - middles[name] for v in sorted(vs)] for name, vs in groups.items()}
    every = [abs(r) for group in residuals.values() for r in group]
    scale = _MAD_TO_SD * statistics.median(every or [0.0])
    limit = _OUTLIER * max(scale, assumed)
    kept = {n: [r for r in group if abs(r) <= limit] or group for n, group in residuals.items()}
    shifts = {name: statistics.fmean(group) for name, group in kept.items()}
    squares = math.fsum((r - shifts[n]) ** 2 for n, group in kept.items() for r in group)
    freedom = sum(len(group) - 1 for group in kept.values())
    noise = math.sqrt((squares + _PRIOR_WEIGHT * assumed**2) / (freedom + _PRIOR_WEIGHT))
    return tuple(
        (
            name,
            LogTime(
                value=middles[name] + shifts[name],
                sd=math.hypot(noise / math.sqrt(len(kept[name])), _LEAST_SD),
                count=len(kept[name]),
            ),
        )
        for name in sorted(groups)
    )
