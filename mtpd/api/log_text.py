"""``/logs`` and ``/logs/stream/...``: the feed of log lines as plain text, as llama-swap's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.api import sse
from mtpd.errors import InvalidError
from mtpd.logfeed import DAEMON

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.api.backend import Backend
    from mtpd.logfeed import LogFeed, Source

__all__ = ["history", "stream"]

HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
}


async def history(feed: LogFeed, _backend: Backend, _request: web.Request) -> web.Response:
    """The latest lines of the daemon and its engines."""
    return web.Response(text=feed.history(lambda _source: True), headers=HEADERS)


async def stream(feed: LogFeed, backend: Backend, request: web.Request) -> web.StreamResponse:
    """The latest lines and then those that come, of all, "proxy", "upstream" or one model.

    Raises:
        InvalidError: There is no such source.
    """
    wants = await _wanted(backend, request.match_info.get("source", ""))
    response = web.StreamResponse(headers=HEADERS)

    async def talk() -> None:
        with feed.follow(wants) as reader:
            if "no-history" not in request.query:
                await _send(request, response, feed.history(wants))
            while True:
                await _send(request, response, (await reader.next())[1])

    await response.prepare(request)
    await sse.until_left(backend, request, talk)
    return response


async def _send(request: web.Request, response: web.StreamResponse, text: str) -> None:
    if text:
        with anyio.fail_after(sse.settings(request).send_timeout_s):
            await response.write(text.encode(errors="replace"))


async def _wanted(backend: Backend, name: str) -> Callable[[Source], bool]:
    match name:
        case "":
            return lambda _source: True
        case "proxy":
            return lambda source: source is DAEMON
        case "upstream":
            return lambda source: source is not DAEMON
        case _:
            pass
    found = await backend.model(name)
    if found is None:
        msg = f"there is no log of {name!r}"
        raise InvalidError(msg, hint="use proxy, upstream or the name of a model")
    return lambda source: source == found.id
