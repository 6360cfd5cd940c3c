"""Reads a request body within bounds: its type, its size, its pace, and the sum of all.

A form is read only as far as needed (``mtpd.proxy.payload``).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.proxy import replies
from mtpd.proxy.headers import is_json
from mtpd.proxy.route import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Bodies"]

MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""Bodies of all requests that wait or run, together."""

IDLE_S = 30.0
"""How long a client may pause within a body."""


class Bodies:
    """Reads bodies, and counts the bytes of those that are held.

    Attributes:
        held: Bytes of all bodies that are held now.
        idle_s: How long a client may pause within a body.
    """

    def __init__(
        self,
        *,
        limit: int = MAX_BODY_BYTES,
        total: int = MAX_TOTAL_BYTES,
        idle_s: float = IDLE_S,
    ) -> None:
        self._limit, self._total, self.idle_s = limit, total, idle_s
        self.held = 0

    @contextmanager
    def counted(self) -> Iterator[bytearray]:
        """A buffer whose bytes count until the block ends."""
        buffer = bytearray()
        try:
            yield buffer
        finally:
            self.held -= len(buffer)

    async def read(self, request: web.Request, buffer: bytearray) -> web.Response | None:
        """Read a JSON body into a counted buffer; what the client must be told, or None."""
        refused = self.refuse_coding(request)
        if refused is None and not is_json(request.headers.get("Content-Type", "")):
            message = "the body must be sent with Content-Type: application/json"
            refused = replies.error(415, message, code="unsupported_media_type")
        return refused or await self.read_any(request, buffer)

    async def read_any(self, request: web.Request, buffer: bytearray) -> web.Response | None:
        """Read a body of any type, likewise."""
        if (request.content_length or 0) > self._limit:
            return self._too_large()
        while True:
            before = len(buffer)
            refused = await self.read_some(request, buffer)
            if refused is not None or len(buffer) == before:
                return refused

    async def read_some(self, request: web.Request, buffer: bytearray) -> web.Response | None:
        """Read what is there, likewise; nothing is added at the end of the body."""
        try:
            with anyio.fail_after(self.idle_s):
                chunk = await request.content.readany()
        except (TimeoutError, web.RequestPayloadError) as error:
            return replies.body_stopped(timed_out=isinstance(error, TimeoutError))
        buffer += chunk
        self.held += len(chunk)
        if len(buffer) > self._limit:
            return self._too_large()
        return self._too_much() if self.held > self._total else None

    def refuse_coding(self, request: web.Request) -> web.Response | None:
        """What a client is told that sends a compressed body, or None."""
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding == "identity":
            return None
        message = f"a body with Content-Encoding {coding[:40]!r} is not read"
        return replies.error(415, message, code="unsupported_encoding")

    def _too_large(self) -> web.Response:
        message = f"the body is larger than {self._limit} bytes"
        return replies.error(413, message, code="body_too_large")

    def _too_much(self) -> web.Response:
        return replies.error(
            503,
            "the waiting requests are too large together",
            kind="unavailable_error",
            code="queue_full",
            retry_after_s=5,
        )
