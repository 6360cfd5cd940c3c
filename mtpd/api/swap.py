"""llama-swap's operating endpoints with its shapes, over the same backend as our own.

Written after llama-swap's ``internal/server`` (snapshot of 2026-08). Fields may be more
than there, none is renamed. What changes something needs what our own control API needs.
"""

from __future__ import annotations

import shlex
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd import __version__
from mtpd.api import handlers, log_text
from mtpd.api.auth import Scope
from mtpd.api.completion import completed
from mtpd.api.routes import Route
from mtpd.api.swap_events import events, swap_state
from mtpd.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mtpd.api.backend import Backend
    from mtpd.config.live import Configuration
    from mtpd.config.model import Config
    from mtpd.logfeed import LogFeed
    from mtpd.types import LaunchPlan
    from mtpd.views import ChoiceView, EngineView, Json

    Plans = Callable[[], Sequence[LaunchPlan]]
    Handler = Callable[[Backend, web.Request], Awaitable[web.StreamResponse]]

__all__ = ["routes"]


def routes(feed: LogFeed, plans: Plans, config: Configuration) -> tuple[Route, ...]:
    """The rows, to be mounted beside the control API's.

    Args:
        feed: The log lines.
        plans: How the engines are started that were brought up.
        config: What the models are called, and how long they stay.
    """
    stream, news = partial(log_text.stream, feed), partial(events, feed, config)
    return (
        _row("GET", "/running", partial(_running, plans, config), "llama-swap: what runs"),
        _row("GET", "/unload", _unload_ok, "llama-swap: stop every engine", scope=Scope.WRITE),
        _row("POST", "/api/models/unload", _unload_all, "llama-swap: stop every engine"),
        _row("POST", "/api/models/unload/{model:.+}", _unload_one, "llama-swap: stop one engine"),
        _row("GET", "/api/events", news, "llama-swap: states and log lines (SSE)"),
        _row("GET", "/api/version", _version, "llama-swap: the version"),
        _row("GET", "/logs", partial(log_text.history, feed), "llama-swap: the latest log lines"),
        _row("GET", "/logs/stream", stream, "llama-swap: log lines as they come"),
        _row("GET", "/logs/stream/{source:.*}", stream, "llama-swap: those of one source"),
    )


def _row(
    method: str, path: str, handler: Handler, summary: str, *, scope: Scope | None = None
) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        scope=scope or (Scope.READ if method == "GET" else Scope.WRITE),
        request=None,
        response=None,
    )


async def _running(
    plans: Plans, config: Configuration, backend: Backend, _request: web.Request
) -> web.Response:
    commands = {plan.key.profile: shlex.join(plan.command.argv) for plan in plans()}
    status = await backend.status()
    engines = [e for e in status.engines if swap_state(e.state) != "stopped"]
    found = [
        _shown(e, commands.get(e.profile, ""), config.now) | _chosen(e, config.now, status.choices)
        for e in engines
    ]
    return handlers.json_response({"running": found})


def _shown(engine: EngineView, command: str, config: Config) -> dict[str, Json]:
    profile, ttl_s = config.profiles.get(engine.profile), config.ttl_s(engine.profile)
    return {
        "model": config.shown(engine.profile),
        "state": swap_state(engine.state),
        "cmd": command,
        "proxy": engine.endpoint or "",
        "ttl": int(ttl_s) if ttl_s.is_integer() else ttl_s,
        "name": "" if profile is None else profile.title or "",
        "description": "" if profile is None else profile.description or "",
        "depth": None if engine.arm is None else engine.arm.depth,
        "drafter": None if engine.arm is None else engine.arm.drafter,
        "residency": engine.residency.state,
    }


def _chosen(engine: EngineView, config: Config, choices: Sequence[ChoiceView]) -> dict[str, Json]:
    """Why it runs at its depth, and the pools that stand for it now."""
    own = next((c for c in choices if c.subject == engine.profile), None)
    pools: list[Json] = [
        c.subject for c in choices if c.subject in config.pools and c.arm.profile == engine.profile
    ]
    return {
        "reason": None if own is None or own.arm != engine.arm else own.reason,
        "pools": pools,
    }


async def _unload_ok(backend: Backend, _request: web.Request) -> web.Response:
    await completed(backend, backend.unload(model=None, idempotency_key=None))
    return web.Response(text="OK")


async def _unload_all(backend: Backend, _request: web.Request) -> web.Response:
    await completed(backend, backend.unload(model=None, idempotency_key=None))
    return web.json_response({"msg": "ok"})


async def _unload_one(backend: Backend, request: web.Request) -> web.Response:
    try:
        begin = backend.unload(model=request.match_info["model"], idempotency_key=None)
        await completed(backend, begin)
    except NotFoundError:
        body = {"src": "mtpd", "error": {"message": "model not found", "type": "not_found_error"}}
        return handlers.json_response(body, status=HTTPStatus.NOT_FOUND)
    return web.Response(text="OK")


async def _version(_backend: Backend, _request: web.Request) -> web.Response:
    return web.json_response({"version": __version__, "commit": "", "build_date": ""})
