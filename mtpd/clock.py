"""The only module that reads time."""

from __future__ import annotations

import datetime as dt
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


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
