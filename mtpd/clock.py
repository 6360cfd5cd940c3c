"""The only module that reads time."""

from __future__ import annotations

import datetime as dt
import time
from typing import Final, Protocol

__all__ = ["Clock", "SystemClock", "rfc3339"]

_AT_ONCE_S: Final = 0.1
"""Within so many seconds two clocks are read at the same moment."""


class Clock(Protocol):
    """A source of monotonic seconds for durations and of wall time for display.

    What is subtracted from each other is always of ``now``, which no change of the wall clock
    moves, and which stands still while the machine is suspended.
    """

    def now(self) -> float:
        """Monotonic seconds since an arbitrary start."""

    def utc(self) -> dt.datetime:
        """Wall time in UTC; for display and records, never for durations."""

    def slept(self) -> float:
        """Seconds that ``now`` stood still because the machine was suspended, since some start.

        Only a difference says something: ``mtpd.suspend``.
        """


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Monotonic seconds since an arbitrary start."""
        return time.monotonic()

    def utc(self) -> dt.datetime:
        """Wall time in UTC; for display and records, never for durations."""
        return dt.datetime.now(tz=dt.UTC)

    def slept(self) -> float:
        """Seconds that ``now`` stood still because the machine was suspended, since some start."""
        while True:
            before = time.monotonic()
            since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
            after = time.monotonic()
            if after - before <= _AT_ONCE_S:  # else the process stood still in between
                return since_boot - after


def rfc3339(moment: dt.datetime) -> str:
    """A moment in UTC as it is stored and shown, e.g. ``2026-11-29T22:39:00.123Z``."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
