"""What live requests teach: acceptance and step time per class and arm, with forgetting.

The acceptance of a draft position is modelled on the logit scale as the calibrated value
plus three deviations (``tuner.level``): one common to all requests, one of the class, one of
the position in that class. A shift that all classes share is so learnt from every request at
once, and carries over to depths and classes that are not being seen. Beside the model every
class and arm keeps plain decayed counts, which is what is shown.

Covers one drafter of one profile at any depth, depth 0 included. Does not choose
(``tuner.outlook`` predicts, ``tuner.policy`` decides). Pure: ``push`` takes a state and gives
the next one; states hold plain values only and can be stored as JSON.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from tuner.acceptance import DEFAULT_PHI
from tuner.baseline import Baseline  # noqa: TC001 - a stored state resolves its hints
from tuner.classes import WorkloadClass  # noqa: TC001 - a stored state resolves its hints
from tuner.drift import LEARNING_REQUESTS, Cusum, Detector, Direction, Pace
from tuner.level import Level, deviation, logit, sigmoid, total_deviation
from tuner.request import Exclusion, Request, Usable, is_degenerate, usable
from tuner.tally import Tally
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from tuner.level import Seen

__all__ = ["KEPT", "Alarm", "ClassLive", "Live", "broken_head", "push"]

COMMON_SD: Final = 0.7
"""Prior standard deviation, in logits, of what all requests share."""

CLASS_SD: Final = 0.2
"""Prior standard deviation, in logits, of a class against the common deviation."""

COMMON_HALF: Final = 100
"""Requests after which half of what is known of the common deviation is forgotten."""

CLASS_HALF: Final = 300
"""Requests of a class after which half of its own deviation is forgotten."""

POSITION_HALF: Final = 1500
"""Requests of a class after which half of a position's own deviation is forgotten."""

MIX_HALF: Final = 150
"""Requests after which a token counts half in the class mix."""

KEPT: Final = 0.2
"""Share of the evidence that stays when drift is detected (TUNER.md section 3.6)."""

TAU2_START: Final = 0.09
"""Variance between requests, in squared logits, until it is measured."""

TAU2_REQUESTS: Final = 30
"""Requests that the starting value of the variance between requests counts for."""

BROKEN_SHARE: Final = 0.02
"""Accepted draft tokens per step up to which a draft head is broken; a chance hit is rarer, a
working head keeps more than 0.5."""

BROKEN_STEPS: Final = 500
"""Decayed steps from which that may be said."""

TAU2_MEMORY: Final = 500
_TAU2_LEAST: Final = 0.01
_CUT: Final = 9.0
_COMMON_PRIOR: Final = Level(1 / COMMON_SD**2)
_CLASS_PRIOR: Final = Level(1 / CLASS_SD**2)
_COMMON_KEEP: Final = math.exp2(-1 / COMMON_HALF)
_CLASS_KEEP: Final = math.exp2(-1 / CLASS_HALF)
_POSITION_KEEP: Final = math.exp2(-1 / POSITION_HALF)
_MIX_KEEP: Final = math.exp2(-1 / MIX_HALF)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something has moved. Asks for a fresh look and never switches by itself.

    Attributes:
        arm: What was running.
        klass: The class that moved; None if all did.
        acceptance: Which way the acceptance moved, or ``NONE``.
        pace: Which way the step time moved, or ``STEADY``.
        ratio: Step time over its reference; 1 for an alarm on acceptance.
    """

    arm: Arm
    klass: WorkloadClass | None
    acceptance: Direction = Direction.NONE
    pace: Pace = Pace.STEADY
    ratio: float = 1.0

    @property
    def voids(self) -> bool:
        """Whether stored results no longer hold: layers seem to have left the card."""
        return self.pace is Pace.EVICTED

    def __str__(self) -> str:
        """One clause for a sentence."""
        where = "all classes" if self.klass is None else f"class {self.klass}"
        if self.acceptance is not Direction.NONE:
            way = "risen" if self.acceptance is Direction.UP else "fallen"
            return f"acceptance has {way} in {where}"
        if self.pace is Pace.FASTER:
            return f"a step of {self.arm} takes less than its reference in {where}"
        return f"a step of {self.arm} takes {self.ratio:.2f}x of its reference in {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLive:
    """What is known of one class.

    Attributes:
        klass: The class.
        offset: Deviation of the class.
        positions: Deviation of each position that was looked at.
        tokens: Decayed tokens, as of request ``at``.
        at: Number of the last request of this class.
        detector: Watches the deviation from the baseline.
        tallies: Decayed counts and times per arm.
    """

    klass: WorkloadClass
    offset: Level = _CLASS_PRIOR
    positions: tuple[Level, ...] = ()
    tokens: float = 0.0
    at: int = 0
    detector: Detector = field(default_factory=Detector)
    tallies: tuple[Tally, ...] = ()

    def tally(self, arm: Arm) -> Tally | None:
        """Counts of an arm in this class, or None if it never served one."""
        return next((t for t in self.tallies if t.arm == arm), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """State: all that live requests of one drafter of one profile have taught.

    Attributes:
        profile: The model profile.
        drafter: What proposes tokens; ``NONE`` if the profile has no drafter.
        baselines: What the calibration says, per class; one of them for all others.
        step_s: Calibrated seconds per step by arm, references until live ones are known.
        common: Deviation that all requests share.
        tau2: Variance between requests, in squared logits.
        taught: Requests that ``tau2`` rests on.
        pooled: Watches the deviations of all requests together.
        requests: Requests that counted.
        classes: What is known per class, in order of appearance.
        excluded: Requests that did not count, by reason.
    """

    profile: str
    drafter: Drafter
    baselines: tuple[Baseline, ...]
    step_s: tuple[tuple[Arm, float], ...] = ()
    common: Level = _COMMON_PRIOR
    tau2: float = TAU2_START
    taught: int = TAU2_REQUESTS
    pooled: Cusum = field(default_factory=Cusum)
    requests: int = 0
    classes: tuple[ClassLive, ...] = ()
    excluded: tuple[tuple[Exclusion, int], ...] = ()

    def baseline(self, klass: WorkloadClass) -> Baseline:
        """The class's own baseline, or the one for all others."""
        other = self.baselines[0]
        for one in self.baselines:
            if one.klass == klass:
                return one
            if one.klass is None:
                other = one
        return other

    def reference_s(self, arm: Arm) -> float | None:
        """Calibrated seconds per step of an arm, or None."""
        return next((seconds for which, seconds in self.step_s if which == arm), None)

    def find(self, klass: WorkloadClass) -> ClassLive:
        """What is known of a class; the bare prior if it was never seen."""
        return next((c for c in self.classes if c.klass == klass), ClassLive(klass=klass))

    def positions(self, known: ClassLive, depth: int) -> tuple[Level, ...]:
        """Deviation of the first ``depth`` positions of a class."""
        have = known.positions[:depth]
        if len(have) == depth:
            return have
        base = self.baseline(known.klass)
        return have + tuple(base.level(place) for place in range(len(have), depth))

    def etas(self, known: ClassLive, depth: int) -> list[float]:
        """Log odds of the acceptance per position, as believed now."""
        base = self.baseline(known.klass)
        shared = self.common.mean + known.offset.mean
        levels = self.positions(known, depth)
        return [logit(base.alpha(i)) + shared + level.mean for i, level in enumerate(levels)]

    def share(self, known: ClassLive) -> float:
        """Decayed tokens of a class, as of now."""
        return known.tokens * _MIX_KEEP ** (self.requests - known.at)


def push(live: Live, one: Request) -> tuple[Live, tuple[Alarm, ...]]:
    """The state after one more request, and what it set off.

    Raises:
        ValueError: If the request's arm belongs to another profile or drafter.
    """
    if one.arm.profile != live.profile or one.arm.drafter not in {live.drafter, Drafter.NONE}:
        msg = f"{one.arm} ({one.arm.drafter}) does not belong to {live.profile} ({live.drafter})"
        raise ValueError(msg)
    seen = usable(one)
    if isinstance(seen, Exclusion):
        return _excluded(live, seen), ()
    known = live.find(one.klass)
    etas = live.etas(known, one.arm.depth)
    if etas and is_degenerate(seen, math.prod(sigmoid(eta) for eta in etas)):
        return _excluded(live, Exclusion.DEGENERATE), ()
    tally, paced = _tallied(live, known, one, seen)
    counted = ClassLive(
        klass=known.klass,
        offset=known.offset,
        positions=known.positions,
        tokens=live.share(known) * _MIX_KEEP + one.tokens,
        at=live.requests + 1,
        detector=known.detector,
        tallies=_put(known.tallies, tally, [t.arm == one.arm for t in known.tallies]),
    )
    found = _deviation(etas, seen) if etas else None
    if found is None:
        common = live.common.fade(_COMMON_KEEP)
        return _with(replace(live, common=common, requests=counted.at), counted), paced
    moved, drifted = _learnt(live, counted, _Look(one.arm, tuple(etas), seen, found))
    return moved, paced + drifted


def broken_head(live: Live, arm: Arm) -> str | None:
    """What is wrong with an arm's draft head, or None if it works or too little was seen."""
    tallies = [t for c in live.classes for t in c.tallies if t.arm == arm]
    steps, accepted = sum(t.steps for t in tallies), sum(t.accepted for t in tallies)
    if arm.depth == 0 or steps < BROKEN_STEPS or accepted > BROKEN_SHARE * steps:
        return None
    return f"{accepted:.0f} draft tokens were accepted in {steps:.0f} steps"


@dataclass(frozen=True, slots=True)
class _Look:
    """What one request showed against what was expected."""

    arm: Arm
    etas: tuple[float, ...]
    seen: Usable
    found: Seen


def _learnt(live: Live, known: ClassLive, look: _Look) -> tuple[Live, tuple[Alarm, ...]]:
    """Move the deviations towards what the request showed; common first, position last."""
    shift, variance = look.found.shift, look.found.variance
    levels = live.positions(known, look.arm.depth)
    before, offset = live.common, known.offset
    between = variance + live.tau2
    loose = before.var + offset.var + sum(level.var for level in levels) / len(levels) ** 2
    common = before.learn(before.mean + shift, between + offset.var, keep=_COMMON_KEEP)
    rest = shift - (common.mean - before.mean)
    moved = offset.learn(offset.mean + rest, between + common.var, keep=_CLASS_KEEP)
    rest -= moved.mean - offset.mean
    surprise = min(shift**2, _CUT * (between + loose)) - variance - loose
    taught = min(live.taught + 1, TAU2_MEMORY)
    known = ClassLive(
        klass=known.klass,
        offset=moved,
        positions=_positions_learnt(levels, look, rest, live.tau2 + common.var + moved.var)
        + known.positions[look.arm.depth :],
        tokens=known.tokens,
        at=known.at,
        detector=known.detector.push(before.mean + offset.mean + shift, variance + _TAU2_LEAST),
        tallies=known.tallies,
    )
    live = replace(
        live,
        common=common,
        tau2=max(live.tau2 + (surprise - live.tau2) / taught, _TAU2_LEAST),
        taught=taught,
        pooled=live.pooled.push(shift / math.sqrt(between + loose)),
        requests=known.at,
        classes=_put(live.classes, known, [c.klass == known.klass for c in live.classes]),
    )
    return _alarmed(live, known, look.arm)


def _alarmed(live: Live, known: ClassLive, arm: Arm) -> tuple[Live, tuple[Alarm, ...]]:
    """Forget most of what drift has made doubtful and say what moved."""
    everywhere, here = live.pooled.alarm, known.detector.alarm
    if everywhere is not Direction.NONE:
        alone = _only_here(live, known, everywhere)
        moved = [c.klass for c in live.classes if not alone or c.klass == known.klass]
        live = replace(
            live,
            common=live.common.fade(KEPT),
            pooled=live.pooled.reset(),
            classes=tuple(
                replace(c, detector=Detector()) if c.klass in moved else c for c in live.classes
            ),
        )
        klass = known.klass if alone else None
        return live, (Alarm(arm=arm, klass=klass, acceptance=everywhere),)
    if here is not Direction.NONE:
        doubtful = replace(
            known,
            offset=known.offset.fade(KEPT),
            positions=tuple(level.fade(KEPT) for level in known.positions),
            detector=Detector(),
        )
        return _with(live, doubtful), (Alarm(arm=arm, klass=known.klass, acceptance=here),)
    return live, ()


def _only_here(live: Live, known: ClassLive, way: Direction) -> bool:
    """Whether what all requests together show comes from one class alone.

    It does where those of the others that know what is normal for them are calm, and its own
    detector is on its way to the same alarm, or does not know yet what is normal.
    """
    others = [
        c.detector
        for c in live.classes
        if c.klass != known.klass and c.detector.requests >= LEARNING_REQUESTS
    ]
    own, threshold = known.detector, known.detector.cusum.h
    moves = own.requests < LEARNING_REQUESTS or own.cusum.sum(way) > threshold / 2
    return moves and bool(others) and all(one.cusum.sum(way) < threshold / 4 for one in others)


def _deviation(etas: list[float], seen: Usable) -> Seen | None:
    if seen.unidentified is not None:
        return total_deviation(etas, seen.decode_steps, seen.accepted, DEFAULT_PHI)
    return deviation(etas[: len(seen.hits)], seen.reached, seen.hits, DEFAULT_PHI)


def _positions_learnt(
    levels: tuple[Level, ...], look: _Look, rest: float, loose: float
) -> tuple[Level, ...]:
    """Each position's own deviation, from what the shared ones leave unexplained."""
    out = list(levels)
    shared = look.found.shift - rest
    for place, (n, hits) in enumerate(zip(look.seen.reached, look.seen.hits, strict=True)):
        p = sigmoid(look.etas[place] + shared)
        information = n * p * (1 - p)
        if information > 1:
            value = levels[place].mean + (hits - n * p) / information
            out[place] = levels[place].learn(
                value, DEFAULT_PHI / information + loose, keep=_POSITION_KEEP
            )
    return tuple(out)


def _tallied(
    live: Live, known: ClassLive, one: Request, seen: Usable
) -> tuple[Tally, tuple[Alarm, ...]]:
    """The arm's tally after the request, and an alarm if its step time has moved."""
    before = known.tally(one.arm) or Tally.fresh(one.arm, live.reference_s(one.arm))
    after = before.push(one, seen, live.requests + 1)
    pace = after.watch.pace
    if pace is Pace.STEADY:
        return after, ()
    alarm = Alarm(arm=one.arm, klass=known.klass, pace=pace, ratio=after.watch.ratio)
    return after.watched_anew(None), (alarm,)


def _with(live: Live, known: ClassLive) -> Live:
    """Put a class in its place, last if it is new."""
    same = [c.klass == known.klass for c in live.classes]
    return replace(live, classes=_put(live.classes, known, same))


def _put(items: tuple[Item, ...], new: Item, same: list[bool]) -> tuple[Item, ...]:
    """The items with the new one in the place of the same one, last if there is none."""
    if True not in same:
        return (*items, new)
    return tuple(new if hit else old for old, hit in zip(items, same, strict=True))


def _excluded(live: Live, why: Exclusion) -> Live:
    counts = dict(live.excluded)
    counts[why] = counts.get(why, 0) + 1
    return replace(live, excluded=tuple(sorted(counts.items())))
