"""How fast the queue moves, for an honest ``Retry-After``; pure."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean

__all__ = ["MAX_S", "Pace"]

MAX_S = 120
KEPT = 32
"""Requests whose mean is taken: enough to smooth, few enough to follow a change of model."""


class Pace:
    """Remembers how long the latest requests used an engine, and how the queue moved."""

    def __init__(self) -> None:
        self._used_s: deque[float] = deque(maxlen=KEPT)
        self._apart_s: deque[float] = deque(maxlen=KEPT)
        self._admitted: float | None = None

    def admitted(self, arrived: float, now: float) -> None:
        """A request's turn has come.

        Where it was waiting already when the one before it was admitted, the time between
        the two is what one turn of the queue takes, changes of engine included.
        """
        if self._admitted is not None and arrived <= self._admitted:
            self._apart_s.append(max(0.0, now - self._admitted))
        self._admitted = now

    def ended(self, used_s: float) -> None:
        """A request has used an engine for so many seconds."""
        self._used_s.append(max(0.0, used_s))

    def wait_s(self, *, waiting: int, running: int) -> float | None:
        """Seconds until those who wait now have had their turn; None before the first request.

        Every turn takes what the latest turns took, whatever their order was. While none
        was seen, each of the ``running`` places becomes free once in a mean time of use
        (Little's law with the arrivals left out, as who is told to come back does not wait).
        """
        if self._apart_s:
            return waiting * fmean(self._apart_s)
        if not self._used_s:
            return None
        return waiting * fmean(self._used_s) / max(1, running)

    def retry_after_s(self, least_s: int, *, waiting: int, running: int) -> int:
        """Whole seconds for the header: the forecast, at least what is known to be needed.

        Args:
            least_s: What is known without a forecast, at least 1.
            waiting: Requests in the queue.
            running: Requests that use an engine.
        """
        return _whole(least_s, self.wait_s(waiting=waiting, running=running))

    def place_after_s(self, least_s: int, *, running: int) -> int:
        """Whole seconds until one of at least one that run has ended."""
        forecast = fmean(self._used_s) / running if self._used_s else None
        return _whole(least_s, forecast)


def _whole(least_s: int, forecast: float | None) -> int:
    return least_s if forecast is None else min(MAX_S, max(least_s, math.ceil(forecast)))
