"""Time series in bounded memory: rings of bins on a fixed grid, and what is read from them.

Pure: moments are monotonic seconds of the caller's clock. A bin in which nothing was seen is
a gap and stays one, whatever is read: it is never 0 and nothing is drawn across it.

Memory is fixed when a series is made: four numbers of eight bytes for every bin of every
ring, with ``RINGS`` 68 KiB.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MOST_POINTS", "RINGS", "Bin", "Grid", "Ring", "Series", "grid", "pooled"]

RINGS: Final = ((5.0, 720), (60.0, 1440))
"""Seconds of a bin and number of bins, the finest first: an hour, and a day. A card that
rests is read every five seconds, so that every bin of it has a reading."""

MOST_POINTS: Final = 2000
"""What is read at once: more than a screen has columns."""


@dataclass(frozen=True, slots=True)
class Bin:
    """What was seen within one stretch of time.

    Attributes:
        mean: Weighted mean.
        low: Lowest value.
        high: Highest value.
        weight: Sum of the weights, more than 0.
    """

    mean: float
    low: float
    high: float
    weight: float


def pooled(bins: Iterable[Bin | None]) -> Bin | None:
    """Several stretches as one; None where nothing was seen in any of them."""
    seen = [one for one in bins if one is not None]
    if not seen:
        return None
    weight = math.fsum(one.weight for one in seen)
    low, high = min(one.low for one in seen), max(one.high for one in seen)
    mean = math.fsum(one.mean * (one.weight / weight) for one in seen)
    # Rounding must not carry a mean out of its own bounds.
    return Bin(min(max(mean, low), high), low, high, weight)


class Ring:
    """The latest bins of one grid.

    Args:
        step_s: Length of a bin, seconds.
        size: How many are kept.
    """

    def __init__(self, step_s: float, size: int) -> None:
        self.step_s, self.size = step_s, size
        self._newest: int | None = None
        self._weight, self._mean, self._low, self._high = (
            array("d", bytes(8 * size)) for _ in range(4)
        )

    def add(self, at_s: float, value: float, weight: float) -> None:
        """Take a value; one that is older than the ring is passed over."""
        number = math.floor(at_s / self.step_s)
        newest = number if self._newest is None else self._newest
        if number <= newest - self.size:
            return
        for fresh in range(max(newest + 1, number - self.size + 1), number + 1):
            self._weight[fresh % self.size] = 0.0
        self._newest, place = max(newest, number), number % self.size
        one = pooled((self._at(place), Bin(value, value, value, weight)))
        if one is not None:
            self._weight[place], self._mean[place] = one.weight, one.mean
            self._low[place], self._high[place] = one.low, one.high

    def read(self, begin: int, end: int) -> list[Bin | None]:
        """The bins from one number up to another; those that are not kept are gaps."""
        newest = self._newest
        if newest is None:
            return [None] * (end - begin)
        return [
            self._at(number % self.size) if newest - self.size < number <= newest else None
            for number in range(begin, end)
        ]

    def _at(self, place: int) -> Bin | None:
        weight = self._weight[place]
        if weight <= 0:
            return None
        return Bin(self._mean[place], self._low[place], self._high[place], weight)


@dataclass(frozen=True, slots=True)
class Grid:
    """Which bins are read.

    Attributes:
        ring: Place of the ring in ``RINGS``.
        step_s: Length of a bin that is read: a multiple of the ring's.
        first: Number of the first one, counted from moment 0 in steps of ``step_s``.
        count: How many.
    """

    ring: int
    step_s: float
    first: int
    count: int

    @property
    def begin_s(self) -> float:
        """When the first one begins."""
        return self.first * self.step_s


def grid(
    now_s: float,
    *,
    since_s: float,
    step_s: float,
    rings: Sequence[tuple[float, int]] = RINGS,
    most: int = MOST_POINTS,
) -> Grid:
    """The grid for a wish: the finest ring that reaches back so far, in steps it can give.

    The last bin is the one that is not over yet.

    Args:
        now_s: The present.
        since_s: How far back.
        step_s: Wanted length of a bin; it may become longer, never shorter.
        rings: Seconds of a bin and number of bins, the finest first.
        most: Bins that are read at most.
    """
    reach = [index for index, (step, size) in enumerate(rings) if step * size >= since_s]
    ring = reach[0] if reach else len(rings) - 1
    base_s, size = rings[ring]
    since_s = min(since_s, base_s * size)
    times = max(1, math.ceil(step_s / base_s), math.ceil(since_s / most / base_s))
    step_s = times * base_s
    count = min(most, max(1, math.ceil(since_s / step_s)))
    return Grid(ring, step_s, math.floor(now_s / step_s) + 1 - count, count)


class Series:
    """One quantity over time, in every ring.

    Args:
        rings: Seconds of a bin and number of bins, the finest first.
    """

    def __init__(self, rings: Sequence[tuple[float, int]] = RINGS) -> None:
        self._rings = tuple(Ring(step_s, size) for step_s, size in rings)

    def add(self, at_s: float, value: float, weight: float = 1.0) -> None:
        """Take a value of a moment; no number, or one without weight, says nothing."""
        if math.isfinite(value) and math.isfinite(weight) and weight > 0:
            for ring in self._rings:
                ring.add(at_s, value, weight)

    def read(self, wanted: Grid) -> list[Bin | None]:
        """The bins of a grid, oldest first."""
        ring = self._rings[wanted.ring]
        times = round(wanted.step_s / ring.step_s)
        first = wanted.first * times
        fine = ring.read(first, first + wanted.count * times)
        return [pooled(fine[i : i + times]) for i in range(0, len(fine), times)]
