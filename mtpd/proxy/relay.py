"""One exchange: a response passed on byte for byte while a copy is read.

Knows when it is too late to try again (a byte has been sent), and how to end a response
that its engine broke off so that no client can take it for a whole one.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.proxy import replies
from mtpd.proxy.endpoints import Dialect
from mtpd.proxy.headers import to_client, to_engine
from mtpd.proxy.outcomes import NoStreamError, UpstreamLostError
from mtpd.proxy.outlet import Outlet, Reply, delivered
from mtpd.proxy.patience import Patience
from mtpd.proxy.route import EXACTLY, Asked
from mtpd.proxy.traits import Traits
from mtpd.proxy.upstream import CONNECT_S
from mtpd.proxy.usage import Summary, Tap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mtpd.proxy.answer import Answer
    from mtpd.proxy.conditions import Conditions
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.payload import Payload

__all__ = ["Exchange", "Order"]

LAST_WORDS_S = 1.0
OK = 200
EVENTS = "text/event-stream"
NO_BUFFERING = {"X-Accel-Buffering": "no"}
"""nginx would hold events back."""

MAX_REFUSAL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an engine is asked.

    Attributes:
        method: Of the request to the engine.
        target: Path and query as the engine gets them.
        payload: The body.
        dialect: How a stream that breaks off tells it.
        light: It needs no slot of the engine.
        traits: What the body tells of the request's class.
        stream: Its client asked for an event stream and will get one.
        conditions: On which it is served.
        why: Why the profile that serves it is the one, in one sentence.
        asked: By which name its client asked for the profile.
    """

    method: str = "POST"
    target: str
    payload: Payload
    dialect: Dialect = Dialect.PLAIN
    light: bool = False
    traits: Traits = field(default_factory=Traits)
    stream: bool = False
    conditions: Conditions
    why: str = ""
    asked: Asked = EXACTLY


class Exchange:
    """Carries one request to an engine and the response back.

    Attributes:
        order: What the engine is asked.
        headers: Of whatever answers the client.
        response: What was begun towards the client, or None while any answer is possible.
        relayed: Whether anything of an engine's answer was sent, so that no other may follow.
        lease: The engine that was used last.
        on_begin: Called when the engine's answer begins.
    """

    def __init__(self, request: web.Request, order: Order, *, headers: Mapping[str, str]) -> None:
        self._request, self.headers = request, headers
        self.order = order
        self.on_begin: Callable[[], None] = lambda: None
        self._tap = Tap(sse=False)
        self._sse = False
        self.response: web.StreamResponse | None = None
        self.relayed = False
        self.lease: Lease | None = None

    async def over(self, lease: Lease, *, attempt: int) -> None:
        """Do it over one engine.

        Raises:
            UpstreamLostError: The engine broke off, had to be let go of, or took too long.
            NoStreamError: It refused what was asked, and the client's stream has begun.
            ClientGoneError: The client does not take the response any more.
        """
        self.lease = lease
        timeouts = self.order.conditions.engine
        with lease.cut as cut:
            patience = Patience(timeouts)
            async with AsyncExitStack() as stack:
                opening = lease.upstream.open(
                    self.order.method,
                    self.order.target,
                    headers=to_engine(self._request.headers, length=self.order.payload.length),
                    data=self.order.payload.data(),
                    connect_s=CONNECT_S if timeouts.connect_s is None else timeouts.connect_s,
                )
                answer = await patience.wait(stack.enter_async_context(opening))
                await self._pass_on(answer, patience, attempt)
        if cut.cancelled_caught:
            msg = "the engine was stopped"
            raise UpstreamLostError(msg)

    def summary(self) -> Summary:
        """What the copy said."""
        return self._tap.summary()

    @property
    def events(self) -> int | None:
        """Events of the stream that were passed on; None where the answer is no stream."""
        return self._tap.events if self.relayed and self._sse else None

    @property
    def status(self) -> int:
        """Of the response that was begun."""
        return OK if self.response is None else self.response.status

    async def finish(self) -> web.StreamResponse:
        """End a whole response."""
        assert self.response is not None  # noqa: S101 - ``over`` has returned
        with suppress(ConnectionError):  # the client has everything, or does not want it
            await self.response.write_eof()
        return self.response

    async def tell(self, words: bytes) -> None:
        """Send a waiting client something before the answer; its stream has begun then.

        Raises:
            ClientGoneError: The client is gone.
        """
        if self.response is None:
            own = {"Content-Type": EVENTS, "Cache-Control": "no-cache", **NO_BUFFERING}
            self.response = web.StreamResponse(headers={**self.headers, **own})
            self._sse, self._tap = True, Tap(sse=True)
            with anyio.CancelScope(shield=True):  # half a head would be no response
                await self._send(self.response.prepare(self._request))
        await self._send(self.response.write(words))

    async def break_off(self, told: web.Response) -> web.StreamResponse:
        """End a response that has begun and cannot be completed: no last chunk, no [DONE]."""
        assert self.response is not None  # noqa: S101 - something was sent
        if self._sse:
            gap = b"" if self.summary().between_events else b"\n\n"
            with suppress(ConnectionError), anyio.move_on_after(LAST_WORDS_S):
                event = replies.broken_off(told, self.order.dialect)
                await self.response.write(gap + event)
        self.hang_up()
        return self.response

    def hang_up(self) -> None:
        """Close the client's connection once what was written is sent."""
        if self._request.transport is not None:
            self._request.transport.close()

    async def _pass_on(self, answer: Answer, patience: Patience, attempt: int) -> None:
        # Nothing is promised to the client before there is something to send.
        first = await patience.chunk(answer.chunk())
        sse = answer.content_type == EVENTS
        if self.response is None:
            self._sse, self._tap = sse, Tap(sse=sse)
            self.response = self._begin(answer, attempt)
        elif not sse or answer.status != OK:
            raise await _refusal(answer, first)
        self.relayed = True
        self.on_begin()
        outlet = Outlet(
            self._request,
            self.response,
            tap=self._tap,
            patience=patience,
            stall_s=self.order.conditions.write_stall_s,
        )
        await outlet.begin(first)
        await answer.relay(outlet)
        if self._sse and answer.status == OK:
            self._must_be_whole()

    def _must_be_whole(self) -> None:
        """A llama-server that is told to stop ends its streams as if they were complete."""
        summary = self.summary()
        if not summary.complete and not summary.error:
            msg = "the engine ended the stream before its end mark"
            raise UpstreamLostError(msg)

    def _begin(self, answer: Answer, attempt: int) -> web.StreamResponse:
        assert self.lease is not None  # noqa: S101 - set by ``over``
        own = {
            "X-Mtpd-Depth": str(self.lease.arm.depth),
            "X-Mtpd-Attempt": str(attempt),
        }
        if self._sse:
            own |= NO_BUFFERING
        return Reply(
            status=answer.status,
            reason=answer.reason,
            headers={**to_client(answer.headers), **self.headers, **own},
        )

    async def _send(self, sending: Awaitable[object]) -> None:
        await delivered(sending, self.order.conditions.write_stall_s)


async def _refusal(answer: Answer, first: bytes) -> NoStreamError:
    """What an engine said instead of beginning a stream."""
    raw = bytearray(first)
    while len(raw) <= MAX_REFUSAL_BYTES and (chunk := await answer.chunk()):
        raw += chunk
    try:
        message = str(json.loads(raw)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"the engine answered with status {answer.status} and no stream"
    return NoStreamError(message, status=answer.status)
