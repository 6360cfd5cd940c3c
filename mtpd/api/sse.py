"""The event stream: replay, filter, ping, and the end of readers that do not read.

Every event has the id ``BOOT-SEQ``. Beside the daemon's events the stream itself
speaks: ``stream.open`` first, ``stream.reset`` when events between the wanted place
and the next one are gone (read the state anew), ``stream.dropped`` last to a reader
that was too slow (reconnect with the last id).
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import anyio
import structlog
from aiohttp import web
from aiohttp_sse import EventSourceResponse

from mtpd.api.auth import admitted
from mtpd.api.filters import format_position, parse_position, unknown_types, wants
from mtpd.api.problem import FieldProblem, Problem
from mtpd.api.schema import InvalidRequestError, dump
from mtpd.events import Envelope, StreamDropped, StreamOpen, StreamReset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.api.backend import Backend
    from mtpd.api.filters import Position
    from mtpd.api.schema import EventQuery
    from mtpd.bus import SubscriberDropped

__all__ = [
    "RECONNECT_MS",
    "EventStream",
    "Place",
    "StreamSettings",
    "install",
    "place",
    "settings",
    "stream",
    "until_left",
]

log = structlog.get_logger()
RECONNECT_MS = 2000
ADMITTED_S = 5.0
"""How long a stream outlives the token that opened it: it has no end of its own."""
STALLED = 0.9
"""Of the patience with a reader: the clocks of those who notice differ a little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Timing of the stream.

    Attributes:
        ping_s: A comment is sent this often, so that a dead peer is noticed.
        send_timeout_s: A reader that takes nothing for this long is disconnected.
    """

    ping_s: float = 15.0
    send_timeout_s: float = 10.0


class _OpenStreams:
    """The streams that have to end before the daemon does."""

    def __init__(self) -> None:
        self.scopes: set[anyio.CancelScope] = set()


_SETTINGS = web.AppKey("mtpd.stream_settings", StreamSettings)
_OPEN = web.AppKey("mtpd.open_streams", _OpenStreams)


def install(app: web.Application, settings: StreamSettings) -> None:
    """Prepare an application for ``stream``; its open streams end when it shuts down."""
    app[_SETTINGS] = settings
    app[_OPEN] = _OpenStreams()
    app.on_shutdown.append(_end_all)


def settings(request: web.Request) -> StreamSettings:
    """The timing of the streams of this application."""
    return request.app[_SETTINGS]


class EventStream(EventSourceResponse):
    """The stream to one reader; knows whether that has stopped reading.

    Args:
        settings: Its timing.
    """

    def __init__(self, settings: StreamSettings) -> None:
        super().__init__(
            ping_interval=settings.ping_s,
            send_timeout=settings.send_timeout_s,
            headers={"X-Accel-Buffering": "no"},  # nginx would hold events back
        )
        self._patience_s = settings.send_timeout_s
        self._sending_since: float | None = None

    @property
    def stalled(self) -> bool:
        """Whether the reader has let what is being sent wait for as long as it may.

        Whoever notices first (this stream, its pings or the kernel) ends the connection, in
        each case with another error.
        """
        since = self._sending_since
        return since is not None and anyio.current_time() - since >= STALLED * self._patience_s

    async def send(
        self,
        data: str,
        id: str | None = None,  # noqa: A002 - the library's name
        event: str | None = None,
        retry: int | None = None,
    ) -> None:
        """Send an event; raises ConnectionResetError or TimeoutError."""
        self._sending_since = anyio.current_time()
        await super().send(data, id=id, event=event, retry=retry)
        self._sending_since = None


async def until_left(
    backend: Backend,
    request: web.Request,
    talk: Callable[[], Awaitable[None]],
    *,
    stalled: Callable[[], bool] = lambda: False,
) -> None:
    """Run a stream until it or its reader's token ends, or its reader leaves or stops reading.

    The end of the daemon ends it, too.

    Args:
        backend: Counts readers that stop reading.
        request: The reader's.
        talk: The stream.
        stalled: Whether the reader has stopped reading, where no TimeoutError says so.
    """
    scopes, timed_out = request.app[_OPEN].scopes, False
    with anyio.CancelScope() as scope:
        scopes.add(scope)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_with_token, request, scope)
                await talk()
                tasks.cancel_scope.cancel()
        except* ConnectionResetError as lost:
            log.info("api.stream_reader_left", reason=str(lost.exceptions[0]))
        except* TimeoutError:
            timed_out = True
        finally:
            scopes.discard(scope)
            if timed_out or stalled():
                # It cannot be told: what would tell it is what it does not take.
                log.warning("api.stream_reader_dropped", path=request.path)
                backend.stalled()


async def _end_with_token(request: web.Request, scope: anyio.CancelScope) -> None:
    while admitted(request):  # noqa: ASYNC110 - nobody tells of a token's end
        await anyio.sleep(ADMITTED_S)
    log.info("api.stream_token_ended", path=request.path)
    scope.cancel()


async def stream(backend: Backend, request: web.Request, query: EventQuery) -> web.StreamResponse:
    """Send events until the reader leaves, falls behind, or the daemon ends."""
    strange = unknown_types(query.types)
    if strange is not None:
        raise InvalidRequestError(
            Problem(
                slug="unknown-event-type",
                status=HTTPStatus.BAD_REQUEST,
                title="There is no such event type",
                detail=f"{strange[0].upper()}{strange[1:]}.",
                hint="A type or its first part lets events through, e.g. types=decision,engine.",
                errors=(FieldProblem("types", strange),),
            )
        )
    boot, head = backend.position()
    begin = place(request, query.after, boot=boot, head=head)
    response = EventStream(settings(request))
    async with backend.subscribe(begin.after) as items:
        await response.prepare(request)
        out = _Stream(response, boot=boot, types=query.types)

        async def talk() -> None:
            async with response:
                await out.begin(head, begin)
                await out.relay(items, expected=begin.after[1] + 1 if begin.exact else None)

        await until_left(backend, request, talk, stalled=lambda: response.stalled)
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a stream begins.

    Attributes:
        after: The subscription's argument.
        replays: Whether events before now are wanted.
        exact: Whether the next event must follow ``after`` without a gap.
        lost: Whether the wanted place is not in this boot.
    """

    after: Position
    replays: bool
    exact: bool
    lost: bool


def place(request: web.Request, after: str | None, *, boot: str, head: int) -> Place:
    """Where a stream begins, by the header of a reader that comes back, else by ``after``.

    Args:
        request: May have the header ``Last-Event-ID``.
        after: The place that the query names, or None.
        boot: This life of the daemon.
        head: Number of the latest that there is.

    Raises:
        InvalidRequestError: What was asked for is no place.
    """
    wanted = _wanted(request.headers.get("Last-Event-ID") or after)
    if wanted is None:
        # "From now on" is a place too: nothing is lost between here and the subscription.
        return Place(after=(boot, head), replays=False, exact=True, lost=False)
    if wanted[0] == boot and wanted[1] <= head:
        return Place(after=wanted, replays=True, exact=True, lost=False)
    oldest = not wanted[0]
    return Place(after=(boot, 0), replays=True, exact=False, lost=not oldest)


def _wanted(text: str | None) -> Position | None:
    """The place that a reader asks for; None means from now on.

    Raises:
        InvalidRequestError: It is no event id.
    """
    if not text:
        return None
    place = parse_position(text)
    if place is not None:
        return place
    raise InvalidRequestError(
        Problem(
            slug="invalid-event-id",
            status=HTTPStatus.BAD_REQUEST,
            title="The event id cannot be used",
            detail=f"{text[:80]!r} is not an id of this stream; they look like BOOT-SEQ.",
            hint="Leave it out to get the events from now on, or say 0 for all that are kept.",
            errors=(FieldProblem("Last-Event-ID", "must be BOOT-SEQ"),),
        )
    )


class _Stream:
    """One reader's stream."""

    def __init__(self, response: EventStream, *, boot: str, types: str | None) -> None:
        self._response = response
        self._boot = boot
        self._types = types

    async def begin(self, head: int, place: Place) -> None:
        """Say where the stream is; ids of a replay are left to the replayed events."""
        await self._response.send(
            dump(StreamOpen(boot=self._boot, seq=head)),
            event=StreamOpen.type,
            id=None if place.replays else format_position(self._boot, head),
            retry=RECONNECT_MS,
        )
        if place.lost:
            await self._reset(head, "the wanted place is not in this life of the daemon")

    async def relay(
        self, items: AsyncIterator[Envelope | SubscriberDropped], *, expected: int | None
    ) -> None:
        """Send what the filter lets through; ``expected`` is the sequence that comes next."""
        async for item in items:
            if not isinstance(item, Envelope):
                await self._say(StreamDropped(reason="the reader was too slow"))
                return
            if expected is not None and item.seq > expected:
                await self._reset(item.seq - 1, f"events {expected} to {item.seq - 1} are gone")
            expected = item.seq + 1
            if wants(self._types, item.type):
                await self._response.send(
                    dump(item), event=item.type, id=format_position(item.boot, item.seq)
                )

    async def _reset(self, seq: int, reason: str) -> None:
        await self._say(StreamReset(boot=self._boot, seq=seq, reason=reason))

    async def _say(self, told: StreamReset | StreamDropped) -> None:
        await self._response.send(dump(told), event=told.type)


async def _end_all(app: web.Application) -> None:
    for scope in tuple(app[_OPEN].scopes):
        scope.cancel()
