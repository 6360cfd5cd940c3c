"""A scripted llama-server whose streams cost next to nothing: for measuring what relays them.

It is the fake of the tests, except that ``POST /v1/chat/completions`` with ``"pace"`` in its
body is answered from a bare transport: ``max_tokens`` events, of which the engine decides when
they come. ``step``: one event of every stream every 20 ms, all in one go, as llama.cpp decodes
all its slots in one batch. ``own``: likewise, but every stream has a beat of its own. ``none``:
all at once. ``lines`` and ``garbage`` print to the log for so many seconds instead, ``line`` prints
one line of so many megabytes, all 50 MB a second at most, and send an event for each MB at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.tcp_helpers import tcp_nodelay

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.llama_server import main

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_S = 0.02
"""50 tokens a second, on every stream."""
HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
EVENT = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" token"}}],'
    b'"created":1795979596,"id":"chatcmpl-WQ8kGnDFpKdBBZ5HZqhzWBLkZYVYoTDM","model":"alpha",'
    b'"system_fingerprint":"b11434-unknown","object":"chat.completion.chunk"}\n\n'
)
DONE = b"data: [DONE]\n\n"


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


MB_PER_S = 50
PART = 64 * 1024
FLOODS = {
    "lines": b"0.00.123.456 D slot update_slots: nothing of interest"
    + b" and more of it" * 10
    + b"\n",
    "line": b"x",
    "garbage": random.Random(7).randbytes(PART),  # noqa: S311 - no secrets
}
"""What is printed over and over."""


def flood(kind: str, many: int) -> int:
    """Print, at that speed at most, and return the megabytes; whoever reads slowly slows it."""
    part = FLOODS[kind] * (PART // len(FLOODS[kind]))
    began, done = time.monotonic(), 0
    while done < many * 1e6 if kind == "line" else time.monotonic() < began + many:
        rest = part
        while rest:
            rest = rest[os.write(2, rest) :]
        done += len(part)
        time.sleep(max(0.0, began + done / 1e6 / MB_PER_S - time.monotonic()))
    os.write(2, b"\n")
    return done // 1_000_000


CHUNK, END = framed(EVENT), framed(DONE) + b"0\r\n\r\n"


class Beat:
    """The steps of the decoder: every stream that runs gets an event at each."""

    def __init__(self) -> None:
        self.streams: set[Stream] = set()
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._step()

    def _step(self) -> None:
        for stream in list(self.streams):
            stream.write()
        self._at = max(self._at + STEP_S, self._loop.time())
        self._loop.call_at(self._at, self._step)


class Stream(asyncio.Protocol):
    """One connection with paced requests, one after the other."""

    def __init__(self, beat: Beat) -> None:
        self._beat, self._loop = beat, asyncio.get_running_loop()
        self._transport = asyncio.Transport()
        self._came = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Begin the answer once the request is whole."""
        self._came += data
        head, gap, body = self._came.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if not gap or len(body) < length:
            return
        self._came = b""
        asked = json.loads(body)
        self._left = int(asked["max_tokens"])
        self._transport.write(HEAD)
        match asked["pace"]:
            case "step":
                self._beat.streams.add(self)
            case "own":
                self._own(self._loop.time())
            case "lines" | "line" | "garbage" as kind:
                printed = self._loop.run_in_executor(None, flood, kind, self._left)
                printed.add_done_callback(
                    lambda mb: self._transport.write(CHUNK * mb.result() + END)
                )
            case _:
                self._transport.write(CHUNK * self._left + END)

    def connection_lost(self, exc: Exception | None) -> None:
        self._beat.streams.discard(self)

    def write(self) -> None:
        """Send the next event, and the end after the last one."""
        self._left -= 1
        self._transport.write(CHUNK if self._left else CHUNK + END)
        if not self._left:
            self._beat.streams.discard(self)

    def _own(self, at: float) -> None:
        if self._transport.is_closing():
            return
        self.write()
        if self._left:
            self._loop.call_at(at + STEP_S, self._own, at + STEP_S)


class Door(asyncio.Protocol):
    """Looks at the first bytes of a connection: a paced stream, or all that the fake serves."""

    def __init__(self, beat: Beat, others: Callable[[], asyncio.Protocol]) -> None:
        self._beat, self._others = beat, others
        self._transport = asyncio.Transport()
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tcp_nodelay(transport, True)  # noqa: FBT003 - aiohttp's; llama-server sets it, too

    def data_received(self, data: bytes) -> None:
        """Hand the connection on once the body has begun, or there is none to wait for."""
        self._came += data
        head, gap, body = self._came.partition(b"\r\n\r\n")
        if not gap or (head.startswith(b"POST") and not body):
            return
        then = Stream(self._beat) if b'"pace"' in body else self._others()
        self._transport.set_protocol(then)
        then.connection_made(self._transport)
        then.data_received(self._came)


class PacedSite(web.SockSite):
    """A site behind that door."""

    async def start(self) -> None:
        """Listen."""
        await web.BaseSite.start(self)
        server = self._runner.server
        assert server is not None
        beat = Beat()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Door(beat, server), sock=self._sock, backlog=self._backlog
        )


if __name__ == "__main__":
    sys.exit(main(PacedSite))
