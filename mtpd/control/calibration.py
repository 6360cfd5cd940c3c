"""What stored measurements say of a model, as live requests are compared with it. Pure.

Covers the acceptance and the step times that live traffic starts from, and whether they
still hold. Which measurements these are is the journal's business.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.baseline import Baseline
from tuner.belief import believe
from tuner.outlook import StepCost
from tuner.stale import staleness
from tuner.steps import START_SD
from tuner.summary import summarise
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.config.model import Profile
    from mtpd.control.standing import Standing
    from mtpd.views import Json, MeasurementView
    from tuner.belief import Belief
    from tuner.plan import History
    from tuner.stale import Field
    from tuner.types import Arm

__all__ = ["MEASURE_S", "UNCALIBRATED", "Calibration", "calibration_of", "changes"]

UNCALIBRATED: Final = Baseline(alphas=(0.7,), steps=0.0)
"""What is believed of a draft head that nobody has measured: next to nothing."""

MEASURE_S: Final = 600.0
"""What a calibration is taken to cost until one was timed, seconds."""

_SHORT: Final = 12
_DIGEST: Final = re.compile(rf"\b([0-9a-f]{{{_SHORT}}})[0-9a-f]{{20,}}\b")
_ACCEPTANCE: Final = frozenset({"draft_file", "drafter", "engine", "kv_type", "model_file"})
"""Fields of a fingerprint of which the acceptance depends, beside the step times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a decision about a depth rests on.

    Attributes:
        decision_id: Its row in the journal.
        fingerprint: Digest of all that it holds for.
        measurements: The stored repetitions.
        baseline: Acceptance per position.
        belief: Step times of every depth, or why they are not known.
        spent_s: What it took.
    """

    decision_id: int
    fingerprint: str
    measurements: tuple[MeasurementView, ...]
    baseline: Baseline
    belief: Belief | Unknown
    spent_s: float

    @property
    def name(self) -> str:
        """Names it, for what is kept about it."""
        return f"{self.decision_id}:{self.fingerprint[:_SHORT]}"

    def step_s(self, profile: Profile) -> tuple[tuple[Arm, float], ...]:
        """Seconds per decode step of every depth that the profile allows now."""
        if isinstance(self.belief, Unknown):
            return ()
        return tuple(
            (profile.arm(depth), math.exp(self.belief.steps.mean[depth]))
            for depth in self._depths(self.belief, profile)
        )

    def costs(
        self, profile: Profile, running: Arm, fits: Callable[[Arm], bool]
    ) -> tuple[StepCost, ...]:
        """Step times of the arms that fit, with their error against the one that runs.

        Empty where the running one was not measured: nothing can then be compared with it.
        """
        if isinstance(self.belief, Unknown):
            return ()
        depths = self._depths(self.belief, profile)
        if running.depth not in depths or profile.arm(running.depth) != running:
            return ()
        mean, covariance = self.belief.steps.mean, self.belief.steps.covariance
        here = running.depth
        out: list[StepCost] = []
        for depth in depths:
            arm = profile.arm(depth)
            if arm != running and not fits(arm):
                continue
            spread = covariance[depth][depth] + covariance[here][here]
            variance = max(spread - 2 * covariance[depth][here], 0.0) + 2 * START_SD**2
            sd = 0.0 if arm == running else math.sqrt(variance)
            out.append(StepCost(arm=arm, step_s=math.exp(mean[depth]), sd=sd))
        return tuple(out)

    @staticmethod
    def _depths(belief: Belief, profile: Profile) -> range:
        return range(min(belief.deepest, profile.drafter.max_depth) + 1)


def calibration_of(standing: Standing) -> Calibration | None:
    """What a decision's measurements say; None where it rests on none."""
    told = standing.told
    if not told.observations:
        return None
    return Calibration(
        decision_id=standing.decision_id,
        fingerprint=told.observations[-1].fingerprint,
        measurements=standing.measurements,
        baseline=_baseline(told),
        belief=believe(told),
        spent_s=told.spent_s or MEASURE_S,
    )


def changes(
    before: Mapping[str, Json] | None, now: Mapping[str, Json]
) -> tuple[tuple[str, ...], bool]:
    """What changed since a calibration, one clause per field, and whether texts are as before.

    Args:
        before: The named fields of its fingerprint; None where only the digest is known.
        now: The same of the model as it would be started and run now.
    """
    if before is None:
        return ("what it was measured under is not recorded",), False
    known = {name: _field(before.get(name)) for name in now}
    fields = {name: _field(value) for name, value in now.items()}
    moved = {name for name in now if known[name] != fields[name]}
    return staleness(known, fields), not moved & _ACCEPTANCE


def _baseline(told: History) -> Baseline:
    """Acceptance of the deepest arm whose positions were counted."""
    rows = summarise(told.observations, told.starts)
    counted = [row.earning for row in rows if row.arm.depth]
    known = [counts for counts in counted if not isinstance(counts, Unknown) and counts.steps]
    if not known:
        return UNCALIBRATED
    counts = max(known, key=lambda one: len(one.accepted))
    chain = (counts.steps, *counts.accepted)
    alphas = tuple(after / before for before, after in itertools.pairwise(chain) if before)
    return Baseline(alphas=alphas, steps=counts.steps)


def _field(value: Json) -> Field:
    """A value as it is shown in one clause: of a digest the beginning."""
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if isinstance(value, str):
        return _DIGEST.sub(r"\1", value)
    return value if isinstance(value, int | float | bool) else None
