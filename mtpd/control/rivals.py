"""Which model of a pool stored measurements name in place of the one that runs. Pure.

Covers the choice by the pool's own rules and what it gains. Whether that earns a switch is the
policy's business (``tuner.rivals``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.control.deciding import choose_member
from tuner.compare import Incomparable
from tuner.pools import Objective
from tuner.speed import RUN_NOISE, TIE_RATIO, compare_speeds, speed_interval
from tuner.steps import START_SD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.control.deciding import PoolInputs
    from tuner.candidates import Candidate
    from tuner.speed import SpeedComparison
    from tuner.types import Arm, Interval

__all__ = ["SPEED", "Named", "named"]

SPEED: Final = "tok/s"
ENERGY: Final = "tok/J"

_Z95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The better model; see ``tuner.rivals.Rival`` for the attributes."""

    arm: Arm
    gain: float | None
    sd: float
    counts: str
    tps: Interval
    now_tps: float
    reason: str
    evidence: tuple[str, ...]


def named(
    asked: PoolInputs, rows: Sequence[Candidate], home: Candidate, now: Candidate
) -> Named | None:
    """The member that is better by the pool's rules; None where the one that runs may stay.

    It must be chosen among all, and again against the running model alone: a tie with that is
    no reason to switch, whatever a third one says. Both must have answered the same prompts.

    Args:
        asked: What the pool asks for; its incumbent is ``home``.
        rows: Every measured member at its depth, ``home`` among them.
        home: The model that runs, at the depth that was measured to be its best.
        now: The same at the depth at which it runs.
    """
    whole = choose_member(asked, rows)
    best = next((row for row in rows if row.arm == whole.arm), None)
    if best is None or best.name == home.name:
        return None
    if choose_member(asked, [home, best]).arm != best.arm:
        return None
    over_home, over_now = _over(best, home), _over(best, now)
    tps = None if best.summary is None else speed_interval(best.summary)
    if over_home is None or over_now is None or tps is None or not now.tps:
        return None
    counts, gain = SPEED, _gain(over_now) if over_home.faster else None
    energies = tuple(row.tokens_per_joule for row in (best, home, now))
    if asked.objective is Objective.EFFICIENCY and all(isinstance(e, float) for e in energies):
        of_best, of_home, of_now = (float(e) for e in energies if isinstance(e, float))
        counts = ENERGY
        gain = math.log(of_best / of_now) if of_best > of_home * (1 + TIE_RATIO) else None
    return Named(
        arm=best.arm,
        gain=None if asked.objective is Objective.QUALITY else gain,
        sd=_sd(over_now),
        counts=counts,
        tps=tps,
        now_tps=now.tps,
        reason=whole.reason,
        evidence=whole.evidence,
    )


def _over(best: Candidate, other: Candidate) -> SpeedComparison | None:
    """Speed of one over the other, paired by prompt; None where they share none."""
    if best.summary is None or other.summary is None:
        return None
    verdict = compare_speeds(best.summary, other.summary, own_texts=True)
    return None if isinstance(verdict, Incomparable) else verdict


def _gain(verdict: SpeedComparison) -> float:
    return math.log(verdict.ratio if verdict.interval is None else verdict.interval.mid)


def _sd(verdict: SpeedComparison) -> float:
    """Of the logarithm: the prompts' spread, and the offset that each engine start has."""
    spread = RUN_NOISE * math.sqrt(2)
    if verdict.interval is not None:
        spread = math.log(verdict.interval.high / verdict.interval.low) / (2 * _Z95)
    return math.hypot(spread, math.sqrt(2) * START_SD)
