"""The client's connection as a body is relayed to it: written to without a task, watched for room.

aiohttp writes the head with the first piece, and the end; what is between goes straight to the
transport, in the coding that the head has announced (docs/adr/0009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio
from aiohttp import web
from aiohttp.hdrs import TRANSFER_ENCODING

from mtpd.proxy.chunks import framed

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aiohttp.abc import AbstractStreamWriter

    from mtpd.proxy.patience import Patience
    from mtpd.proxy.usage import Tap

__all__ = ["ClientGoneError", "Outlet", "Reply", "delivered"]

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client hung up or stopped reading."""


class Reply(web.StreamResponse):
    """Sends its head together with the first piece, in one packet."""

    _send_headers_immediately = False  # aiohttp's, unofficial: without it only that is lost


async def delivered(sending: Awaitable[T], stall_s: float) -> T:
    """Wait until the client has taken what is sent, at most ``stall_s``; 0 is no limit.

    Raises:
        ClientGoneError: It did not.
    """
    try:
        with anyio.fail_after(stall_s or None):
            return await sending
    except (ConnectionError, TimeoutError) as error:
        raise ClientGoneError from error


class Outlet:
    """Takes the body of one response.

    Args:
        request: The client's.
        response: To it; its head may have been sent.
        tap: Is shown a copy.
        patience: With the engine.
        stall_s: How long the client may leave its connection full; 0 is no limit.
    """

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        *,
        tap: Tap,
        patience: Patience,
        stall_s: float,
    ) -> None:
        self._request, self._response = request, response
        self._tap, self._patience, self._stall_s = tap, patience, stall_s
        self._writer: AbstractStreamWriter | None = None
        self._chunked = False

    async def begin(self, first: bytes) -> None:
        """Send the head and the first piece, which is empty if there is no body."""
        self._tap.feed(first)
        self._writer = await delivered(self._response.prepare(self._request), self._stall_s)
        await delivered(self._response.write(first), self._stall_s)
        self._chunked = TRANSFER_ENCODING in self._response.headers

    def take(self, piece: bytes) -> bool:
        """Send a piece; whether there is room for more."""
        self._tap.feed(piece)
        self._patience.came(piece)
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return False
        transport.write(framed(piece) if self._chunked else piece)
        return not self._request.protocol.writing_paused

    async def room(self) -> None:
        """Wait until the client has taken enough.

        Raises:
            ClientGoneError: It hung up or stopped reading.
        """
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGoneError
        if self._request.protocol.writing_paused:
            assert self._writer is not None  # noqa: S101 - ``begin`` has returned
            await delivered(self._writer.drain(), self._stall_s)

    async def wait(self, coming: Awaitable[None]) -> None:
        """Wait for the engine."""
        await self._patience.wait(coming)
