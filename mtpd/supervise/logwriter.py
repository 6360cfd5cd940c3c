"""Writes a log file beside the loop: a disk that is slow, or stands still, holds nobody up.

Covers the thread and how much may wait for it; what is written where is
``mtpd.supervise.logfile``'s. For one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.supervise.logfile import LogFile

__all__ = ["ROOM_CHARS", "LogWriter"]

log = structlog.get_logger()

ROOM_CHARS: Final = 4 * 1024 * 1024
"""What may wait for the disk; lines beyond are lost, and counted."""


class LogWriter:
    """Takes lines for a file at once and writes them in the order in which they came.

    Args:
        file: Written to from the thread only.
        room_chars: How much may wait.
    """

    def __init__(self, file: LogFile, *, room_chars: int = ROOM_CHARS) -> None:
        self._file, self._room = file, room_chars
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
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
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mtpd-log")
        self._thread.submit(self._write, tuple(lines), chars, lost)

    def close(self, done: Callable[[], None]) -> None:
        """Close the file after what waits for it.

        Args:
            done: Called in the loop once that is so.
        """
        if self._thread is None:
            done()
            return
        loop, thread = asyncio.get_running_loop(), self._thread
        closing = thread.submit(self._close, self._lost)
        thread.shutdown(wait=False)

        def ended() -> None:
            thread.shutdown(wait=True)  # its last work is done
            done()

        closing.add_done_callback(lambda _: loop.call_soon_threadsafe(ended))

    def _write(self, lines: Sequence[str], chars: int, lost: int) -> None:
        try:
            self._file.write(lines, lost=lost)
        finally:
            with self._lock:
                self._room += chars

    def _close(self, lost: int) -> None:
        self._file.write((), lost=lost)
        self._file.close()
