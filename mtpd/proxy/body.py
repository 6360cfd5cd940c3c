"""Reads a request body within bounds: its type, its size, its pace, and the sum of all.

A form is read only as far as needed (``mtpd.proxy.payload``).
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.config.model import BodyLimits, ServerTimeouts
from mtpd.config.serving import bound
from mtpd.proxy import replies
from mtpd.proxy.headers import is_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Bodies", "Bounds"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of bodies.

    Attributes:
        body_bytes: Of one that is read.
        form_bytes: Of a form that is passed on.
        held_bytes: Of all requests that wait or run, together.
        idle_s: How long a client may pause within one.
    """

    body_bytes: int
    form_bytes: float
    held_bytes: int
    idle_s: float

    @classmethod
    def of(cls, limits: BodyLimits, timeouts: ServerTimeouts) -> Bounds:
        """As configured."""
        return cls(
            body_bytes=limits.body_mib * MIB,
            form_bytes=limits.form_mib * MIB or math.inf,
            held_bytes=limits.held_mib * MIB,
            idle_s=bound(timeouts.body_idle_s),
        )


def usual_bounds() -> Bounds:
    """Those of a configuration that says nothing."""
    return Bounds.of(BodyLimits(), ServerTimeouts())


class Bodies:
    """Reads bodies, and counts the bytes of those that are held.

    Attributes:
        held: Bytes of all bodies that are held now.
    """

    def __init__(self, bounds: Callable[[], Bounds] = usual_bounds) -> None:
        self._bounds = bounds
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
        bounds = self._bounds()
        if (request.content_length or 0) > bounds.body_bytes:
            return too_large(bounds.body_bytes)
        while True:
            before = len(buffer)
            refused = await self.read_some(request, buffer)
            if refused is not None or len(buffer) == before:
                return refused

    async def read_some(self, request: web.Request, buffer: bytearray) -> web.Response | None:
        """Read what is there, likewise; nothing is added at the end of the body."""
        bounds = self._bounds()
        try:
            chunk = await self.next(request)
        except (TimeoutError, web.RequestPayloadError) as error:
            return replies.body_stopped(timed_out=isinstance(error, TimeoutError))
        buffer += chunk
        self.held += len(chunk)
        if len(buffer) > bounds.body_bytes:
            return too_large(bounds.body_bytes)
        return self._too_much() if self.held > bounds.held_bytes else None

    async def next(self, request: web.Request) -> bytes:
        """What is there of a body, or b"" at its end.

        Raises:
            TimeoutError: The client paused for too long.
            RequestPayloadError: It broke off.
        """
        with anyio.fail_after(self._bounds().idle_s):
            return await request.content.readany()

    def refuse_form(self, size: int | None) -> web.Response | None:
        """What a client is told of a form of so many bytes, or None."""
        most = self._bounds().form_bytes
        return too_large(most) if (size or 0) > most else None

    def refuse_coding(self, request: web.Request) -> web.Response | None:
        """What a client is told that sends a compressed body, or None."""
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding == "identity":
            return None
        message = f"a body with Content-Encoding {coding[:40]!r} is not read"
        return replies.error(415, message, code="unsupported_encoding")

    def _too_much(self) -> web.Response:
        return replies.error(
            503,
            "the waiting requests are too large together",
            kind="unavailable_error",
            code="queue_full",
            retry_after_s=5,
        )


def too_large(most_bytes: float) -> web.Response:
    """413."""
    message = f"the body is larger than {most_bytes:.0f} bytes"
    return replies.error(413, message, code="body_too_large")
