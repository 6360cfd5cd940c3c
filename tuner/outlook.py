"""What every arm would do on the present traffic, relative to the one that runs.

From the live state and calibrated step times: the gain of each feasible arm in log tokens
per second over the running one, with its standard deviation. What both arms share cancels:
the same requests, the same class mix, the same head. Does not decide (``tuner.policy``).

With token shares p_w, step times t and tokens per step E, an arm j needs
sum_w p_w t_jw / E_jw seconds per token; its error follows from the gradient of the log ratio
in the log odds of every acceptance (d E_j / d eta_i = (1 - alpha_i) (S_i + ... + S_j)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.level import sigmoid
from tuner.types import Arm, Interval, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuner.live import ClassLive, Live

__all__ = ["Prospect", "StepCost", "outlook"]

LIVE_RATIO_SD: Final = 0.02
"""Standard deviation of the log ratio of two arms' live step times: an engine start has an
offset of about 1 %, and the two were not seen at the same moment."""

AGE_REQUESTS: Final = 3000
"""Requests after which the variance of a step time that is no longer seen has doubled."""

LEAST_TIMED: Final = 10.0
"""Requests from which a live step time is used."""

CONTEXT_REQUESTS: Final = 5.0
"""Requests for which "all classes have equal step times" counts."""

_Z95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """A feasible arm and what the calibration says of its step.

    Attributes:
        arm: The arm.
        step_s: Seconds per decode step, geometric mean over workloads.
        sd: Standard deviation of its logarithm against the other arms of the same profile.
    """

    arm: Arm
    step_s: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What an arm promises on the present traffic.

    Attributes:
        arm: The arm.
        gain: Posterior mean of log(tps / tps of the running arm).
        sd: Its standard deviation.
        tps: Predicted decode tokens per second.
    """

    arm: Arm
    gain: float
    sd: float
    tps: Interval


@dataclass(frozen=True, slots=True)
class _Mix:
    """One class of the present traffic."""

    known: ClassLive
    share: float
    slowness: float
    etas: tuple[float, ...]
    variances: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Pace:
    """Seconds per token of an arm by class, and its gradient in the log odds."""

    seconds: tuple[float, ...]
    slopes: tuple[tuple[float, ...], ...]


def outlook(live: Live, costs: Sequence[StepCost], running: Arm) -> tuple[Prospect, ...]:
    """The prospects of all arms in ``costs``, the running one among them with gain 0.

    Args:
        live: What live requests have taught.
        costs: Feasible arms of the profile and drafter that ``live`` is about.
        running: The arm that runs; must be among ``costs``.

    Returns:
        One prospect per cost, in their order; empty before any request counted.

    Raises:
        ValueError: If ``running`` has no step cost.
    """
    now = next((c for c in costs if c.arm == running), None)
    if now is None:
        msg = f"{running} has no step cost"
        raise ValueError(msg)
    if not live.classes:
        return ()
    deepest = max(c.arm.depth for c in costs)
    mix = _mix(live, costs, deepest)
    times = {c.arm: _log_step(live, c, now) for c in costs}
    base = _pace(mix, running.depth, times[running][0])
    return tuple(_prospect(live, mix, cost, base, times[cost.arm]) for cost in costs)


def _prospect(
    live: Live, mix: Sequence[_Mix], cost: StepCost, base: _Pace, time: tuple[float, float]
) -> Prospect:
    pace = _pace(mix, cost.arm.depth, time[0])
    now, new = sum(base.seconds), sum(pace.seconds)
    variance, common = time[1], 0.0
    for one, before, after in zip(mix, base.slopes, pace.slopes, strict=True):
        slopes = [b / now - a / new for b, a in zip(before, after, strict=True)]
        whole = sum(slopes)
        common += whole
        variance += whole * whole * one.known.offset.var
        variance += sum(s * s * v for s, v in zip(slopes, one.variances, strict=True))
    variance += common * common * live.common.var
    sd = math.sqrt(variance)
    own = math.hypot(sd, cost.sd)
    return Prospect(
        arm=cost.arm,
        gain=math.log(now / new),
        sd=sd,
        tps=Interval(low=math.exp(-_Z95 * own) / new, mid=1 / new, high=math.exp(_Z95 * own) / new),
    )


def _mix(live: Live, costs: Iterable[StepCost], deepest: int) -> list[_Mix]:
    """Classes with their share, their slowness against the mean and what is believed of them."""
    shares = [live.share(c) for c in live.classes]
    total = sum(shares)
    steps = {c.arm: math.log(c.step_s) for c in costs}
    return [
        _Mix(
            known=known,
            share=share / total,
            slowness=_slowness(live, known, steps),
            etas=tuple(live.etas(known, deepest)),
            variances=tuple(level.var for level in live.positions(known, deepest)),
        )
        for known, share in zip(live.classes, shares, strict=True)
    ]


def _slowness(live: Live, known: ClassLive, steps: dict[Arm, float]) -> float:
    """Factor of a class's step time against the mean of all, from the same arm's requests."""
    off = weight = 0.0
    for tally in known.tallies:
        level = _live_offset(live, tally.arm, steps)
        own = tally.mean_log_step
        if level is not None and not isinstance(own, Unknown):
            off += tally.timed * (own - steps[tally.arm] - level[0])
            weight += tally.timed
    return math.exp(off / (weight + CONTEXT_REQUESTS))


def _live_offset(live: Live, arm: Arm, steps: dict[Arm, float]) -> tuple[float, float] | None:
    """Log of an arm's live step time over the calibrated one, and how long ago it was seen.

    None where too few requests tell it, or where the arm is no longer feasible.
    """
    tallies = [t for c in live.classes for t in c.tallies if t.arm == arm and t.timed]
    timed = sum(t.timed for t in tallies)
    if arm not in steps or timed < LEAST_TIMED:
        return None
    mean = sum(t.log_step for t in tallies) / timed
    return mean - steps[arm], float(live.requests - max(t.at for t in tallies))


def _log_step(live: Live, cost: StepCost, now: StepCost) -> tuple[float, float]:
    """Log seconds per step of an arm, and the variance of its log ratio to the running one.

    The calibrated ratio is corrected by what both arms showed live, as far as both did. The
    level is that of the running arm: heat or a longer context move all arms alike.
    """
    steps = {c.arm: math.log(c.step_s) for c in (cost, now)}
    here = _live_offset(live, now.arm, steps)
    level = here[0] if here else 0.0
    if cost.arm == now.arm:
        return steps[now.arm] + level, 0.0
    prior = cost.sd**2 + now.sd**2
    there = _live_offset(live, cost.arm, steps)
    if here is None or there is None:
        return steps[cost.arm] + level, prior
    seen = LIVE_RATIO_SD**2 * (1 + there[1] / AGE_REQUESTS)
    trust = prior / (prior + seen)
    return steps[cost.arm] + level + trust * (there[0] - here[0]), prior * (1 - trust)


def _pace(mix: Sequence[_Mix], depth: int, log_step: float) -> _Pace:
    seconds: list[float] = []
    slopes: list[tuple[float, ...]] = []
    for one in mix:
        alphas = [sigmoid(eta) for eta in one.etas[:depth]]
        chain, chains = 1.0, []
        for alpha in alphas:
            chain *= alpha
            chains.append(chain)
        expected = 1 + sum(chains)
        needs = one.share * one.slowness * math.exp(log_step) / expected
        tail = 0.0
        gradient = [0.0] * len(one.etas)
        for place in reversed(range(depth)):
            tail += chains[place]
            gradient[place] = -needs * (1 - alphas[place]) * tail / expected
        seconds.append(needs)
        slopes.append(tuple(gradient))
    return _Pace(tuple(seconds), tuple(slopes))
