"""Whether acceptance or step time has moved: a two-sided CUSUM over standardised values.

An alarm asks for a fresh look; it never switches anything by itself. Standardising is the
caller's part (``tuner.compare.request_z``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Cusum", "Direction", "alarm_index", "cusum"]


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
