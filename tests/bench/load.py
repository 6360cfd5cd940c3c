"""Clients of a proxy that cost little themselves: bare transports, one connection each."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

__all__ = ["Answer", "Client"]

END = b"0\r\n\r\n"
EVENT = b"data: {"
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request: seconds to the first byte of its body, and its tokens."""

    first_byte_s: float
    tokens: int


class Client(asyncio.Protocol):
    """Asks one thing at a time over a connection that is kept while the server keeps it.

    Attributes:
        tokens: Of the answer that is coming, so far.
    """

    def __init__(self, port: int) -> None:
        self._port, self._loop = port, asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._came = b""
        self._first_at = 0.0
        self.tokens = 0

    async def ask(self, pace: str, tokens: int) -> Answer:
        """One streamed answer."""
        body = json.dumps(
            {"model": "alpha", "stream": True, "pace": pace, "max_tokens": tokens, "messages": []}
        )
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._came, self._first_at, self.tokens = b"", 0.0, 0
        self._ended = self._loop.create_future()
        began = time.perf_counter()
        if self._transport is None:
            await self._loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._transport.write((head + body).encode())
        async with asyncio.timeout(PATIENCE_S):
            await self._ended
        return Answer(self._first_at - began, self.tokens)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Count tokens; no event is cut, as every one is written in one go."""
        if not self._first_at:
            self._came += data
            head, _, data = self._came.partition(b"\r\n\r\n")
            if not data:
                return
            if b" 200 " not in head.partition(b"\r\n")[0]:
                self._end(ConnectionError(self._came.decode(errors="replace")))
                return
            self._first_at = time.perf_counter()
        self.tokens += data.count(EVENT)
        if data.endswith(END):
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(exc or ConnectionError("the server hung up"))

    def _end(self, error: Exception | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
