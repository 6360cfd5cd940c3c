"""Every lane of the daemon: made when it is first asked for, timed, bounded, closed.

Covers what concerns all lanes alike. What happens in one is ``mtpd.proxy.lane``'s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio

from mtpd.proxy import admission
from mtpd.proxy.admission_types import Bound, Close, Forget, Mended
from mtpd.proxy.lane import Lane
from mtpd.proxy.limits import order_of
from mtpd.views import QueueView

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.proxy.limits import Limits
    from mtpd.proxy.seats import Seat, Seating

__all__ = ["Lanes"]


class Lanes:
    """The lanes by seat.

    Args:
        seating: The seats.
        limits: Length and patience of each queue.
        clock: Source of time.
        on_want: Told which lane wants an engine of which profile.

    Attributes:
        by_seat: Those that somebody has asked for.
        closed: Why everybody is turned away, or None.
    """

    def __init__(
        self,
        *,
        seating: Seating,
        limits: Limits,
        clock: Clock,
        on_want: Callable[[Lane, str], None],
    ) -> None:
        self._seating, self._limits, self._clock = seating, limits, clock
        self._on_want = on_want
        self._rearmed, self._came = anyio.Event(), anyio.Event()
        self.by_seat: dict[Seat, Lane] = {}
        self.closed: str | None = None

    def of(self, profile: str) -> Lane:
        """The lane of a profile."""
        return self.at(self._seating.seat(profile))

    def at(self, seat: Seat) -> Lane:
        """The lane of a seat."""
        if seat not in self.by_seat:
            lane = self.by_seat[seat] = Lane(
                seat=seat,
                limit=self._limits.max_waiting,
                timeout_s=self._limits.queue_timeout_s,
                order=order_of(self._limits),
                clock=self._clock,
                on_want=self._on_want,
                on_waiting=self._rearm,
            )
            if self.closed is not None:
                lane.post(Close(self.closed))
        return self.by_seat[seat]

    def there(self) -> tuple[Lane, ...]:
        """Those that somebody has asked for."""
        return tuple(self.by_seat.values())

    def every(self) -> tuple[Lane, ...]:
        """Those of every seat, also of seats that nobody has asked for yet."""
        return tuple(self.at(seat) for seat in sorted({*self._seating.seats(), *self.by_seat}))

    def close(self, reason: str) -> None:
        """Turn away everybody who waits or comes, and cut what runs."""
        self.closed = reason
        for lane in self.there():
            lane.post(Close(reason))
            lane.cut()

    def bound(self, limits: Limits) -> None:
        """Let other limits hold for requests that come from now on."""
        self._limits = limits
        for lane in self.there():
            lane.post(Bound(limits.max_waiting, limits.queue_timeout_s, order_of(limits)))

    def forget(self, profile: str, why: str) -> None:
        """Turn away those who wait for a profile that is not served any more."""
        for lane in self.there():
            lane.post(Forget(profile, why))

    def mend(self, profile: str) -> None:
        """Try a profile again that failed to start."""
        for lane in self.there():
            lane.post(Mended(profile))

    def queue(self) -> QueueView:
        """Who waits and who runs."""
        states = [lane.state for lane in self.there()]
        return QueueView(
            waiting=sum(len(state.waiting) for state in states),
            limit=self._limits.max_waiting * max(1, len(states)),
            timeout_s=self._limits.queue_timeout_s,
            in_flight=sum(len(state.running) for state in states),
        )

    def ahead(self, request_id: str) -> int:
        """How many requests that wait rank before one that waits, too."""
        return sum(lane.ahead(request_id) for lane in self.there())

    async def until_waited_for(self) -> None:
        """Return as soon as a request waits for an engine."""
        while not self.queue().waiting:
            await self._came.wait()

    def tick(self) -> None:
        """Turn away those who have waited too long; ``keep_time`` does it when it is due."""
        for lane in self.there():
            lane.tick()

    async def keep_time(self) -> None:
        """Tick whenever it is due, until cancelled."""
        while True:
            self._rearmed = anyio.Event()
            due = [admission.next_deadline(lane.state) for lane in self.there()]
            first = min((at for at in due if at is not None), default=math.inf)
            with anyio.move_on_after(max(0.0, first - self._clock.now())):
                await self._rearmed.wait()
            self.tick()

    def _rearm(self) -> None:
        self._rearmed.set()
        self._came.set()
        self._came = anyio.Event()  # each waits for its own, however many there are
