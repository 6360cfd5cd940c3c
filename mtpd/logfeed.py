"""The latest log lines of the daemon and of its engines, and readers that follow them.

Memory is bounded by lines and by characters, per source and per reader: a flood of one
engine pushes out its own lines only, and a reader that is too slow is told how many lines
it missed. What an engine prints once per start is kept longer than the lines of its
requests. Not a log file: those are ``mtpd.supervise.logfile``.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from mtpd.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from mtpd.clock import Clock

__all__ = ["DAEMON", "Line", "LogFeed", "Reader", "Source"]

Source = str | None
"""The profile of an engine, or None for the daemon itself."""

DAEMON: Source = None
LINES: Final = 1000
CHARS: Final = 256 * 1024
MARKED_LINES: Final = 400
"""Lines of engine starts that are kept per source beside the latest: a start prints some 60."""


class Line(NamedTuple):
    """One line.

    Attributes:
        seq: Its number among all sources, from 1.
        at: When it came, RFC 3339 in UTC.
        engine_id: The start of the engine that printed it.
        level: As the daemon said it; None for engines, whose lines say it themselves.
        fact: What it was read as, or None.
        about: What that is evidence of.
    """

    seq: int
    at: str
    source: Source
    engine_id: str | None
    level: str | None
    text: str
    fact: str | None = None
    about: str | None = None


class Reader:
    """One follower; holds what it has not taken yet."""

    def __init__(
        self, wants: Callable[[Source], bool], about: AbstractSet[str] | None, *, chars: int
    ) -> None:
        self._wants, self._about = wants, about
        self._chars, self._held, self._missed = chars, 0, 0
        self._lines: deque[Line] = deque()
        self._wake = anyio.Event()

    def offer(self, line: Line) -> None:
        """Queue a line if it is wanted; the oldest give way."""
        if not self._wants(line.source) or not _is_about(line, self._about):
            return
        self._lines.append(line)
        self._held += len(line.text) + 1
        while self._held > self._chars:
            self._held -= len(self._lines.popleft().text) + 1
            self._missed += 1
        self._wake.set()

    async def take(self, most: int) -> tuple[int, list[Line]]:
        """How many lines were missed, and those that have come since, at least one."""
        await self._some()
        missed, self._missed = self._missed, 0
        return missed, [self._pop() for _ in range(min(most, len(self._lines)))]

    async def next(self) -> tuple[Source, str]:
        """What has come since, of one source, with its line ends."""
        await self._some()
        source = self._lines[0].source
        taken = [f"[{self._missed} lines were missed]\n"] if self._missed else []
        self._missed = 0
        while self._lines and self._lines[0].source == source:
            taken.append(f"{self._pop().text}\n")
        return source, "".join(taken)

    async def _some(self) -> None:
        while not self._lines:
            self._wake = anyio.Event()
            await self._wake.wait()

    def _pop(self) -> Line:
        line = self._lines.popleft()
        self._held -= len(line.text) + 1
        return line


class _Tail:
    """The last lines of one source.

    Attributes:
        gone: Number of the newest line that was forgotten; 0 before the first.
    """

    def __init__(self, lines: int, chars: int) -> None:
        self.lines: deque[Line] = deque()
        self.gone = 0
        self._most, self._chars, self._held = lines, chars, 0

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self._held += len(line.text)
        while len(self.lines) > self._most or self._held > self._chars:
            oldest = self.lines.popleft()
            self._held -= len(oldest.text)
            self.gone = oldest.seq


class LogFeed:
    """Takes lines, keeps the latest, and hands them to readers; for one event loop.

    Args:
        clock: Dates the lines.
        marked: What is evidence of one of these is kept beside the latest lines, so that the
            lines of requests do not push it out.
        lines: How many are kept per source.
        chars: How many characters are kept per source (again so many of marked lines), and
            per reader that lags behind.

    Attributes:
        seq: Number of the latest line; 0 before the first.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        marked: AbstractSet[str] = frozenset(),
        lines: int = LINES,
        chars: int = CHARS,
    ) -> None:
        self.seq = 0
        self._clock, self._keeps, self._limits = clock, marked, (lines, chars)
        self._tails: dict[Source, _Tail] = {}
        self._marked: dict[Source, _Tail] = {}
        self._readers: list[Reader] = []

    def add(
        self,
        source: Source,
        lines: Sequence[str],
        *,
        engine_id: str | None = None,
        level: str | None = None,
        notes: Sequence[tuple[int, tuple[str, str]]] = (),
    ) -> None:
        """Take lines in the order in which they were written.

        Args:
            source: Who wrote them.
            lines: Without line ends.
            engine_id: The start that wrote them.
            level: How grave they are, where the source says it beside them.
            notes: Place in ``lines``, fact and what it is evidence of, in that order.
        """
        at, known = rfc3339(self._clock.utc()), dict(notes)
        tail = self._tails.get(source) or self._tails.setdefault(source, _Tail(*self._limits))
        for place, text in enumerate(lines):
            self.seq += 1
            fact, about = known.get(place, (None, None))
            line = Line(self.seq, at, source, engine_id, level, text, fact, about)
            tail.add(line)
            if about in self._keeps:
                self._mark(line)
            for reader in self._readers:
                reader.offer(line)

    def from_threads(self, source: Source) -> Callable[[str, str], None]:
        """Takes a level and a line from any thread; made in the loop that the feed is for."""
        loop = asyncio.get_running_loop()

        def take(level: str, line: str) -> None:
            loop.call_soon_threadsafe(lambda: self.add(source, (line,), level=level))

        return take

    def kept(
        self,
        wants: Callable[[Source], bool],
        about: AbstractSet[str] | None = None,
        *,
        after: int = 0,
    ) -> tuple[bool, list[Line]]:
        """The kept lines after a number, oldest first, and whether some after it are gone.

        Args:
            wants: Of which sources.
            about: What they are to be evidence of; None for every line.
            after: A line's number.
        """
        tails = [tail for source, tail in self._tails.items() if wants(source)]
        marked: list[_Tail] = []
        if about is not None:
            marked = [tail for source, tail in self._marked.items() if wants(source)]
        short = marked if about is not None and about <= self._keeps else tails
        found = {
            line.seq: line
            for line in heapq.merge(*(t.lines for t in (*tails, *marked)), key=attrgetter("seq"))
            if line.seq > after and _is_about(line, about)
        }
        return any(tail.gone > after for tail in short), list(found.values())

    def history(self, wants: Callable[[Source], bool]) -> str:
        """The kept lines of the wanted sources, in the order in which they came."""
        return "".join(f"{line.text}\n" for line in self.kept(wants)[1])

    @contextmanager
    def follow(
        self, wants: Callable[[Source], bool], about: AbstractSet[str] | None = None
    ) -> Iterator[Reader]:
        """Read what comes while the block runs."""
        reader = Reader(wants, about, chars=self._limits[1])
        self._readers.append(reader)
        try:
            yield reader
        finally:
            self._readers.remove(reader)

    def _mark(self, line: Line) -> None:
        tail = self._marked.get(line.source)
        if tail is None:
            tail = self._marked[line.source] = _Tail(MARKED_LINES, self._limits[1])
        tail.add(line)


def _is_about(line: Line, about: AbstractSet[str] | None) -> bool:
    return about is None or line.about in about
