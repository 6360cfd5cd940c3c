"""An engine's response as it comes: one connection with one request and its answer.

Bytes of a body go from the socket to whoever takes them within one callback of the event
loop: no task is woken for them and no buffer is allocated (docs/adr/0009). Not covered: how
the connection is made and what is asked (``mtpd.proxy.upstream``).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from mtpd.proxy.outcomes import UpstreamLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["BEFORE", "MAX_BETWEEN_BYTES", "Answer", "Taker"]

INTERIM, FINAL = 100, 200
MAX_BETWEEN_BYTES = 1024 * 1024
"""Of heads, trailers and frames without a byte of a body; the parser would hold a header of any
length."""

BEFORE = "the engine hung up before it answered"
WITHIN = "the engine broke off in the middle of its response"
GARBLED = "the engine answered something that is not HTTP"


class Taker(Protocol):
    """Takes a body, piece by piece."""

    def take(self, piece: bytes) -> bool:
        """Take a piece, in a callback of the loop; whether there is room for more."""

    async def room(self) -> None:
        """Return when there is room, at once if there is."""

    async def wait(self, coming: Awaitable[None]) -> None:
        """Wait for the engine."""


class Answer(asyncio.BufferedProtocol):
    """The response to one request, and the connection that both use.

    Args:
        buffer: What is read into; may be shared, as it is empty again after every read.
        bodiless: The request is a HEAD, so nothing follows the head.

    Attributes:
        status: 0 until the head is here.
        reason: What the engine calls the status.
        headers: By name in lower case; of one that is there twice, the first.
    """

    def __init__(self, buffer: memoryview, *, bodiless: bool = False) -> None:
        self.status, self.reason = 0, ""
        self.headers: dict[str, str] = {}
        self._buffer, self._bodiless = buffer, bodiless
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []
        self._between = 0
        self._take: Callable[[bytes], bool] | None = None
        self._whole, self._lost = False, ""
        self._stirred, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def over(self) -> bool:
        """Nothing more will come, whether the response is whole or not."""
        return self._whole or bool(self._lost)

    # The request ----------------------------------------------------------------------

    async def send(self, *parts: bytes) -> None:
        """Send parts of the request; returns when there is room for more."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(parts)
        await self._room.wait()

    def lose(self, why: str) -> None:
        """Give it up for a reason of ours."""
        if not self.over:
            self._lost = why
        self.close()
        self._stirred.set()

    def close(self) -> None:
        """Close the connection at once, which ends the generation."""
        self._take = None
        if self._transport is not None:
            self._transport.abort()

    # The response ---------------------------------------------------------------------

    async def begun(self) -> None:
        """Wait for the head, or for the loss of the engine."""
        while not self.status and not self.over:
            await self._stir()

    def must_have_begun(self) -> None:
        """Raises UpstreamLostError without a head."""
        if not self.status:
            raise UpstreamLostError(self._lost)

    async def chunk(self) -> bytes:
        """The next bytes of the body as they come, or b"" at its end.

        Raises:
            UpstreamLostError: The connection broke before the end of the response.
        """
        while not self._body and not self.over:
            self._read_on()
            await self._stir()
        if not self._body:
            self._must_be_whole()
        return self._held()

    async def relay(self, taker: Taker) -> None:
        """Hand on the rest of the body, each piece in the moment in which it comes.

        What came in one read is one piece. While there is no room nothing is read: whoever
        takes slowly slows the engine down and fills no memory here.

        Raises:
            UpstreamLostError: The connection broke before the end of the response.
        """
        while self._body or not self.over:
            if self._body:
                taker.take(self._held())
            else:
                self._take = taker.take
                self._read_on()
                await taker.wait(self._stir())
                self._take = None
            await taker.room()
        self._must_be_whole()

    def _held(self) -> bytes:
        held = b"".join(self._body)
        self._body.clear()
        return held

    def _must_be_whole(self) -> None:
        if not self._whole:
            raise UpstreamLostError(self._lost)

    async def _stir(self) -> None:
        await self._stirred.wait()
        self._stirred.clear()

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What the event loop calls --------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what we have, we have
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was read, and hand the body on if somebody takes it."""
        if self.over:
            return
        self._between += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.lose(GARBLED)  # nobody has asked for another protocol either
        if self._between > MAX_BETWEEN_BYTES:
            self.lose(GARBLED)
        if self._body and (self._take is None or not self._take(self._held())):
            self._take = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
            self._stirred.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection ends a body of no declared length, and loses others."""
        self._transport = None
        if not self.over:
            if exc is None and self.status and not self._declared():
                self._whole = True
            else:
                self._lost = WITHIN if self.status else BEFORE
        self._stirred.set()
        self._room.set()

    def pause_writing(self) -> None:
        """The engine takes no more of the request."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._room.set()

    def _declared(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    def _readable(self) -> bool:
        """No coding but chunks is undone here, and clients would not learn of another."""
        return self.headers.get("transfer-encoding", "chunked").strip().lower() == "chunked"

    # What the parser calls ------------------------------------------------------------

    def on_status(self, status: bytes) -> None:
        """Keep the reason, unless a client could not be told it."""
        if not self.status:
            told = status.decode("latin-1")
            self.reason = told if told.isprintable() else ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those that follow the body are of no use to anybody."""
        if not self.status:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """The head is here, unless it is one of those that only announce another (1xx)."""
        if self.status:
            return
        status = self._parser.get_status_code()
        if INTERIM <= status < FINAL:
            self.headers.clear()
            return
        if status < INTERIM or not self._readable():
            self.lose(GARBLED)
            return
        self.status = status
        self._whole = self._bodiless
        self._stirred.set()

    def on_body(self, body: bytes) -> None:
        """Keep a piece until the read is parsed; what follows a whole response is nobody's."""
        if not self.over:
            self._body.append(body)
            self._between = 0

    def on_message_complete(self) -> None:
        """The response is whole."""
        if self.status:
            self._whole = True
            self._stirred.set()
