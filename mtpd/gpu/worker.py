"""The one thread that talks to drivers, with a deadline for every question.

A read that hangs in the kernel can be neither cancelled nor killed. When one exceeds the
deadline, everybody gets ``Absent`` at once until it returns: no question queues behind
it, and the daemon can still end, because the thread is a daemon thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import structlog

from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEADLINE_S", "TelemetryThread"]

log = structlog.get_logger()

DEADLINE_S: Final = 2.0
"""Longest a driver may take; a read of amdgpu's SMU takes milliseconds."""

_JOIN_S: Final = 0.5
"""A thread that is not hanging ends at once."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Question:
    """A call in flight."""

    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    asked_s: float
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: Any = None

    def run(self) -> None:
        try:
            self.answer = self.call()
        except Exception as error:  # a driver's binding must not end the thread
            log.exception("gpu.read_failed")
            self.answer = Absent(f"{type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            self.loop.call_soon_threadsafe(self.done.set)


class TelemetryThread:
    """Runs one call after the other in a thread of its own.

    Args:
        deadline_s: Longest that a call may take before its asker gives up.
    """

    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._queue: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._current: _Question | None = None

    async def ask(self, call: Callable[[], T]) -> T | Absent:
        """What a call returns, or Absent when it, or one before it, does not return in time.

        Args:
            call: Talks to a driver; runs in the thread.
        """
        if self._stuck():
            return self._late()
        with anyio.move_on_after(self._deadline_s):
            while self._current is not None and not self._current.done.is_set():
                await self._current.done.wait()
            question = self._current = self._put(call)
            await question.done.wait()
            answer: T | Absent = question.answer
            return answer
        return self._late()

    def close(self) -> bool:
        """End the thread; whether it ended.

        One that hangs in the kernel is left to the end of the process.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._queue.put(None)
        thread.join(_JOIN_S)
        return not thread.is_alive()

    def _put(self, call: Callable[[], object]) -> _Question:
        question = _Question(call, asyncio.get_running_loop(), anyio.current_time())
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mtpd-telemetry", daemon=True)
            self._thread.start()
        self._queue.put(question)
        return question

    def _stuck(self) -> bool:
        current = self._current
        return (
            current is not None
            and not current.done.is_set()
            and anyio.current_time() - current.asked_s >= self._deadline_s
        )

    def _late(self) -> Absent:
        return Absent(f"the driver has not answered within {self._deadline_s:g} s")

    def _work(self) -> None:
        while (question := self._queue.get()) is not None:
            question.run()
