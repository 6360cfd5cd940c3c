"""An engine's HTTP server, byte by byte: what it sends, and when it hangs up, is scripted."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

__all__ = ["DONE", "SSE", "Conversation", "Script", "Upstream", "json_reply", "stream", "upstream"]

SSE = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
DONE = b"data: [DONE]\n\n"


@dataclass
class Conversation:
    """One connection with its one request.

    Attributes:
        gone: Set when the other side has closed the connection.
    """

    line: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: anyio.Event = field(default_factory=anyio.Event)

    async def head(self, headers: dict[str, str], status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        await self.raw("\r\n".join(lines).encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def kill(self) -> None:
        """Hang up as a killed process does."""
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1024):
                pass
        self.gone.set()


Script: TypeAlias = "Callable[[Conversation], Awaitable[None]]"


class Upstream:
    """Records every conversation; ``script`` answers it.

    Attributes:
        seen: Every conversation so far.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Conversation] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *fields = head.strip().split("\r\n")
            headers = dict(f.split(": ", 1) for f in fields)
            body = await reader.readexactly(int(headers.get("Content-Length", 0)))
            talk = Conversation(line, headers, body, reader, writer)
            self.seen.append(talk)
            await self.script(talk)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def upstream(path: Path, script: Script) -> AsyncIterator[Upstream]:
    """Listen on a unix socket while the block runs."""
    made = Upstream(script)
    server = await asyncio.start_unix_server(made.serve, path)
    try:
        yield made
    finally:
        server.close()
        for talk in made.seen:
            if not talk.writer.is_closing() or talk.writer.transport.get_write_buffer_size():
                talk.kill()


def stream(*chunks: bytes, headers: dict[str, str] | None = None) -> Script:
    """A script that sends these chunks and ends well."""

    async def play(talk: Conversation) -> None:
        await talk.head({**SSE, **(headers or {})})
        for chunk in chunks:
            await talk.chunk(chunk)
        await talk.end()

    return play


def json_reply(body: bytes, status: str = "200 OK", pieces: Sequence[int] = ()) -> Script:
    """A script that sends a JSON body, cut at some offsets."""

    async def play(talk: Conversation) -> None:
        kind = {"Content-Type": "application/json; charset=utf-8"}
        await talk.head({**kind, "Content-Length": str(len(body))}, status)
        for start, stop in zip([0, *pieces], [*pieces, len(body)], strict=True):
            await talk.raw(body[start:stop])

    return play
