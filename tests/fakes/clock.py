"""A clock that stands still until a test moves it."""

from __future__ import annotations

import datetime as dt


class FakeClock:
    """Monotonic and wall time that move together, but for a suspend."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._utc = dt.datetime(2026, 11, 29, 12, 0, tzinfo=dt.UTC)
        self._slept = 3600.0

    def now(self) -> float:
        return self._now

    def utc(self) -> dt.datetime:
        return self._utc

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._utc += dt.timedelta(seconds=seconds)

    def slept(self) -> float:
        return self._slept

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: only the wall clock goes on."""
        self._slept += seconds
        self._utc += dt.timedelta(seconds=seconds)
