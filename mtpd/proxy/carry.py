"""The life of one request from the moment its model is known: turn, tries, end, record.

Needs an ``AppRunner`` with ``handler_cancellation=True``: a client that leaves cancels
the handler, and that closes the connection to the engine, which ends the generation.
"""

from __future__ import annotations

import math
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog
from aiohttp import web

from mtpd.events import RequestFinished
from mtpd.proxy import replies
from mtpd.proxy.admission_types import ORDINARY, Claim
from mtpd.proxy.callers import CALLER
from mtpd.proxy.company import Company
from mtpd.proxy.headers import served_by
from mtpd.proxy.herald import TICK_S, Herald
from mtpd.proxy.loading import Words, speaks
from mtpd.proxy.open_requests import OpenRequest
from mtpd.proxy.outcomes import (
    NoStreamError,
    RejectedError,
    SlowEngineError,
    UpstreamLostError,
)
from mtpd.proxy.outlet import ClientGoneError
from mtpd.proxy.pace import Pace
from mtpd.proxy.poison import CULPABLE, Death
from mtpd.proxy.quotas import Quotas, Visit
from mtpd.proxy.relay import Exchange
from mtpd.proxy.usage import usage_of
from mtpd.proxy.wishes import DEADLINE_HEADER, BadWish, Wishes, wishes
from mtpd.suspend import lasted_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mtpd.clock import Clock
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.open_requests import OpenRequests
    from mtpd.proxy.quarantine import Quarantine
    from mtpd.proxy.relay import Order
    from mtpd.views import EngineView, FailureView, QueueView

__all__ = ["Board", "Carrier"]

log = structlog.get_logger()

ATTEMPTS = 2
CLIENT_GONE = 499
FAILED = 400
FORECAST = frozenset({"full", "deadline", "caller", "model"})
"""Rejections of a queue that moves; the others know themselves when to come back."""


class Board(Protocol):
    """What is needed of the switchboard."""

    @property
    def closed(self) -> bool:
        """Whether everybody is turned away."""

    def lease(
        self, profile: str, *, request_id: str, claim: Claim = ORDINARY
    ) -> AbstractAsyncContextManager[Lease]:
        """Use a ready engine while the block runs; raises RejectedError."""

    def ahead(self, request_id: str) -> int:
        """How many requests that wait rank before one that waits, too."""

    def beside(self, profile: str) -> Lease | None:
        """A ready engine for a request that needs no slot and may be cut; None to wait."""

    async def recheck(self, lease: Lease) -> FailureView | None:
        """Let the supervisor notice that an engine broke off; of what it died of itself."""

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine."""

    def queue(self) -> QueueView:
        """Who waits and who runs."""


@dataclass(slots=True)
class Record:
    """What is known of a request so far; becomes its event."""

    id: str
    path: str
    profile: str
    wishes: Wishes
    visit: Visit
    began: float
    slept: float
    shown: OpenRequest
    outcome: str = "failed"
    status: int = 500
    herald: Herald | None = None
    refused: str | None = None
    lost: Lease | None = None
    waited_s: float | None = None


class Carrier:
    """Carries requests to engines.

    Args:
        board: Leases engines.
        on_finished: Told of every request once it has ended.
        clock: Measures durations.
        headers: Of every response.
        tick_s: Between two words to a client that waits, where it is told any.
        quotas: How many requests may be open at once.
        quarantine: Keeps away what has brought engines down.
        requests: Shows those that are open.
    """

    def __init__(
        self,
        *,
        board: Board,
        on_finished: Callable[[RequestFinished], None],
        clock: Clock,
        headers: Mapping[str, str],
        tick_s: float = TICK_S,
        quotas: Quotas,
        quarantine: Quarantine,
        requests: OpenRequests,
    ) -> None:
        self._board, self._on_finished, self._clock = board, on_finished, clock
        self._headers, self._tick_s, self._quotas = headers, tick_s, quotas
        self._quarantine, self._pace, self._company = quarantine, Pace(), Company()
        self._requests = requests

    async def carry(self, request: web.Request, profile: str, order: Order) -> web.StreamResponse:
        """Serve one request, whatever happens to it."""
        asked = wishes(request.headers)
        if isinstance(asked, BadWish):
            refused = replies.error(400, asked.message, code="invalid_header", param=asked.header)
            refused.headers.update(self._headers)
            return refused
        visit = Visit(profile, request.get(CALLER))
        shown = OpenRequest(
            id=secrets.token_hex(8),
            profile=profile,
            path=request.path,
            priority=asked.priority,
            caller=visit.caller,
            came=self._clock.now(),
        )
        record = Record(
            shown.id, request.path, profile, asked, visit, shown.came, self._clock.slept(), shown
        )
        record.herald = self._herald(order, record)
        headers = {**self._headers, **served_by(profile, order.why)}
        exchange = Exchange(request, order, headers=headers)
        shown.events = lambda: exchange.events
        try:
            with self._requests.shown(shown):
                return await self._served(exchange, record)
        except ClientGoneError:
            record.outcome, record.status = "client_gone", CLIENT_GONE
            exchange.hang_up()
            gone = web.Response(status=CLIENT_GONE)
            return gone if exchange.response is None else exchange.response
        except anyio.get_cancelled_exc_class():
            record.outcome, record.status = "client_gone", CLIENT_GONE
            raise
        finally:
            self._report(record, exchange)
            if record.lost is not None:  # its client, who has been told by now, need not wait
                with anyio.CancelScope(shield=True):
                    await self._blame(exchange, record.lost, record)

    async def _served(self, exchange: Exchange, record: Record) -> web.StreamResponse:
        try:
            with self._quotas.counted(record.visit):
                await self._within(record.wishes.deadline_s, exchange, record)
        except RejectedError as error:
            record.outcome, record.status, record.refused = "rejected", error.status, error.kind
            self._forecast(error, record.visit)
            return await self._end(exchange, replies.rejected(error))
        except NoStreamError as error:
            record.outcome, record.status = "failed", error.status
            return await self._end(exchange, replies.no_stream(error))
        except UpstreamLostError as error:
            return await self._lost(exchange, record, error)
        good = exchange.status < FAILED and not exchange.summary().error
        record.outcome, record.status = "complete" if good else "failed", exchange.status
        return await exchange.finish()

    async def _lost(
        self, exchange: Exchange, record: Record, error: UpstreamLostError
    ) -> web.StreamResponse:
        problem = exchange.order.payload.problem
        if problem is not None and exchange.response is None:
            record.outcome, record.status = "failed", problem.status
            return self._own(problem, exchange)
        record.outcome = error.code
        record.status = exchange.status if exchange.relayed else error.status
        log.warning("request.upstream_lost", request_id=record.id, error=str(error))
        return await self._end(exchange, replies.upstream_lost(error))

    async def _end(self, exchange: Exchange, told: web.Response) -> web.StreamResponse:
        """Tell an error: as the response, or as the last event of one that has begun."""
        if exchange.response is None:
            return self._own(told, exchange)
        return await exchange.break_off(told)

    async def _within(self, deadline_s: float, exchange: Exchange, record: Record) -> None:
        """Turn away who has no answer begun in time; an answer that has begun is never cut."""
        with anyio.move_on_after(deadline_s) as scope:

            def begin() -> None:
                scope.deadline, record.shown.answers_since = math.inf, self._clock.now()

            exchange.on_begin = begin
            await self._attempts(exchange, record)
        if scope.cancelled_caught:
            why = f"no answer began within {1000 * deadline_s:g} ms ({DEADLINE_HEADER})"
            raise RejectedError(why, kind="deadline", retry_after_s=1)

    async def _attempts(self, exchange: Exchange, record: Record) -> None:
        """Relay; once more if the engine is lost before a byte was sent and comes back."""
        lost: UpstreamLostError | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._attempt(exchange, record, attempt)
            except RejectedError as error:
                if lost is None or error.kind == "poison":
                    raise
                msg = f"{lost}, and it did not come back: {error}"
                raise UpstreamLostError(msg) from error
            except UpstreamLostError as error:
                if exchange.lease is None or isinstance(error, SlowEngineError):
                    raise
                if exchange.relayed:
                    record.lost = exchange.lease
                    raise
                await self._blame(exchange, exchange.lease, record)
                if lost is not None or not exchange.order.payload.repeatable:
                    raise
                lost = error
            else:
                self._quarantine.answered(record.profile, exchange.order.payload)
                return

    async def _blame(self, exchange: Exchange, lease: Lease, record: Record) -> None:
        """Hold it against a request if its engine died of itself meanwhile.

        Raises:
            RejectedError: That was once too often, and the client has been told nothing yet.
        """
        payload, failure = exchange.order.payload, await self._board.recheck(lease)
        if failure is None or failure.failure not in CULPABLE:
            return
        death = Death(
            request_id=record.id,
            path=record.path,
            size_bytes=payload.length or 0,
            engine_id=lease.engine_id,
            arm=lease.arm,
            cause=f"{failure.failure}: {failure.reason}",
        )
        await self._quarantine.died(record.profile, payload, death)
        if not exchange.relayed:
            self._quarantine.admit(record.profile, payload)

    async def _attempt(self, exchange: Exchange, record: Record, attempt: int) -> None:
        payload = exchange.order.payload
        alone = self._quarantine.admit(record.profile, payload)
        beside = None
        if exchange.order.light and attempt == 1 and not alone:
            beside = self._board.beside(record.profile)
        if beside is not None:
            with record.shown.runs(beside.arm.depth, self._clock.now()):
                await exchange.over(beside, attempt=attempt)
            return
        while not await self._in_turn(exchange, record, attempt, alone=alone):
            alone = True

    async def _in_turn(
        self, exchange: Exchange, record: Record, attempt: int, *, alone: bool
    ) -> bool:
        """Wait for an engine and use it; False where it would have to be alone by now."""
        payload = exchange.order.payload
        claim = Claim(priority=record.wishes.priority, alone=alone, caller=record.visit.caller)
        arrived = self._clock.now()
        leased = self._board.lease(record.profile, request_id=record.id, claim=claim)
        async with AsyncExitStack() as stack:
            if record.herald is None:
                lease = await stack.enter_async_context(leased)
            else:
                lease = await record.herald.lease(stack, exchange, leased)
            admitted = self._clock.now()
            self._pace.admitted(arrived, admitted)
            record.waited_s = (record.waited_s or 0.0) + admitted - arrived
            if self._quarantine.admit(record.profile, payload) and not alone:
                return False  # its like has become a suspect meanwhile
            with self._company.of(lease.engine_id, record.id):
                await self._use(exchange, record, lease, attempt)
        return True

    def _herald(self, order: Order, record: Record) -> Herald | None:
        """Who tells the client while it waits, if it is to be told anything."""
        mode = order.conditions.loading
        if not speaks(mode, order.target, stream=order.stream):
            return None
        return Herald(
            board=self._board,
            clock=self._clock,
            words=Words(mode, order.conditions.shown or record.profile),
            profile=record.profile,
            request_id=record.id,
            tick_s=self._tick_s,
        )

    async def _use(self, exchange: Exchange, record: Record, lease: Lease, attempt: int) -> None:
        began, record.visit.runs = self._clock.now(), True
        try:
            with record.shown.runs(lease.arm.depth, began):
                await exchange.over(lease, attempt=attempt)
        finally:
            record.visit.runs = False
            self._pace.ended(self._clock.now() - began)

    def _forecast(self, error: RejectedError, visit: Visit) -> None:
        """Say when the queue will have moved so far that another attempt may be taken."""
        least_s, queue = error.retry_after_s, self._board.queue()
        if (running := self._quotas.running(visit, error.kind)) > 0:
            error.retry_after_s = self._pace.place_after_s(least_s, running=running)
        elif error.kind in FORECAST:
            error.retry_after_s = self._pace.retry_after_s(
                least_s, waiting=queue.waiting, running=queue.in_flight
            )

    def _own(self, response: web.Response, exchange: Exchange) -> web.Response:
        response.headers.update(exchange.headers)
        return response

    def _report(self, record: Record, exchange: Exchange) -> None:
        summary, traits, lease = exchange.summary(), exchange.order.traits, exchange.lease
        usage = usage_of(summary)
        self._on_finished(
            RequestFinished(
                request_id=record.id,
                profile=record.profile,
                depth=0 if lease is None else lease.arm.depth,
                path=record.path,
                outcome=record.outcome,
                status=record.status,
                refused=record.refused,
                duration_s=self._clock.now() - record.began,
                waited_s=record.waited_s,
                suspended_s=lasted_s(record.slept, self._clock.slept()),
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                decode_tps=usage.decode_tps,
                drafted=usage.drafted,
                accepted=usage.accepted,
                engine_id="" if lease is None else lease.engine_id,
                generated=usage.generated,
                decode_s=usage.decode_s,
                cached_tokens=usage.cached_tokens,
                prompt_s=usage.prompt_s,
                kind=traits.kind.value,
                sampling=traits.sampling.value,
                reasoning=summary.reasoning,
                truncated=summary.truncated,
                alone=self._company.was_alone(record.id),
                pool=exchange.order.asked.pool,
                tags=exchange.order.asked.tags,
            )
        )
