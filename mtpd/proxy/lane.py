"""One seat: its queue, its requests, and what serves them.

Every change goes through ``post``, which takes one step of the admission machine and
carries out its effects before it returns; so there is one writer, and no await between
a decision and its effect. Who may start and stop the engine is whoever holds ``lock`` and
then has the turn of the device (``mtpd.proxy.turns``, which states the order of locks).
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

import anyio
import structlog

from mtpd.proxy import admission
from mtpd.proxy.admission_types import (
    Admit,
    Arrive,
    Drained,
    Effect,
    Event,
    Hold,
    Leave,
    Reject,
    Release,
    State,
    Tick,
    WantEngine,
)
from mtpd.proxy.order import before
from mtpd.proxy.outcomes import DrainTimeoutError, RejectedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mtpd.clock import Clock
    from mtpd.proxy.admission_types import Claim, Order
    from mtpd.proxy.seats import Seat

__all__ = ["Lane", "Ticket"]

log = structlog.get_logger()

CUT_S = 5.0
"""How long requests that were cut may take to end."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request's place in a lane.

    Attributes:
        id: Unique within the lane.
        request_id: What others know the request by.
        cut: Cancelled when the request must let go of its engine.
    """

    id: int
    request_id: str
    outcome: Admit | Reject | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    cut: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Lane:
    """The queue of one seat.

    Attributes:
        seat: Which.
        lock: Held by whoever changes what serves it.
        used_at: When a request came or ended last; minus infinity before the first.
    """

    def __init__(
        self,
        *,
        seat: Seat,
        limit: int,
        timeout_s: float,
        order: Order,
        clock: Clock,
        on_want: Callable[[Lane, str], None],
        on_waiting: Callable[[], None],
    ) -> None:
        self.seat = seat
        self.state = State(limit=limit, timeout_s=timeout_s, order=order)
        self.lock = anyio.Lock()
        self._clock = clock
        self._on_want, self._on_waiting = on_want, on_waiting
        self._tickets: dict[int, Ticket] = {}
        self._last_id = 0
        self._drained = anyio.Event()
        self._parked, self._moved = False, anyio.Event()
        self.used_at = -math.inf

    @property
    def is_busy(self) -> bool:
        """Whether requests run or wait."""
        return bool(self.state.running or self.state.waiting)

    def park(self, *, parked: bool) -> None:
        """Say whether the owner of the lock only waits, and lets who has the device act."""
        self._parked = parked
        self._stir()

    def post(self, event: Event) -> None:
        """Take one step; never blocks, never fails."""
        now = replace(self.state, now=self._clock.now())
        self.state, effects = admission.step(now, event)
        for effect in effects:
            self._execute(effect)
        self._stir()

    def tick(self) -> None:
        """Turn away those whose time is up."""
        self.post(Tick(self._clock.now()))

    def arrive(self, profile: str, claim: Claim, request_id: str) -> Ticket:
        """Queue a request; its ticket says when and how it was decided."""
        self._last_id += 1
        self.used_at = self._clock.now()
        ticket = self._tickets[self._last_id] = Ticket(self._last_id, request_id)
        log.debug("request.arrived", request_id=request_id, profile=profile, ticket=ticket.id)
        self.post(Arrive(ticket.id, profile, self._clock.now(), claim))
        if ticket.outcome is None:
            self._on_waiting()
        return ticket

    async def admitted(self, ticket: Ticket) -> None:
        """Wait for the turn of a request.

        Raises:
            RejectedError: It was turned away.
        """
        await ticket.decided.wait()
        if isinstance(ticket.outcome, Reject):
            rejected = ticket.outcome
            raise RejectedError(
                rejected.why, kind=rejected.kind.value, retry_after_s=rejected.retry_after_s
            )

    def ahead(self, request_id: str) -> int:
        """How many requests that wait rank before one that waits, too."""
        state = self.state
        mine = (one for one in state.waiting if self._tickets[one.id].request_id == request_id)
        return sum(len(before(state, waiter)) for waiter in mine)

    def end(self, ticket: Ticket) -> None:
        """The request is over, wherever it was."""
        del self._tickets[ticket.id]
        self.used_at = self._clock.now()
        self.post(Leave(ticket.id))

    @asynccontextmanager
    async def exclusive(self, reason: str, *, force: bool, timeout_s: float) -> AsyncIterator[None]:
        """Have the seat alone while the block runs: nobody is admitted, nothing runs.

        Args:
            reason: What those who wait too long are told.
            force: Cut what still runs when the patience ends.
            timeout_s: The patience.

        Raises:
            DrainTimeoutError: Requests still run and ``force`` was not asked for.
        """
        async with self.owned(), self._held(reason, force=force, timeout_s=timeout_s):
            yield

    @asynccontextmanager
    async def owned(self) -> AsyncIterator[None]:
        """Be the only one who changes what serves the seat while the block runs."""
        async with self.lock:
            try:
                yield
            finally:
                self.park(parked=False)

    @asynccontextmanager
    async def lent(self, reason: str, *, timeout_s: float) -> AsyncIterator[None]:
        """Have it drained while the block runs, for whoever has the device's turn.

        Its owner, if it has one, waits for that turn; one that still drains is waited for.

        Raises:
            DrainTimeoutError: Requests still run.
        """
        with anyio.move_on_after(timeout_s):
            while self.lock.locked() and not self._parked:
                await self._moved.wait()
        if not self.lock.locked():
            async with self.exclusive(reason, force=False, timeout_s=timeout_s):
                yield
        elif not self._parked:
            raise self._still_runs(timeout_s)
        elif self.state.held is not None:
            yield  # its owner has drained it
        else:
            async with self._held(reason, force=False, timeout_s=timeout_s):
                yield

    @asynccontextmanager
    async def _held(self, reason: str, *, force: bool, timeout_s: float) -> AsyncIterator[None]:
        self._drained = anyio.Event()
        self.post(Hold(reason))
        try:
            await self._drain(force=force, timeout_s=timeout_s)
            yield
        finally:
            self.post(Release())

    async def _drain(self, *, force: bool, timeout_s: float) -> None:
        with anyio.move_on_after(timeout_s):
            await self._drained.wait()
        if self._drained.is_set():
            return
        if not force:
            raise self._still_runs(timeout_s)
        log.warning("lane.cut", seat=str(self.seat), requests=len(self.state.running))
        self.cut()
        with anyio.move_on_after(CUT_S):
            await self._drained.wait()

    def _still_runs(self, timeout_s: float) -> DrainTimeoutError:
        msg = f"{len(self.state.running)} request(s) still ran after {timeout_s:g} s"
        hint = "try again later, or force the change, which cuts them"
        return DrainTimeoutError(msg, hint=hint)

    def _stir(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    def cut(self) -> None:
        """Make every running request let go of its engine."""
        for ticket in tuple(self._tickets.values()):
            if isinstance(ticket.outcome, Admit):
                ticket.cut.cancel()

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Admit(who) | Reject(who):
                ticket = self._tickets[who]
                ticket.outcome = effect
                ticket.decided.set()
            case WantEngine(profile):
                self._on_want(self, profile)
            case Drained():
                self._drained.set()
            case _:
                assert_never(effect)
