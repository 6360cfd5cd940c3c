"""A bad connection between two unix sockets: the toxics of Shopify's toxiproxy.

What the engine says passes through; what is asked of it is not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["Toxic", "toxic"]

READ_BYTES = 4096
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that drops what was not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """What is wrong with the connection; nothing by default.

    Attributes:
        latency_s: Before every piece.
        bytes_per_s: How fast it passes; None for at once.
        slice_bytes: In pieces of so many bytes; None for as they come.
        limit_bytes: So many bytes pass, and then it closes; None for all.
        reset_bytes: So many bytes pass, and then it is reset; None for all.
        mute_bytes: So many bytes pass, and then nothing any more, without an end.
        close_s: How long the end of the engine's side is kept back.
        down: Nobody listens.
    """

    latency_s: float = 0.0
    bytes_per_s: float | None = None
    slice_bytes: int | None = None
    limit_bytes: int | None = None
    reset_bytes: int | None = None
    mute_bytes: int | None = None
    close_s: float = 0.0
    down: bool = False

    @property
    def passes_bytes(self) -> float:
        """How many bytes pass at all."""
        limits = (self.limit_bytes, self.reset_bytes, self.mute_bytes)
        return min((one for one in limits if one is not None), default=float("inf"))


class _Link:
    """One connection through it."""

    def __init__(self, what: Toxic, engine: Path) -> None:
        self._what, self._engine = what, engine

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._engine)
        asks = asyncio.get_running_loop().create_task(_copy(reader, back))
        try:
            await self._answers(there, writer, asks)
        except ConnectionError:
            pass
        finally:
            asks.cancel()
            back.close()
            writer.close()

    async def _answers(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: asyncio.Task[None]
    ) -> None:
        what, passed = self._what, 0
        while data := await there.read(what.slice_bytes or READ_BYTES):
            data = data[: int(min(len(data), what.passes_bytes - passed))]
            passed += len(data)
            await asyncio.sleep(what.latency_s)
            if what.bytes_per_s is not None:
                await asyncio.sleep(len(data) / what.bytes_per_s)
            writer.write(data)
            await writer.drain()
            if passed >= what.passes_bytes:
                break
        if passed >= what.passes_bytes and what.mute_bytes is not None:
            await asks  # until the daemon gives up
        elif what.reset_bytes is not None and passed >= what.passes_bytes:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        await asyncio.sleep(what.close_s)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def toxic(path: Path, engine: Path, what: Toxic) -> AsyncIterator[None]:
    """Listen at a path, for an engine that listens at another, while the block runs."""
    if what.down:
        yield
        return
    links: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        links.add(task)
        await _Link(what, engine).carry(reader, writer)
        links.discard(task)

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
