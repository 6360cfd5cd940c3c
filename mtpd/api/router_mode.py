"""The operating endpoints of llama-server's router mode, over the same backend as our own.

Shapes of llama.cpp b11434 (``tools/server/server-models.cpp``): ``{"success": true}``, and
events ``{"model", "event": "status_change", "data": {"status"}}``. Loading and unloading
return before the engine is there or gone, as in the router.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd.api import schema, sse
from mtpd.api.auth import Scope
from mtpd.api.routes import Route, read_body
from mtpd.events import ConfigReloaded, EngineTransition, Envelope
from mtpd.proxy.replies import loaded

if TYPE_CHECKING:
    from mtpd.api.backend import Backend
    from mtpd.config.live import Configuration
    from mtpd.config.model import Config
    from mtpd.views import Json

__all__ = ["routes"]


async def _load(backend: Backend, request: web.Request) -> web.Response:
    asked = schema.parse_body(await read_body(request), schema.LoadBody)
    await backend.load(model=asked.model, idempotency_key=None)
    return web.json_response({"success": True})


async def _unload(backend: Backend, request: web.Request) -> web.Response:
    asked = schema.parse_body(await read_body(request), schema.LoadBody)
    await backend.unload(model=asked.model, idempotency_key=None)
    return web.json_response({"success": True})


async def _events(
    config: Configuration, backend: Backend, request: web.Request
) -> web.StreamResponse:
    response = sse.EventStream(sse.settings(request))
    await response.prepare(request)

    async def talk() -> None:
        async with response, backend.subscribe(None) as news:
            told: dict[str, str] = {}
            async for item in news:
                if not isinstance(item, Envelope):
                    return
                match item.event:
                    case EngineTransition() as moved:
                        status = _status(moved.new)
                        if told.get(moved.profile) != status:
                            told[moved.profile] = status
                            await response.send(json.dumps(_message(config.now, moved, status)))
                    case ConfigReloaded(added=added):
                        for name in added:  # a client that keeps a list learns of it so
                            news_of = _changed(config.now.shown(name), {"status": "unloaded"})
                            await response.send(json.dumps(news_of))
                    case _:
                        pass

    await sse.until_left(backend, request, talk, stalled=lambda: response.stalled)
    return response


def _status(state: str) -> str:
    """The router knows no state "failed": what failed is unloaded, with a mark."""
    return "unloaded" if loaded(state) == "failed" else loaded(state)


def _message(config: Config, moved: EngineTransition, status: str) -> dict[str, Json]:
    data: dict[str, Json] = {"status": status}
    if loaded(moved.new) == "failed":
        data["failed"] = True
    return _changed(config.shown(moved.profile), data)


def _changed(model: str, data: dict[str, Json]) -> dict[str, Json]:
    return {"model": model, "event": "status_change", "data": data}


def routes(config: Configuration) -> tuple[Route, ...]:
    """The rows, to be mounted beside the control API's; ``config`` has the models' names."""
    return (
        Route(
            method="POST",
            path="/models/load",
            handler=_load,
            summary="llama.cpp router: start a model's engine",
            scope=Scope.WRITE,
            request=schema.LoadBody,
            response=None,
        ),
        Route(
            method="POST",
            path="/models/unload",
            handler=_unload,
            summary="llama.cpp router: stop a model's engine",
            scope=Scope.WRITE,
            request=schema.LoadBody,
            response=None,
        ),
        Route(
            method="GET",
            path="/models/sse",
            handler=partial(_events, config),
            summary="llama.cpp router: states as they change (SSE)",
            scope=Scope.READ,
            request=None,
            response=None,
        ),
    )
