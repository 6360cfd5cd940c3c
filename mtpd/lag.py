"""How late the event loop is: what it wants to do now waits for what it is doing.

A timer on a fixed grid of moments. Each moment counts, also those that passed while the loop
stood still, so that what is told is what something that comes at any moment has to wait. Covers
looking; what is made of it is the listener's business.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from mtpd.clock import Clock

__all__ = ["EVERY_S", "LagWatch"]

EVERY_S: Final = 0.25
"""Often enough for a distribution over minutes, and next to no processor time."""
EARLY_S: Final = 0.001
"""A timer may be early by the resolution of the clock."""
MOST: Final = 1000
"""Moments that are told after one standstill: a daemon that was stopped for a day goes on."""


class LagWatch:
    """Tells how late the loop was at every moment of the grid, in seconds, never below 0.

    Args:
        told: Takes each.
        clock: Source of time.
        every_s: Between two moments.
    """

    def __init__(
        self, *, told: Callable[[float], None], clock: Clock, every_s: float = EVERY_S
    ) -> None:
        self._told, self._clock, self._every_s = told, clock, every_s
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Look at a loop while the block runs."""
        # A timer and no task: a task is one turn of the loop later.
        self._due = self._clock.now() + self._every_s
        self._arm(loop)
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        wait_s = max(0.0, self._due - self._clock.now())
        self._timer = loop.call_later(wait_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._clock.now()
        if now >= self._due - EARLY_S:  # else another clock than the loop's is behind
            for _ in range(min(MOST, max(0, int((now - self._due) / self._every_s)) + 1)):
                self._told(max(0.0, now - self._due))
                self._due += self._every_s
            self._due = max(self._due, now)
        self._arm(loop)
