"""What a calibration says of the acceptance in a class: where live beliefs start from.

Within the calibrated positions the measured conditional acceptances, beyond them the last
ratio goes on; how far live traffic may lie from either is a prior with a stated width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuner.acceptance import DEFAULT_PHI
from tuner.classes import WorkloadClass  # noqa: TC001 - a stored state resolves its hints
from tuner.level import Level

__all__ = ["Baseline"]

POSITION_SD: Final = 0.1
"""Prior standard deviation, in logits, of a calibrated position beyond its counting error."""

UNMEASURED_SD: Final = 0.35
"""The same of a position that the calibration did not reach: its ratio to the last one varies
between heads by about 6 % (TUNER.md section 1), 0.35 logits at an acceptance of .8."""

_ALPHA_RANGE: Final = (0.005, 0.995)
_RATIO_RANGE: Final = (0.7, 1.0)
_UNKNOWN_RATIO: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a calibration says of the acceptance in a class.

    Attributes:
        klass: The class; None for every class that has no baseline of its own.
        alphas: Conditional acceptance per position, at least one.
        steps: Verification steps that it rests on.
    """

    klass: WorkloadClass | None = None
    alphas: tuple[float, ...]
    steps: float

    def alpha(self, place: int) -> float:
        """Acceptance at a 0-based position; beyond the calibration the last ratio goes on."""
        low, high = _ALPHA_RANGE
        known = self.alphas
        if place < len(known):
            return min(max(known[place], low), high)
        ratio = _UNKNOWN_RATIO
        if len(known) > 1 and known[-2] > 0:
            ratio = min(max(known[-1] / known[-2], _RATIO_RANGE[0]), _RATIO_RANGE[1])
        return min(max(known[-1] * ratio ** (place + 1 - len(known)), low), high)

    def level(self, place: int) -> Level:
        """What a position may deviate from its baseline, nothing learnt yet."""
        if place >= len(self.alphas):
            return Level(1 / UNMEASURED_SD**2)
        reached = self.steps
        for before in range(place):
            reached *= self.alpha(before)
        p = self.alpha(place)
        return Level(1 / (POSITION_SD**2 + DEFAULT_PHI / (max(reached, 1.0) * p * (1 - p))))
