"""``GET /api/events``: llama-swap's stream of states, log lines and requests.

Every message is ``{"type": ..., "data": "<JSON text>"}`` as there. Our own events, which
say more, are under ``/mtpd/v1/events``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio

from mtpd.api import sse
from mtpd.events import ConfigReloaded, EngineTransition, Envelope, RequestFinished
from mtpd.logfeed import DAEMON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp import web
    from anyio.streams.memory import MemoryObjectSendStream

    from mtpd.api.backend import Backend
    from mtpd.bus import SubscriberDropped
    from mtpd.config.live import Configuration
    from mtpd.config.model import Config
    from mtpd.logfeed import LogFeed, Reader, Source
    from mtpd.views import Json, ModelView

    Outbox = MemoryObjectSendStream[tuple[str, Json]]
    Send = Callable[[str, Json], Awaitable[None]]

__all__ = ["events", "swap_state"]

OUTBOX = 64
"""Messages between the two sources and the client; both wait when it is full."""


def swap_state(state: str) -> str:
    """A state of an engine in llama-swap's words: starting, ready, stopping or stopped."""
    match state:
        case "spawning" | "loading" | "probing" | "backoff":
            return "starting"
        case "ready":
            return "ready"
        case "draining" | "stopping" | "releasing" | "wedged":
            return "stopping"
        case _:
            return "stopped"


async def events(
    feed: LogFeed, config: Configuration, backend: Backend, request: web.Request
) -> web.StreamResponse:
    """Send everything that is, then what changes, until the reader leaves."""
    response = sse.EventStream(sse.settings(request))
    await response.prepare(request)

    async def send(kind: str, data: Json) -> None:
        message = {"type": kind, "data": _compact(data)}
        await response.send(_compact(message), event="message")

    async def talk() -> None:
        # Both sources are followed before the present is told, so that nothing is missed.
        async with response, backend.subscribe(None) as news:
            with feed.follow(lambda _source: True) as reader:
                await _present(feed, config, backend, send)
                await _changes(config, backend, reader, news, send)

    await sse.until_left(backend, request, talk, stalled=lambda: response.stalled)
    return response


def _compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


async def _present(feed: LogFeed, config: Configuration, backend: Backend, send: Send) -> None:
    daemon, engines = feed.history(_is_daemon), feed.history(lambda one: not _is_daemon(one))
    await send("logData", {"source": "proxy", "data": daemon})
    await send("logData", {"source": "upstream", "data": engines})
    await send("modelStatus", await _states(config, backend))
    await send("uiConfig", {})
    await send("profileChanged", {"active": None})
    await send("inflight", {"operation": "snapshot", "requests": []})


def _is_daemon(source: Source) -> bool:
    return source is DAEMON


async def _states(config: Configuration, backend: Backend) -> list[Json]:
    """Every model with its state, sorted as there."""
    status = await backend.status()
    states = {engine.profile: swap_state(engine.state) for engine in status.engines}
    now = config.now
    return [
        _state(model, now, states.get(model.id, "stopped"))
        for model in sorted(await backend.models(), key=lambda model: model.id)
    ]


def _state(model: ModelView, config: Config, state: str) -> Json:
    """A model; it has no profile any more if the configuration has changed just now."""
    profile, shown = config.profiles.get(model.id), config.shown(model.id)
    return {
        "id": shown,
        "name": "" if profile is None else profile.title or "",
        "description": "" if profile is None else profile.description or "",
        "state": state,
        "unlisted": profile is not None and profile.unlisted,
        "peerID": "",
        "aliases": [name for name in (*model.aliases, model.id) if name != shown],
    }


async def _changes(
    config: Configuration,
    backend: Backend,
    reader: Reader,
    news: AsyncIterator[Envelope | SubscriberDropped],
    send: Send,
) -> None:
    outbox, inbox = anyio.create_memory_object_stream[tuple[str, "Json"]](OUTBOX)
    async with anyio.create_task_group() as tasks, inbox, outbox:
        tasks.start_soon(_lines, reader, outbox)
        tasks.start_soon(_news, config, backend, news, outbox)
        async for kind, data in inbox:
            if kind == _END:
                break
            await send(kind, data)
        tasks.cancel_scope.cancel()


_END = ""


async def _lines(reader: Reader, outbox: Outbox) -> None:
    while True:
        source, text = await reader.next()
        name = "proxy" if _is_daemon(source) else "upstream"
        await outbox.send(("logData", {"source": name, "data": text}))


async def _news(
    config: Configuration,
    backend: Backend,
    news: AsyncIterator[Envelope | SubscriberDropped],
    outbox: Outbox,
) -> None:
    """Ends with the daemon, or where the reader was too slow: it connects anew then."""
    async for item in news:
        if not isinstance(item, Envelope):
            break
        match item.event:
            case EngineTransition() | ConfigReloaded():
                await outbox.send(("modelStatus", await _states(config, backend)))
            case RequestFinished():
                await outbox.send(("activity", {"id": item.seq}))
            case _:
                pass
    await outbox.send((_END, None))
