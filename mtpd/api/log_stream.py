"""``GET /mtpd/v1/logs``: the latest log lines, and those that come.

Plain JSON, or with ``follow`` a stream that begins again where its reader left off. A
reader of a flood that cannot keep up misses lines and is told how many; one that takes
nothing is disconnected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from mtpd.api import handlers, sse
from mtpd.api.filters import format_position
from mtpd.api.schema import dump, listed, refused
from mtpd.engine import logs
from mtpd.errors import NotFoundError
from mtpd.events import StreamOpen, StreamReset
from mtpd.log_views import ABOUT, LogLinesView, LogLineView, LogView
from mtpd.logfeed import DAEMON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp import web

    from mtpd.api.backend import Backend
    from mtpd.api.schema import LogQuery
    from mtpd.logfeed import Line, LogFeed, Source

__all__ = ["MOST", "STREAMED", "lines"]

MOST: Final = 100
"""Lines of one event: a flood must not cost an event per line."""
PAUSE_S: Final = 0.05
"""After a full event: a reader of a flood gets 2,000 lines a second and not all of the loop."""
NEXT_LINES: Final = "log.lines"
STREAMED: Final[Mapping[str, type]] = {
    NEXT_LINES: LogLinesView,
    StreamOpen.type: StreamOpen,
    StreamReset.type: StreamReset,
}
"""What the stream holds, by the type of the event."""


async def lines(backend: Backend, request: web.Request, query: LogQuery) -> web.StreamResponse:
    """The lines that a query asks for, once or for as long as the reader stays.

    Raises:
        InvalidRequestError: The query contradicts itself, or names no place or kind.
        NotFoundError: There is no such model.
    """
    about = None if query.about is None else listed("about", query.about, ABOUT)
    wants = await _wants(backend, query)
    feed, boot = backend.feed(), backend.position()[0]
    asked = _Asked(
        feed=feed,
        boot=boot,
        wants=wants,
        about=about,
        place=sse.place(request, query.after, boot=boot, head=feed.seq),
        tail=query.tail,
    )
    if not query.follow:
        return await handlers.large_response(asked.kept())
    return await _stream(asked, backend, request)


class _Asked:
    """What one reader wants."""

    def __init__(
        self,
        *,
        feed: LogFeed,
        boot: str,
        wants: Callable[[Source], bool],
        about: frozenset[str] | None,
        place: sse.Place,
        tail: int,
    ) -> None:
        self.feed, self.boot, self.wants, self.about = feed, boot, wants, about
        self._place, self._tail = place, tail

    def kept(self) -> LogView:
        """What there is already."""
        lost, found = self.held()
        return LogView(boot=self.boot, seq=self.feed.seq, lost=lost, lines=_views(found))

    def held(self) -> tuple[bool, list[Line]]:
        """Whether lines are missing before what there is already, and that."""
        if self._place.replays:
            gone, found = self.feed.kept(self.wants, self.about, after=self._place.after[1])
            # Who asks for all that is kept, or for another life's, knows of no line before.
            lost = self._place.lost or (self._place.exact and gone)
        else:
            _, found = self.feed.kept(self.wants, self.about)
            lost, found = False, found[len(found) - self._tail :] if self._tail else []
        return lost, found


async def _stream(asked: _Asked, backend: Backend, request: web.Request) -> web.StreamResponse:
    response = sse.EventStream(sse.settings(request))
    await response.prepare(request)

    async def talk() -> None:
        async with response:
            with asked.feed.follow(asked.wants, asked.about) as reader:
                out = _Out(response, asked)
                await out.begin(*asked.held())
                while True:
                    missed, found = await reader.take(MOST)
                    if missed:
                        await out.reset(f"{missed} lines came too fast for this reader")
                    await out.send(_views(found))
                    await anyio.sleep(PAUSE_S if len(found) == MOST else 0)

    await sse.until_left(backend, request, talk, stalled=lambda: response.stalled)
    return response


class _Out:
    """One reader's stream."""

    def __init__(self, response: sse.EventStream, asked: _Asked) -> None:
        self._response, self._asked = response, asked

    async def begin(self, lost: bool, found: Sequence[Line]) -> None:  # noqa: FBT001
        """Say where the stream is, and what is there already.

        The place of the end is told here only if no line follows: else a reader that is cut
        off in between would come back behind lines that it never got.
        """
        await self._response.send(
            dump(StreamOpen(boot=self._asked.boot, seq=self._asked.feed.seq)),
            event=StreamOpen.type,
            id=None if found else format_position(self._asked.boot, self._asked.feed.seq),
            retry=sse.RECONNECT_MS,
        )
        if lost:
            await self.reset("lines after the wanted place are not kept any more")
        for first in range(0, len(found), MOST):
            await self.send(_views(found[first : first + MOST]))
            await anyio.lowlevel.checkpoint()

    async def send(self, found: Sequence[LogLineView]) -> None:
        """Send lines; the id is the last one's."""
        place = format_position(self._asked.boot, found[-1].seq)
        data = dump(LogLinesView(lines=tuple(found)))
        await self._response.send(data, event=NEXT_LINES, id=place)

    async def reset(self, reason: str) -> None:
        """Say that lines before the next ones are missing."""
        told = StreamReset(boot=self._asked.boot, seq=self._asked.feed.seq, reason=reason)
        await self._response.send(dump(told), event=told.type)


def _views(found: Sequence[Line]) -> tuple[LogLineView, ...]:
    return tuple(
        LogLineView(
            seq=line.seq,
            at=line.at,
            source="daemon" if line.source is DAEMON else "engine",
            profile=line.source,
            engine_id=line.engine_id,
            level=line.level or logs.level(line.text),
            text=line.text,
            fact=line.fact,
            about=line.about,
        )
        for line in found
    )


async def _wants(backend: Backend, query: LogQuery) -> Callable[[Source], bool]:
    if query.model is None:
        match query.source:
            case "daemon":
                return lambda source: source is DAEMON
            case "engines":
                return lambda source: source is not DAEMON
            case _:
                return lambda _source: True
    if query.source is not None:
        raise refused("source", "a model's lines are those of its engine: use one of both")
    found = await backend.model(query.model)
    if found is None:
        message = f"There is no model {query.model!r}."
        raise NotFoundError(message, hint="mtpctl models lists them.")
    return lambda source: source == found.id
