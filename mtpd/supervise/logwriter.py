"""Writes a log file beside the loop: a disk that is slow, or stands still, holds nobody up.

Not even the end of the daemon: the thread is one that a process may end without, and what is not
written ``LIMIT_S`` after an engine's end is told and left. Covers the thread and how much may
wait for it; what is written where is ``mtpd.supervise.logfile``'s. For one event loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.supervise.logfile import LogFile

__all__ = ["ROOM_CHARS", "LogWriter"]

log = structlog.get_logger()

ROOM_CHARS: Final = 4 * 1024 * 1024
"""What may wait for the disk; lines beyond are lost, and counted."""
LIMIT_S: Final = 2.0


class LogWriter:
    """Takes lines for a file at once and writes them in the order in which they came.

    Args:
        file: Written to from the thread only.
        room_chars: How much may wait.
        limit_s: How long closing may take.
    """

    def __init__(
        self, file: LogFile, *, room_chars: int = ROOM_CHARS, limit_s: float = LIMIT_S
    ) -> None:
        self._file, self._room, self._limit_s = file, room_chars, limit_s
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lost = 0

    def write(self, lines: Sequence[str]) -> None:
        """Take lines; those that there is no room for are lost."""
        if not lines:
            return
        chars = sum(map(len, lines)) + len(lines)
        with self._lock:
            fits = chars <= self._room
            self._room -= chars if fits else 0
        if not fits:
            if not self._lost:
                log.warning(
                    "engine.log_lost", path=str(self._file.path), error="the disk is too slow"
                )
            self._lost += len(lines)
            return
        lost, self._lost = self._lost, 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mtpd-log", daemon=True)
            self._thread.start()
        self._work.put(partial(self._write, tuple(lines), chars, lost))

    def close(self, done: Callable[[], None]) -> None:
        """Close the file after what waits for it.

        Args:
            done: Called in the loop once that is so, or takes too long.
        """
        if (thread := self._thread) is None:
            done()
            return
        loop = asyncio.get_running_loop()

        def closed() -> None:
            if not guard.cancelled():
                guard.cancel()
                thread.join()  # its last work is done
                done()

        def late() -> None:
            guard.cancel()  # whoever comes later
            log.warning("engine.log_not_closed", path=str(self._file.path), after_s=self._limit_s)
            done()

        guard = loop.call_later(self._limit_s, late)
        self._work.put(partial(self._close, self._lost))
        self._work.put(partial(loop.call_soon_threadsafe, closed))
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                work()

    def _write(self, lines: Sequence[str], chars: int, lost: int) -> None:
        try:
            self._file.write(lines, lost=lost)
        finally:
            with self._lock:
                self._room += chars

    def _close(self, lost: int) -> None:
        self._file.write((), lost=lost)
        self._file.close()
