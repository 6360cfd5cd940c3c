"""The inference endpoints: relayed to an engine, or answered by the daemon itself.

Covers the life of one request from its body to its last byte. Needs an ``AppRunner``
with ``handler_cancellation=True``: a client that leaves cancels the handler, and that
closes the connection to the engine, which ends the generation.

Not covered: authentication, Host and Origin checks (the application's middleware).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog
from aiohttp import web

from mtpd.events import RequestFinished
from mtpd.proxy import replies
from mtpd.proxy.body import Bodies
from mtpd.proxy.outcomes import RejectedError, UpstreamLostError
from mtpd.proxy.relay import ClientGoneError, Exchange
from mtpd.proxy.route import BadBody, Names, Routed, UnknownModel, route
from mtpd.proxy.usage import usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from mtpd.clock import Clock
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.replies import ModelCard
    from mtpd.views import EngineView

__all__ = ["RELAYED", "Board", "mount"]

log = structlog.get_logger()

RELAYED = ("/v1/chat/completions", "/v1/completions", "/completion", "/completions")
"""What is passed to an engine, under the same path."""

ATTEMPTS = 2
BAD_GATEWAY = 502
CLIENT_GONE = 499
FAILED = 400


class Board(Protocol):
    """What is needed of the switchboard."""

    @property
    def closed(self) -> bool:
        """Whether everybody is turned away."""

    def lease(self, profile: str, *, request_id: str) -> AbstractAsyncContextManager[Lease]:
        """Use a ready engine while the block runs; raises RejectedError."""

    async def recheck(self, lease: Lease) -> None:
        """Let the supervisor notice that an engine broke off."""

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine."""


@dataclass(slots=True)
class Record:
    """What is known of a request so far; becomes its event."""

    id: str
    path: str
    profile: str
    began: float
    outcome: str = "failed"
    status: int = 500


class Front:
    """The handlers."""

    def __init__(
        self,
        *,
        board: Board,
        names: Callable[[], Names],
        models: Callable[[], Sequence[ModelCard]],
        on_finished: Callable[[RequestFinished], None],
        clock: Clock,
        instance: str,
    ) -> None:
        self._board, self._names, self._models = board, names, models
        self._on_finished, self._clock = on_finished, clock
        self._bodies = Bodies()
        self._headers = {**replies.SERVER, "X-Mtpd-Instance": instance}

    async def health(self, _: web.Request) -> web.Response:
        """Whether the daemon can serve; also while a model is loading."""
        if self._board.closed:
            return replies.error(
                503, "the daemon is stopping", kind="unavailable_error", code="stopping"
            )
        return web.json_response({"status": "ok"}, headers=self._headers)

    async def models(self, _: web.Request) -> web.Response:
        """Every model that can be asked for."""
        response = replies.model_list(self._models(), self._board.engines())
        response.headers.update(self._headers)
        return response

    async def relay(self, request: web.Request) -> web.StreamResponse:
        """Pass a request to the engine of its model."""
        with self._bodies.counted() as buffer:
            refused = await self._bodies.read(request, buffer)
            if refused is None:
                outcome = route(bytes(buffer), self._names())
                match outcome:
                    case Routed():
                        return await self._recorded(request, outcome)
                    case UnknownModel():
                        refused = replies.unknown_model(outcome)
                    case BadBody():
                        refused = replies.bad_body(outcome)
            refused.headers.update(self._headers)
            return refused

    async def _recorded(self, request: web.Request, routed: Routed) -> web.StreamResponse:
        record = Record(secrets.token_hex(8), request.path, routed.profile, self._clock.now())
        exchange = Exchange(request, routed.body, headers=self._headers)
        try:
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

    async def _served(self, exchange: Exchange, record: Record) -> web.StreamResponse:
        try:
            await self._attempts(exchange, record)
        except RejectedError as error:
            record.outcome, record.status = "rejected", error.status
            return self._own(replies.rejected(error), record)
        except UpstreamLostError as error:
            record.outcome, record.status = "upstream_lost", BAD_GATEWAY
            log.warning("request.upstream_lost", request_id=record.id, error=str(error))
            if exchange.response is None:
                return self._own(replies.upstream_lost(str(error)), record)
            record.status = exchange.status
            return await exchange.break_off(str(error))
        good = exchange.status < FAILED and not exchange.summary().error
        record.outcome, record.status = "complete" if good else "failed", exchange.status
        return await exchange.finish()

    async def _attempts(self, exchange: Exchange, record: Record) -> None:
        """Relay; once more if the engine is lost before a byte was sent and comes back."""
        lost: UpstreamLostError | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._board.lease(record.profile, request_id=record.id) as lease:
                    await exchange.over(lease, attempt=attempt)
            except RejectedError as error:
                if lost is None:
                    raise
                msg = f"{lost}, and it did not come back: {error}"
                raise UpstreamLostError(msg) from error
            except UpstreamLostError as error:
                if exchange.response is not None or exchange.lease is None or lost is not None:
                    raise
                lost = error
                await self._board.recheck(exchange.lease)
            else:
                return

    def _own(self, response: web.Response, record: Record) -> web.Response:
        response.headers.update({**self._headers, "X-Mtpd-Profile": record.profile})
        return response

    def _report(self, record: Record, exchange: Exchange) -> None:
        usage = usage_of(exchange.summary())
        self._on_finished(
            RequestFinished(
                request_id=record.id,
                profile=record.profile,
                depth=0 if exchange.lease is None else exchange.lease.arm.depth,
                path=record.path,
                outcome=record.outcome,
                status=record.status,
                duration_s=self._clock.now() - record.began,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                decode_tps=usage.decode_tps,
                drafted=usage.drafted,
                accepted=usage.accepted,
            )
        )


def mount(
    app: web.Application,
    *,
    board: Board,
    names: Callable[[], Names],
    models: Callable[[], Sequence[ModelCard]],
    on_finished: Callable[[RequestFinished], None],
    clock: Clock,
    instance: str,
) -> None:
    """Add the inference endpoints to an application.

    Args:
        app: Where to.
        board: Leases engines.
        names: What model names mean at the moment of the call.
        models: The models to list.
        on_finished: Told of every request that was routed, once it has ended.
        clock: Measures durations.
        instance: Names this life of the daemon in every response.
    """
    front = Front(
        board=board,
        names=names,
        models=models,
        on_finished=on_finished,
        clock=clock,
        instance=instance,
    )
    app.add_routes([web.post(path, front.relay) for path in RELAYED])
    app.add_routes([web.get("/v1/models", front.models), web.get("/health", front.health)])
