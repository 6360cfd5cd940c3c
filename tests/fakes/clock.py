"""A clock that stands still until a test moves it."""

from __future__ import annotations

import datetime as dt


class FakeClock:
    """Monotonic and wall time that move together."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._utc = dt.datetime(2026, 11, 29, 12, 0, tzinfo=dt.UTC)

    def now(self) -> float:
        return self._now

    def utc(self) -> dt.datetime:
        return self._utc

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._utc += dt.timedelta(seconds=seconds)
