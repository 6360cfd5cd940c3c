"""How long an engine may take for its answer, as configured; without limits it costs nothing.

Only the time in which the engine is waited for counts: a client that reads slowly holds
the engine up, and that is not the engine's delay.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

import anyio

from mtpd.config.serving import bound
from mtpd.proxy.outcomes import SlowEngineError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mtpd.config.serving import EngineTimeouts

__all__ = ["Patience", "is_silence"]

T = TypeVar("T")


class Patience:
    """With one engine, for one answer; begins when it is made."""

    def __init__(self, timeouts: EngineTimeouts) -> None:
        self._first_s, self._idle_s = bound(timeouts.first_byte_s), bound(timeouts.idle_s)
        self._total_s = bound(timeouts.total_s)
        self._limited = min(self._first_s, self._idle_s, self._total_s) < math.inf
        began = _now()
        self._due, self._end = began + self._first_s, began + self._total_s
        self._answered = self._fresh = False
        self._waiting = anyio.CancelScope()

    async def wait(self, awaited: Awaitable[T]) -> T:
        """Something of the engine.

        Raises:
            SlowEngineError: It did not come in time.
        """
        if not self._limited:
            return await awaited
        if self._fresh:
            self._due, self._fresh = _now() + self._idle_s, False
        with anyio.CancelScope(deadline=min(self._due, self._end)) as self._waiting:
            return await awaited
        raise SlowEngineError(self._why())

    async def chunk(self, more: Awaitable[bytes]) -> bytes:
        """The next bytes of the answer, likewise."""
        data = await self.wait(more)
        self.came(data)
        return data

    def came(self, data: bytes) -> None:
        """Some of the answer is here, also while it is waited for."""
        if self._limited and not is_silence(data):
            self._answered = self._fresh = True
            self._due = _now() + self._idle_s
            self._waiting.deadline = min(self._due, self._end)

    def _why(self) -> str:
        if self._end <= self._due:
            return f"the engine did not end its answer within {self._total_s:g} s (total_s)"
        if not self._answered:
            return f"the engine did not answer within {self._first_s:g} s (first_byte_s)"
        return f"the engine sent nothing more of its answer for {self._idle_s:g} s (idle_s)"


def _now() -> float:
    """The loop's time, which deadlines are in; anyio tells it to tasks only, not to callbacks."""
    return asyncio.get_running_loop().time()


def is_silence(chunk: bytes) -> bool:
    """Whether a chunk holds nothing but comments of an event stream, e.g. the engine's pings."""
    return chunk.startswith(b":") and all(
        line.startswith(b":") or not line for line in chunk.splitlines()
    )
