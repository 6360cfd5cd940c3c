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
    """Remembers how long the latest requests used an engine."""

    def __init__(self) -> None:
        self._used_s: deque[float] = deque(maxlen=KEPT)

    def ended(self, used_s: float) -> None:
        """A request has used an engine for so many seconds."""
        self._used_s.append(max(0.0, used_s))

    def wait_s(self, *, waiting: int, running: int) -> float | None:
        """Seconds until those who wait now have had their turn; None before the first request.

        Each of the ``running`` places becomes free once in a mean time of use (Little's
        law with the arrivals left out, as who is told to come back does not wait).
        """
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
        forecast = self.wait_s(waiting=waiting, running=running)
        return least_s if forecast is None else min(MAX_S, max(least_s, math.ceil(forecast)))
