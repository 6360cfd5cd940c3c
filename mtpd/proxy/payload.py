"""What is sent to an engine: a body that was read, or a form that is passed through.

A form holds only what came before its field ``model``; the rest stays in the client's
connection until an engine takes it, so a recording of an hour costs no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from mtpd.proxy import replies
from mtpd.proxy.outcomes import BodyLostError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mtpd.proxy.body import Bodies
    from mtpd.proxy.form_scan import FormScan

__all__ = ["Form", "Payload", "Whole"]


class Payload(Protocol):
    """The body of a request to an engine."""

    @property
    def repeatable(self) -> bool:
        """Whether it can be sent from its beginning (again)."""

    @property
    def length(self) -> int | None:
        """Bytes, None if the client did not say."""

    @property
    def problem(self) -> web.Response | None:
        """What the client did wrong while its body was passed through, or None."""

    def data(self) -> bytes | AsyncGenerator[bytes]:
        """The bytes."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A body that was read."""

    body: bytes = field(repr=False)
    repeatable: bool = field(default=True, init=False)
    problem: web.Response | None = field(default=None, init=False)

    @property
    def length(self) -> int:
        """Bytes."""
        return len(self.body)

    def data(self) -> bytes:
        """The bytes."""
        return self.body


class Form:
    """A multipart body on its way through.

    Attributes:
        problem: What went wrong with the client's half, once something did.
    """

    def __init__(self, request: web.Request, bodies: Bodies, buffer: bytearray) -> None:
        self._request, self._bodies, self._buffer = request, bodies, buffer
        self._passed_on = False
        self._grown = 0
        self._size = 0
        self.problem: web.Response | None = None

    @property
    def repeatable(self) -> bool:
        """Until more than the held beginning was taken from the client."""
        return not self._passed_on

    @property
    def length(self) -> int | None:
        """Bytes, None if the client did not say."""
        said = self._request.content_length
        return None if said is None else said + self._grown

    def rename(self, span: tuple[int, int], model: str) -> None:
        """Put another value of the field ``model`` into the held beginning."""
        start, end = span
        name = model.encode()
        self._buffer[start:end] = name
        self._grown = len(name) - (end - start)
        self._bodies.held += self._grown

    async def find_model(self, scan: FormScan) -> web.Response | None:
        """Read as far as the field ``model``; what the client must be told, or None."""
        refused = self._bodies.refuse_form(self.length)
        if refused is not None:
            return refused
        while not scan.decided:
            before = len(self._buffer)
            refused = await self._bodies.read_some(self._request, self._buffer)
            refused = refused or self._bodies.refuse_form(len(self._buffer))
            if refused is not None:
                return refused
            if len(self._buffer) == before:
                return None
            scan.feed(bytes(self._buffer[before:]))
        if scan.problem is not None:
            return replies.error(400, scan.problem, code="invalid_body", param="model")
        return None

    async def data(self) -> AsyncGenerator[bytes]:
        """The held beginning, then the rest as the client sends it.

        Raises:
            BodyLostError: The client's half went wrong, see ``problem``.
        """
        yield bytes(self._buffer)
        self._size = len(self._buffer)
        try:
            while chunk := await self._bodies.next(self._request):
                self._passed_on = True
                self._count(chunk)
                yield chunk
        except (OSError, web.RequestPayloadError) as error:
            self.problem = replies.body_stopped(timed_out=isinstance(error, TimeoutError))
            msg = "the client broke off in the middle of its body"
            raise BodyLostError(msg) from error

    def _count(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self.problem = self._bodies.refuse_form(self._size)
        if self.problem is not None:
            msg = "the client's body is too large"
            raise BodyLostError(msg)
