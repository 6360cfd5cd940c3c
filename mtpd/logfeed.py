"""The latest log lines of the daemon and of its engines, and readers that follow them.

Memory is bounded by lines and by characters, per source and per reader: a flood of one
engine pushes out its own lines only, and a reader that is too slow is told how many lines
it missed. Not a log file: those are ``mtpd.supervise.logfile``.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["DAEMON", "LogFeed", "Reader", "Source"]

Source = str | None
"""The profile of an engine, or None for the daemon itself."""

DAEMON: Source = None
LINES = 1000
CHARS = 256 * 1024


class Reader:
    """One follower; holds what it has not taken yet."""

    def __init__(self, wants: Callable[[Source], bool], *, chars: int) -> None:
        self.wants = wants
        self._chars, self._held, self._missed = chars, 0, 0
        self._lines: deque[tuple[Source, str]] = deque()
        self._wake = anyio.Event()

    def offer(self, source: Source, line: str) -> None:
        """Queue a line; the oldest give way."""
        self._lines.append((source, line))
        self._held += len(line) + 1
        while self._held > self._chars:
            self._held -= len(self._lines.popleft()[1]) + 1
            self._missed += 1
        self._wake.set()

    async def next(self) -> tuple[Source, str]:
        """What has come since, of one source, with its line ends."""
        while not self._lines:
            self._wake = anyio.Event()
            await self._wake.wait()
        source = self._lines[0][0]
        taken = [f"[{self._missed} lines were missed]\n"] if self._missed else []
        self._missed = 0
        while self._lines and self._lines[0][0] == source:
            line = self._lines.popleft()[1]
            self._held -= len(line) + 1
            taken.append(f"{line}\n")
        return source, "".join(taken)


class _Tail:
    """The last lines of one source, numbered across all sources."""

    def __init__(self, lines: int, chars: int) -> None:
        self.lines: deque[tuple[int, str]] = deque()
        self._most, self._chars, self._held = lines, chars, 0

    def add(self, number: int, line: str) -> None:
        self.lines.append((number, line))
        self._held += len(line)
        while len(self.lines) > self._most or self._held > self._chars:
            self._held -= len(self.lines.popleft()[1])


class LogFeed:
    """Takes lines, keeps the latest, and hands them to readers; for one event loop.

    Args:
        lines: How many are kept per source.
        chars: How many characters are kept per source, and per reader that lags behind.
    """

    def __init__(self, *, lines: int = LINES, chars: int = CHARS) -> None:
        self._limits = (lines, chars)
        self._count = 0
        self._tails: dict[Source, _Tail] = {}
        self._readers: list[Reader] = []

    def add(self, source: Source, lines: Sequence[str]) -> None:
        """Take lines in the order in which they were written."""
        tail = self._tails.get(source) or self._tails.setdefault(source, _Tail(*self._limits))
        for line in lines:
            self._count += 1
            tail.add(self._count, line)
            for reader in self._readers:
                if reader.wants(source):
                    reader.offer(source, line)

    def from_threads(self, source: Source) -> Callable[[str], None]:
        """Takes single lines from any thread; made in the loop that the feed is for."""
        loop = asyncio.get_running_loop()

        def take(line: str) -> None:
            loop.call_soon_threadsafe(self.add, source, (line,))

        return take

    def history(self, wants: Callable[[Source], bool]) -> str:
        """The kept lines of the wanted sources, in the order in which they came."""
        kept = [tail.lines for source, tail in self._tails.items() if wants(source)]
        return "".join(f"{line}\n" for _, line in heapq.merge(*kept))

    @contextmanager
    def follow(self, wants: Callable[[Source], bool]) -> Iterator[Reader]:
        """Read what comes while the block runs."""
        reader = Reader(wants, chars=self._limits[1])
        self._readers.append(reader)
        try:
            yield reader
        finally:
            self._readers.remove(reader)
