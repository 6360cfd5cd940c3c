"""One engine's endpoint as the relay uses it: a connection for every request, no limits.

Separate from ``mtpd.engine.client``: a relayed response is never decompressed, never
timed out (a long prompt is silent for minutes) and never sent twice. Connections are
not kept: the engine's HTTP server closes idle ones, and a request that meets a closing
connection would be lost.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
from yarl import URL

from mtpd.proxy.answer import BEFORE, Answer
from mtpd.proxy.chunks import LAST, framed
from mtpd.proxy.outcomes import BodyLostError, UpstreamLostError
from mtpd.types import HttpEndpoint, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from mtpd.types import Endpoint

__all__ = ["CONNECT_S", "EndpointUpstream", "Upstream"]

CONNECT_S = 2.0
READ_BUFFER_BYTES = 128 * 1024
BODILESS = frozenset({"GET", "HEAD"})
"""Methods whose requests need not say that they have no body."""


class Upstream(Protocol):
    """Where a request goes."""

    def open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        data: bytes | AsyncGenerator[bytes],
        connect_s: float = CONNECT_S,
    ) -> AbstractAsyncContextManager[Answer]:
        """Send a request; the block has the response, its headers read.

        ``path`` is sent as it is, with its query. Leaving the block closes the
        connection, which ends the generation. A connection must be taken within
        ``connect_s``; 0 is no limit.

        Raises:
            UpstreamLostError: The engine could not be reached or hung up.
        """


class EndpointUpstream:
    """The relay's way to one endpoint; ``close`` ends whatever still uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._socket: str | None = None
        self._url, self._own = URL("http://engine"), {"Connection": "close"}
        match endpoint:
            case UnixEndpoint(path=path):
                self._socket = path
            case HttpEndpoint(url=url):
                self._url = URL(url)
            case TcpEndpoint(host=host, port=port):
                self._url = URL.build(scheme="http", host=host, port=port)
        if not isinstance(endpoint, HttpEndpoint) and endpoint.api_key:
            self._own["Authorization"] = f"Bearer {endpoint.api_key}"
        self._own["Host"] = self._url.host_port_subcomponent or ""
        # One for all: the loop fills it and has it emptied before it turns to another socket.
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._answers: set[Answer] = set()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        data: bytes | AsyncGenerator[bytes],
        connect_s: float = CONNECT_S,
    ) -> AsyncIterator[Answer]:
        """See ``Upstream.open``."""
        answer = Answer(self._buffer, bodiless=method == "HEAD")
        line = f"{method} {self._url.raw_path.rstrip('/')}{path} HTTP/1.1"
        fields = {**headers, **self._own}
        self._answers.add(answer)
        try:
            await self._connect(answer, connect_s)
            if isinstance(data, bytes):
                if data or method not in BODILESS:
                    fields["Content-Length"] = str(len(data))
                await answer.send(_head(line, fields), data)
                await answer.begun()
            else:
                await _pass_through(answer, line, fields, data)
            answer.must_have_begun()
            yield answer
        finally:
            self._answers.discard(answer)
            answer.close()

    def close(self) -> None:
        """Close every connection."""
        for answer in self._answers:
            answer.close()

    async def _connect(self, answer: Answer, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(within_s or None):
                if self._socket is not None:
                    await loop.create_unix_connection(lambda: answer, self._socket)
                else:
                    tls = True if self._url.scheme == "https" else None
                    host, port = self._url.host or "", self._url.port or 0
                    await loop.create_connection(lambda: answer, host, port, ssl=tls)
        except OSError as error:
            raise UpstreamLostError(BEFORE) from error


def _head(line: str, fields: Mapping[str, str]) -> bytes:
    lines = [line, *(f"{name}: {value}" for name, value in fields.items())]
    if any("\r" in one or "\n" in one for one in lines):
        msg = "a line of a request's head contains another"
        raise ValueError(msg)
    return "\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape")


async def _pass_through(
    answer: Answer, line: str, fields: dict[str, str], data: AsyncGenerator[bytes]
) -> None:
    """Send a body while it comes, until there is an answer: one that is early is a refusal."""
    chunked = "Content-Length" not in fields
    if chunked:
        fields["Transfer-Encoding"] = "chunked"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(_feed, answer, _head(line, fields), data, chunked=chunked))
        await answer.begun()
        tasks.cancel_scope.cancel()


async def _feed(answer: Answer, head: bytes, data: AsyncGenerator[bytes], *, chunked: bool) -> None:
    await answer.send(head)
    try:
        async with aclosing(data):
            async for piece in data:
                await answer.send(framed(piece) if chunked else piece)
    except BodyLostError as error:
        answer.lose(str(error))
        return
    if chunked:
        await answer.send(LAST)
