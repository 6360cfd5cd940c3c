"""The control API as one table, and how the table becomes part of an application.

All that a row says is used: the handler is built from its schema, the authentication
asks for its scope, and a test compares the rows with docs/http_api.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from mtpd import explanation_views, live_views, views
from mtpd.api import errors, handlers, schema, sse
from mtpd.api.auth import Policy, Scope
from mtpd.api.auth import middleware as authentication
from mtpd.api.problem import FieldProblem, Problem, from_status
from mtpd.gpu.views import DeviceView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp import web
    from aiohttp.typedefs import Handler

    from mtpd.api.backend import Backend
    from mtpd.api.gate import Gate

__all__ = ["PREFIX", "ROUTES", "Route", "mount", "read_body"]

PREFIX = "/mtpd/v1"
METRICS = "/metrics"
MAX_BODY = 64 * 1024
B = TypeVar("B", bound=BaseModel)

_KEY = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table.

    Attributes:
        handler: Takes the backend and the request.
        request: Schema of the body (POST) or of the query (GET), or None.
        response: View type; a one-element list where a list of views is returned,
            None where the answer is not JSON.
        status: Of a request that was accepted.
    """

    method: str
    path: str
    handler: Callable[[Backend, web.Request], Awaitable[web.StreamResponse]]
    summary: str
    scope: Scope
    request: type[BaseModel] | None
    response: type | list[type] | None
    status: int = 200


def _reads(
    path: str,
    call: Callable[[Backend, B, str], Awaitable[object]],
    summary: str,
    *,
    query: type[B],
    response: type | list[type],
) -> Route:
    """A row that looks something up."""

    async def handler(backend: Backend, request: web.Request) -> web.StreamResponse:
        asked = _query(request, query)
        found = await call(backend, asked, request.match_info.get("id", ""))
        return handlers.json_response(found)

    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        scope=Scope.READ,
        request=query,
        response=response,
    )


def _starts(
    path: str,
    call: Callable[[Backend, B, str | None], Awaitable[views.OperationView]],
    summary: str,
    *,
    body: type[B],
) -> Route:
    """A row that starts an operation and does not wait for its end."""

    async def handler(backend: Backend, request: web.Request) -> web.StreamResponse:
        key = _idempotency_key(request)
        asked = schema.parse_body(await read_body(request), body)
        operation = await call(backend, asked, key)
        return handlers.json_response(
            operation,
            status=HTTPStatus.ACCEPTED,
            headers={"Location": f"{PREFIX}/operations/{operation.id}"},
        )

    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=summary,
        scope=Scope.WRITE,
        request=body,
        response=views.OperationView,
        status=HTTPStatus.ACCEPTED,
    )


async def _cancel(backend: Backend, request: web.Request) -> web.StreamResponse:
    _query(request, schema.NoQuery)
    return handlers.json_response(await handlers.cancel(backend, request.match_info["id"]))


async def _release(backend: Backend, request: web.Request) -> web.StreamResponse:
    _query(request, schema.NoQuery)
    return handlers.json_response(await backend.release(request.match_info["id"]))


async def _events(backend: Backend, request: web.Request) -> web.StreamResponse:
    return await sse.stream(backend, request, _query(request, schema.EventQuery))


ROUTES: tuple[Route, ...] = (
    _reads(
        f"{PREFIX}/status",
        handlers.status,
        "The daemon on one screen",
        query=schema.NoQuery,
        response=views.StatusView,
    ),
    _reads(
        f"{PREFIX}/gpu",
        handlers.gpu,
        "Every device with its reading, and who answers for each field",
        query=schema.NoQuery,
        response=[DeviceView],
    ),
    _reads(
        f"{PREFIX}/live",
        handlers.live,
        "Live traffic by class, and what the daemon would do by itself",
        query=schema.NoQuery,
        response=live_views.LiveView,
    ),
    _reads(
        f"{PREFIX}/models",
        handlers.models,
        "Every profile with what was measured of it",
        query=schema.NoQuery,
        response=[views.ModelView],
    ),
    _reads(
        f"{PREFIX}/models/{{id}}",
        handlers.model,
        "One profile, by name or alias",
        query=schema.NoQuery,
        response=views.ModelView,
    ),
    _starts(
        f"{PREFIX}/switch",
        handlers.switch,
        "Drain and serve another model or depth",
        body=schema.SwitchBody,
    ),
    _starts(f"{PREFIX}/load", handlers.load, "Start a model's engine", body=schema.LoadBody),
    _starts(f"{PREFIX}/unload", handlers.unload, "Stop one engine or all", body=schema.UnloadBody),
    _starts(
        f"{PREFIX}/tune",
        handlers.tune,
        "Measure the arms of a pool or model and choose",
        body=schema.TuneBody,
    ),
    _starts(
        f"{PREFIX}/probe",
        handlers.probe,
        "Measure the acceptance of each draft position",
        body=schema.ProbeBody,
    ),
    _starts(
        f"{PREFIX}/reload",
        handlers.reload,
        "Read the configuration again and apply what changed",
        body=schema.ReloadBody,
    ),
    _reads(
        f"{PREFIX}/operations",
        handlers.operations,
        "Operations, newest first",
        query=schema.LimitQuery,
        response=[views.OperationView],
    ),
    _reads(
        f"{PREFIX}/operations/{{id}}",
        handlers.operation,
        "One operation with its progress",
        query=schema.NoQuery,
        response=views.OperationView,
    ),
    Route(
        method="DELETE",
        path=f"{PREFIX}/operations/{{id}}",
        handler=_cancel,
        summary="Ask an operation to end",
        scope=Scope.WRITE,
        request=None,
        response=views.OperationView,
    ),
    _reads(
        f"{PREFIX}/quarantine",
        handlers.quarantine,
        "Requests that are refused because engines died of them",
        query=schema.NoQuery,
        response=[views.QuarantineView],
    ),
    Route(
        method="DELETE",
        path=f"{PREFIX}/quarantine/{{id}}",
        handler=_release,
        summary="Let such a request try again",
        scope=Scope.WRITE,
        request=None,
        response=views.QuarantineView,
    ),
    _reads(
        f"{PREFIX}/measurements",
        handlers.measurements,
        "Stored repetitions, newest first",
        query=schema.MeasurementQuery,
        response=[views.MeasurementView],
    ),
    _reads(
        f"{PREFIX}/decisions",
        handlers.decisions,
        "Decisions, newest first",
        query=schema.DecisionQuery,
        response=[views.DecisionView],
    ),
    _reads(
        rf"{PREFIX}/decisions/{{id:\d{{1,18}}}}",
        handlers.decision,
        "One decision",
        query=schema.NoQuery,
        response=views.DecisionView,
    ),
    _reads(
        f"{PREFIX}/explain",
        handlers.explain,
        "A decision with all that it stands on",
        query=schema.ExplainQuery,
        response=explanation_views.ExplanationView,
    ),
    Route(
        method="GET",
        path=f"{PREFIX}/events",
        handler=_events,
        summary="The event stream (server-sent events)",
        scope=Scope.READ,
        request=schema.EventQuery,
        response=None,
    ),
    _reads(
        f"{PREFIX}/config",
        handlers.config,
        "Every configuration value and its origin",
        query=schema.NoQuery,
        response=[views.ConfigValueView],
    ),
    Route(
        method="GET",
        path="/healthz",
        handler=handlers.healthz,
        summary="Whether the daemon runs",
        scope=Scope.READ,
        request=None,
        response=None,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=handlers.readyz,
        summary="Whether a request would be served",
        scope=Scope.READ,
        request=None,
        response=None,
    ),
)


def mount(
    app: web.Application,
    backend: Backend,
    *,
    auth: Policy,
    metrics: Handler | None = None,
    stream: sse.StreamSettings | None = None,
    others: Sequence[Route] = (),
    gate: Gate | None = None,
) -> None:
    """Add the control API, its error middleware and its authentication to ``app``.

    Both middlewares guard every route of ``app``, so call this before others add theirs.
    The application must run with ``handler_cancellation=True``: that is what ends the
    stream of a reader that left.

    Args:
        app: Not started yet.
        backend: The daemon.
        auth: Who is trusted.
        metrics: Answers ``GET /metrics``; None leaves the path alone.
        stream: Timing of the event stream.
        others: Rows outside ``PREFIX`` that need what the control API needs.
        gate: Asks for tokens over TCP; None for none.
    """
    scopes: dict[tuple[str, str], Scope] = {}
    control: set[str] = set()
    for route in (*ROUTES, *others):
        added = app.router.add_route(route.method, route.path, _bind(route, backend))
        if added.resource is not None:
            scopes[route.method, added.resource.canonical] = route.scope
            control.add(added.resource.canonical)
    if metrics is not None:
        app.router.add_get(METRICS, metrics)
        control.add(METRICS)
    app.on_response_prepare.append(errors.mark_started)
    app.middlewares.extend((errors.problems, authentication(auth, scopes, control, gate)))
    sse.install(app, stream or sse.StreamSettings())


def _bind(route: Route, backend: Backend) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await route.handler(backend, request)

    return handle


def _query(request: web.Request, query: type[B]) -> B:
    values: dict[str, list[str]] = {}
    for name, value in request.query.items():
        values.setdefault(name, []).append(value)
    return schema.parse_query(values, query)


async def read_body(request: web.Request) -> bytes:
    """A body of at most ``MAX_BODY`` bytes, whatever the application allows elsewhere."""
    raw = bytearray()
    async for chunk in request.content.iter_any():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise schema.InvalidRequestError(
                from_status(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"The body is larger than {MAX_BODY} bytes.",
                )
            )
    return bytes(raw)


def _idempotency_key(request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    if key is None or _KEY.fullmatch(key):
        return key
    raise schema.InvalidRequestError(
        Problem(
            slug="invalid-idempotency-key",
            status=HTTPStatus.BAD_REQUEST,
            title="The Idempotency-Key cannot be used",
            detail="It must be 1 to 128 visible ASCII characters.",
            errors=(FieldProblem("Idempotency-Key", "1 to 128 visible ASCII characters"),),
        )
    )
