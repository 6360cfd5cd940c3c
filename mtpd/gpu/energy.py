"""Joules that a card drew since the daemon watches it: never less than before.

By the card's own counter where it has one, else by the power between two readings that are
close enough. A stretch that was not watched adds nothing, so the sum may be short, never long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from mtpd.types import Reading
    from tuner.power import PowerSample

__all__ = ["MAX_GAP_S", "EnergyCount"]

MAX_GAP_S: Final = 10.0
"""Two readings of an idle card are 5 s apart; one may be late or missing."""


class EnergyCount:
    """The sum; the one writer is the sampler."""

    def __init__(self) -> None:
        self._last: PowerSample | None = None
        self._joules: float | None = None
        self._source = ""

    @property
    def joules(self) -> Reading[float]:
        """Absent until the card was seen to tell its energy or its power."""
        if self._joules is None:
            return Absent("the card has told neither its energy nor its power yet")
        return Value(self._joules, self._source)

    def pause(self) -> None:
        """Nothing is known between the last reading and the next."""
        self._last = None

    def add(self, sample: PowerSample) -> None:
        """Take the next reading."""
        before, self._last = self._last, sample
        if sample.energy_j is None and sample.power_w is None:
            return
        self._source = "integrated" if sample.energy_j is None else "counter"
        gained_j = 0.0 if before is None else _between(before, sample)
        self._joules = (self._joules or 0.0) + gained_j


def _between(before: PowerSample, now: PowerSample) -> float:
    """Joules between two readings; 0 where they do not tell."""
    if before.energy_j is not None and now.energy_j is not None:
        return max(0.0, now.energy_j - before.energy_j)  # a driver's reload begins anew
    gap_s = now.at_s - before.at_s
    if before.power_w is None or now.power_w is None or not 0 < gap_s <= MAX_GAP_S:
        return 0.0
    return gap_s * (before.power_w + now.power_w) / 2
