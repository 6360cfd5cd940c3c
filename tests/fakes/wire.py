"""A transport in memory: what an engine sends is fed by hand, read by read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mtpd.proxy.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Wire", "answered"]


class Wire(asyncio.Transport):
    """Remembers what a protocol does with its connection.

    Attributes:
        reading: Whether the protocol wants to be read for.
        sent: What it has written.
        closed: Whether it has hung up.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.reading, self.closed, self.sent = True, False, b""
        self._answer = answer
        answer.connection_made(self)

    def feed(self, data: bytes) -> None:
        """One read."""
        assert self.reading, "it was not to be read"
        buffer = self._answer.get_buffer(-1)
        buffer[: len(data)] = data
        self._answer.buffer_updated(len(data))

    def end(self, error: Exception | None = None) -> None:
        """The engine hangs up."""
        self._answer.connection_lost(error)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.sent += b"".join(list_of_data)


def answered(*reads: bytes, bodiless: bool = False) -> tuple[Answer, Wire]:
    """A response of which some reads have come."""
    answer = Answer(memoryview(bytearray(64 * 1024)), bodiless=bodiless)
    wire = Wire(answer)
    for data in reads:
        wire.feed(data)
    return answer, wire
