"""What is known of the speed of every depth of a profile, measured or not, at once.

Joins the step times (``tuner.steps``) and the tokens per step (``tuner.texts``) into means and
covariances of the logarithm of tokens per second, so that a difference of two depths is judged
with the errors that they share left out. Also finds starts that are too slow to be resident,
whatever the log says. Does not choose (``tuner.select``) and does not ask (``tuner.design``).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.cost import RowCost
from tuner.speed import TIE_RATIO
from tuner.steps import START_SD, step_times
from tuner.texts import texts_of
from tuner.throughput import RESIDENCY_SUSPICION, p_beats
from tuner.timing import main_fingerprint, start_times
from tuner.types import Arm, Interval, Unknown, depth_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuner.plan import History
    from tuner.steps import StepTimes
    from tuner.timing import StartTimes

__all__ = [
    "EVICTION_RATIO",
    "Belief",
    "Slow",
    "Suspect",
    "believe",
    "slow_arms",
    "suspect_arms",
]

EVICTION_RATIO = 1.4
"""Step time over what shallower depths predict from which an arm is held to be evicted; 1.6 to
2.3 was measured where layers ran on the CPU, at least 1.7 in note 002."""

_CERTAIN_RATIO = 1.2
_CERTAIN_Z = 2.33
"""A suspicion needs a chance of 99 % that the ratio is above ``_CERTAIN_RATIO``."""

_ANY_ROW_COST = RowCost(c=0.5, sd=0.3, source="flat where rows cost anything up to a step")
"""Taken for granted when a start is suspected: on a CPU a row costs 0.8 of a step and more."""

_ANY_OFFSET_SD = 1.0
_Z_95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Jointly normal logarithms of the speeds at depth 0, 1, ... of one profile.

    Attributes:
        log_tps: Mean of log(tokens per second), mean over workloads, by depth.
        covariance: Between depths.
        steps: What the step times are.
        expected: Tokens per step, mean over workloads, by depth.
        bounds: Mean of log(tokens per second) if every position beyond the counts were as
            good as ``tuner.throughput.SLACK`` allows.
        counted: Depth up to which positions were counted.
        fingerprint: Of the observations that it rests on.
        arms: Arms that were timed, one per depth, and whose positions were counted: what a deeper
            one earns was measured, and here it is only continued.
        starts: Engine starts that it rests on.
        short_steps: Short steps that it rests on.
        contradicted: Short steps left out, because with them the model of a step does not
            describe the times: on a busy machine they say nothing (docs/short_steps.md).
        scatter: By what the noise of all step times was multiplied, because they contradict
            each other also without the short ones; 1 where they do not.
    """

    log_tps: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    steps: StepTimes
    expected: tuple[float, ...]
    bounds: tuple[float, ...]
    counted: int
    fingerprint: str
    arms: frozenset[Arm]
    starts: int
    short_steps: int
    contradicted: int = 0
    scatter: float = 1.0

    @property
    def restless(self) -> bool:
        """Whether step times contradict each other, as they do on a busy machine."""
        return self.contradicted > 0 or self.scatter > 1

    def covers(self, arm: Arm, fingerprint: str | None) -> bool:
        """Whether it rests on measurements of this arm under this fingerprint."""
        return arm in self.arms and fingerprint == self.fingerprint

    @property
    def deepest(self) -> int:
        """Deepest depth that it covers."""
        return len(self.log_tps) - 1

    def tps(self, depth: int) -> Interval:
        """Tokens per second with a 95 % interval."""
        return _interval(self.log_tps[depth], self.covariance[depth][depth])

    def step_s(self, depth: int) -> Interval:
        """Seconds per decode step with a 95 % interval."""
        return _interval(self.steps.mean[depth], self.steps.covariance[depth][depth])

    def row_cost(self) -> Interval:
        """Mean cost of a verification row as a share of a plain step, 95 % interval."""
        half = _Z_95 * self.steps.row_cost_sd
        mid = self.steps.row_cost
        return Interval(low=mid - half, mid=mid, high=mid + half)

    def log_ratio(self, i: int, j: int) -> tuple[float, float]:
        """Mean and standard deviation of log(tps_i / tps_j)."""
        c = self.covariance
        variance = c[i][i] + c[j][j] - 2 * c[i][j]
        return self.log_tps[i] - self.log_tps[j], math.sqrt(max(variance, 0.0))

    def ratio(self, i: int, j: int) -> Interval:
        """Speed at depth i over that at depth j with a 95 % interval."""
        mean, sd = self.log_ratio(i, j)
        return _interval(mean, sd * sd)

    def p_beats(self, i: int, j: int, *, eps: float = TIE_RATIO) -> float:
        """P(tps_i > (1 + eps) * tps_j)."""
        mean, sd = self.log_ratio(i, j)
        return p_beats(mean, sd, 0.0, 0.0, eps=eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A start whose steps take too long to be in device memory.

    Attributes:
        arm: What ran.
        witness: Depth of the deepest start that it was compared with.
        ratio: Step time over what the witnesses predict.
    """

    arm: Arm
    witness: int
    ratio: float

    @property
    def reason(self) -> str:
        """One clause; a misfit of memory, never of speed."""
        return (
            f"does not fit (a step takes {self.ratio:.1f}x of what depth {self.witness} predicts)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """An arm that is slower than forecast, but not so slow that it is held to be evicted.

    Attributes:
        arm: What ran.
        share: Measured over forecast tokens per second, at equal tokens per step.
        witness: Depth of the deepest arm that the forecast rests on.
    """

    arm: Arm
    share: float
    witness: int

    def __str__(self) -> str:
        """One line of evidence."""
        return (
            f"{self.arm}: residency is suspect, whatever the log says: it reached "
            f"{self.share:.2f} of what the starts up to depth {self.witness} forecast "
            f"(below {RESIDENCY_SUSPICION:.2f})"
        )


def believe(
    history: History, *, deepest: int | None = None, row_cost: RowCost | None = None
) -> Belief | Unknown:
    """What a history of one profile says of all depths.

    Starts that do not pass, and starts that are too slow to be resident (``slow_arms``), say
    nothing of step times; their texts count.

    Args:
        history: Observations, starts and short steps of one profile.
        deepest: Deepest depth to cover, by default the deepest that was observed.
        row_cost: Known for this card and stack, or None.
    """
    fingerprint = main_fingerprint(history.observations)
    starts = _sound(start_times(history), row_cost)[0]
    texts = texts_of(one for one in history.observations if one.fingerprint == fingerprint)
    arms = frozenset(one.arm for one in starts)
    if not starts or fingerprint is None:
        return Unknown("no start that passes was timed")
    if len({arm.depth for arm in arms}) < len(arms):
        return Unknown("two arms of one depth were measured")
    if isinstance(texts, Unknown):
        return texts
    reach = max(s.arm.depth for s in starts)
    reach = max(reach, texts.depth, deepest or 0)
    timed, steps, scatter = _joined(starts, reach, row_cost)
    weights = {name: 1 / factor for name, factor in steps.workloads}
    known = {name: weights.get(name, 1.0) for name, _ in texts.counts}
    scale = math.log(math.fsum(known.values()) / len(known))
    text = texts.covariance(reach, known)
    depths = range(reach + 1)
    return Belief(
        log_tps=tuple(texts.log_mean(d, known) + scale - steps.mean[d] for d in depths),
        covariance=tuple(
            tuple(text[i][j] + steps.covariance[i][j] for j in depths) for i in depths
        ),
        steps=steps,
        expected=tuple(math.exp(texts.log_mean(d, dict.fromkeys(known, 1.0))) for d in depths),
        bounds=tuple(texts.log_bound(d, known) + scale - steps.mean[d] for d in depths),
        counted=texts.depth,
        fingerprint=fingerprint,
        arms=frozenset(arm for arm in arms if arm.depth <= texts.depth),
        starts=len(timed),
        short_steps=_short_steps(timed),
        contradicted=_short_steps(starts) - _short_steps(timed),
        scatter=scatter,
    )


def _joined(
    starts: tuple[StartTimes, ...], deepest: int, row_cost: RowCost | None
) -> tuple[tuple[StartTimes, ...], StepTimes, float]:
    """Step times, the starts that they rest on, and by what their noise was multiplied.

    Where times contradict each other, the short steps are left out if the steady ones agree
    without them; otherwise every time is as noisy as the contradiction says (Birge 1932).
    """
    steps = step_times(starts, deepest, row_cost)
    if steps.strain <= 1:
        return starts, steps, 1.0
    steady = tuple(replace(one, short=()) for one in starts)
    alone = step_times(steady, deepest, row_cost)
    if alone.strain <= 1:
        return steady, alone, 1.0
    noisy = [one.noisier(steps.scatter) for one in starts]
    return starts, step_times(noisy, deepest, row_cost), steps.scatter


def _short_steps(starts: Iterable[StartTimes]) -> int:
    return sum(time.count for one in starts for _, time in one.short)


def slow_arms(history: History, row_cost: RowCost | None = None) -> tuple[Slow, ...]:
    """Arms of which a start is too slow to be resident, shallow to deep.

    From shallow to deep every start is compared with what all sound shallower ones predict.
    Short steps show the row cost within a start, so that a dear row is not taken for an
    eviction; without them the prediction is less certain, and so is a suspicion. Where there is
    no device, nothing is suspected: a slow start is load or noise.
    """
    return _sound(start_times(history), row_cost)[1]


def suspect_arms(history: History, row_cost: RowCost | None = None) -> tuple[Suspect, ...]:
    """Arms that reached less of the forecast from shallower ones than residency leads to expect.

    The same comparison as in ``slow_arms``, of step times, so that a text that drafts badly
    makes no suspect; a chance of 99 % that the start is slower at all is needed.
    """
    kept = _sound(start_times(history), row_cost)[0]
    out: dict[Arm, Suspect] = {}
    for one in kept:
        shallower = [other for other in kept if other.arm.depth < one.arm.depth]
        if not shallower or one.host:
            continue
        mean, sd = _offset(one, shallower, row_cost)
        share, witness = math.exp(-mean), shallower[-1].arm.depth
        if share < RESIDENCY_SUSPICION and mean > _CERTAIN_Z * sd:
            out.setdefault(one.arm, Suspect(arm=one.arm, share=share, witness=witness))
    return tuple(out.values())


def _sound(
    starts: tuple[StartTimes, ...], row_cost: RowCost | None
) -> tuple[tuple[StartTimes, ...], tuple[Slow, ...]]:
    """Starts that are as fast as shallower ones predict, and the arms of the others."""
    sound: list[StartTimes] = []
    slow: dict[Arm, Slow] = {}
    by_depth = itertools.groupby(starts, key=lambda one: one.arm.depth)
    for _, group in by_depth:
        fine = [(one, _too_slow(one, sound, row_cost)) for one in group]
        for one, found in fine:
            if found is not None:
                slow.setdefault(one.arm, found)
        if slow:
            break
        sound += [one for one, _ in fine]
    kept = tuple(one for one in starts if one in sound)
    return kept, tuple(slow[arm] for arm in sorted(slow, key=depth_order))


def _too_slow(
    one: StartTimes, shallower: list[StartTimes], row_cost: RowCost | None
) -> Slow | None:
    if not shallower or one.host:
        return None
    witness = shallower[-1]
    if _level(one) - max(map(_level, shallower)) < math.log(EVICTION_RATIO):
        return None  # even if rows cost nothing
    mean, sd = _offset(one, shallower, row_cost)
    certain = mean - _CERTAIN_Z * sd > math.log(_CERTAIN_RATIO)
    if mean < math.log(EVICTION_RATIO) or not certain:
        return None
    return Slow(arm=one.arm, witness=witness.arm.depth, ratio=math.exp(mean))


def _offset(
    one: StartTimes, shallower: list[StartTimes], row_cost: RowCost | None
) -> tuple[float, float]:
    """Logarithm of a start's step times over what shallower ones predict: mean and deviation."""
    free = [*([START_SD] * len(shallower)), _ANY_OFFSET_SD]
    cost = row_cost or _ANY_ROW_COST
    return step_times([*shallower, one], one.arm.depth, cost, offset_sd=free).offsets[-1]


def _level(one: StartTimes) -> float:
    return math.fsum(time.value for _, time in one.steady) / len(one.steady)


def _interval(mean: float, variance: float) -> Interval:
    half = _Z_95 * math.sqrt(variance)
    return Interval(low=math.exp(mean - half), mid=math.exp(mean), high=math.exp(mean + half))
