"""The only module that reads time."""

from __future__ import annotations

import datetime as dt
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "rfc3339"]


class Clock(Protocol):
    """A source of monotonic seconds for durations and of wall time for display."""

    def now(self) -> float:
        """Monotonic seconds since an arbitrary start."""

    def utc(self) -> dt.datetime:
        """Wall time in UTC; for display and records, never for durations."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Monotonic seconds since an arbitrary start."""
        return time.monotonic()

    def utc(self) -> dt.datetime:
        """Wall time in UTC; for display and records, never for durations."""
        return dt.datetime.now(tz=dt.UTC)


def rfc3339(moment: dt.datetime) -> str:
    """A moment in UTC as it is stored and shown, e.g. ``2026-11-29T22:39:00.123Z``."""
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
