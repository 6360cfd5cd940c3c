"""The control API as one table, and how the table becomes part of an application.

All that a row says is used: the handler is built from its schema, the authentication
asks for its scope, and a test compares the rows with docs/http_api.md.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd import events, explanation_views, live_views, log_views, report_views, views
from mtpd.api import allowed, cors, errors, handlers, log_stream, openapi, schema, sse
from mtpd.api.auth import Policy, Scope
from mtpd.api.auth import middleware as authentication
from mtpd.api.quality_routes import QUALITY
from mtpd.api.row import PREFIX, Route, query_of, read_body, reads, starts
from mtpd.gpu.views import DeviceView
from mtpd.history_views import HistoryView

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from aiohttp import web
    from aiohttp.typedefs import Handler

    from mtpd.api.backend import Backend
    from mtpd.api.gate import Gate

__all__ = ["PREFIX", "ROUTES", "Route", "mount", "read_body"]


async def _cancel(backend: Backend, request: web.Request) -> web.StreamResponse:
    query_of(request, schema.NoQuery)
    return handlers.json_response(await handlers.cancel(backend, request.match_info["id"]))


async def _release(backend: Backend, request: web.Request) -> web.StreamResponse:
    query_of(request, schema.NoQuery)
    return handlers.json_response(await backend.release(request.match_info["id"]))


async def _events(backend: Backend, request: web.Request) -> web.StreamResponse:
    return await sse.stream(backend, request, query_of(request, schema.EventQuery))


async def _logs(backend: Backend, request: web.Request) -> web.StreamResponse:
    return await log_stream.lines(backend, request, query_of(request, schema.LogQuery))


async def _description(_backend: Backend, request: web.Request) -> web.StreamResponse:
    query_of(request, schema.NoQuery)
    return handlers.text_response(await to_thread.run_sync(_described))


@cache
def _described() -> str:
    """It takes a while, and is the same as long as the daemon runs."""
    return schema.dump(openapi.document(ROUTES))


ROUTES: tuple[Route, ...] = (
    reads(
        f"{PREFIX}/status",
        handlers.status,
        "The daemon on one screen",
        query=schema.NoQuery,
        response=views.StatusView,
    ),
    reads(
        f"{PREFIX}/gpu",
        handlers.gpu,
        "Every device with its reading, and who answers for each field",
        query=schema.NoQuery,
        response=[DeviceView],
        member="devices",
    ),
    reads(
        f"{PREFIX}/history",
        handlers.history,
        "The last hours of the device, the queue and the replies",
        query=schema.HistoryQuery,
        response=HistoryView,
        large=True,
    ),
    reads(
        f"{PREFIX}/live",
        handlers.live,
        "Live traffic by class, and what the daemon would do by itself",
        query=schema.NoQuery,
        response=live_views.LiveView,
    ),
    reads(
        f"{PREFIX}/models",
        handlers.models,
        "Every profile with what was measured of it",
        query=schema.NoQuery,
        response=[views.ModelView],
    ),
    reads(
        f"{PREFIX}/models/{{id}}",
        handlers.model,
        "One profile, by name or alias",
        query=schema.NoQuery,
        response=views.ModelView,
    ),
    starts(
        f"{PREFIX}/switch",
        handlers.switch,
        "Drain and serve another model or depth",
        body=schema.SwitchBody,
    ),
    starts(f"{PREFIX}/load", handlers.load, "Start a model's engine", body=schema.LoadBody),
    starts(f"{PREFIX}/unload", handlers.unload, "Stop one engine or all", body=schema.UnloadBody),
    starts(
        f"{PREFIX}/tune",
        handlers.tune,
        "Measure the arms of a pool or model and choose",
        body=schema.TuneBody,
    ),
    starts(
        f"{PREFIX}/probe",
        handlers.probe,
        "Measure the acceptance of each draft position",
        body=schema.ProbeBody,
    ),
    *QUALITY,
    starts(
        f"{PREFIX}/reload",
        handlers.reload,
        "Read the configuration again and apply what changed",
        body=schema.ReloadBody,
    ),
    reads(
        f"{PREFIX}/operations",
        handlers.operations,
        "Operations, newest first",
        query=schema.LimitQuery,
        response=[views.OperationView],
        large=True,
    ),
    reads(
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
    reads(
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
    reads(
        f"{PREFIX}/measurements",
        handlers.measurements,
        "Stored repetitions, newest first",
        query=schema.MeasurementQuery,
        response=[views.MeasurementView],
        refuses=(404,),
        large=True,
    ),
    reads(
        f"{PREFIX}/decisions",
        handlers.decisions,
        "Decisions, newest first",
        query=schema.DecisionQuery,
        response=[views.DecisionView],
        large=True,
    ),
    reads(
        rf"{PREFIX}/decisions/{{id:\d{{1,18}}}}",
        handlers.decision,
        "One decision",
        query=schema.NoQuery,
        response=views.DecisionView,
    ),
    reads(
        f"{PREFIX}/explain",
        handlers.explain,
        "A decision with all that it stands on",
        query=schema.ExplainQuery,
        response=explanation_views.ExplanationView,
        refuses=(404,),
        large=True,
    ),
    reads(
        f"{PREFIX}/report",
        handlers.report,
        "Everything that was measured, side by side where it compares",
        query=schema.ReportQuery,
        response=report_views.ReportView,
        refuses=(404,),
        large=True,
    ),
    Route(
        method="GET",
        path=f"{PREFIX}/events",
        handler=_events,
        summary="The event stream (server-sent events)",
        scope=Scope.READ,
        request=schema.EventQuery,
        response=None,
        stream=events.STREAMED,
    ),
    Route(
        method="GET",
        path=f"{PREFIX}/logs",
        handler=_logs,
        summary="Log lines of the daemon and its engines (JSON, or server-sent events)",
        scope=Scope.READ,
        request=schema.LogQuery,
        response=log_views.LogView,
        refuses=(404,),
        stream=log_stream.STREAMED,
    ),
    reads(
        f"{PREFIX}/config",
        handlers.config,
        "Every configuration value and its origin",
        query=schema.NoQuery,
        response=[views.ConfigValueView],
    ),
    Route(
        method="GET",
        path=f"{PREFIX}/openapi.json",
        handler=_description,
        summary="This API, described for programs (OpenAPI 3.1)",
        scope=Scope.READ,
        request=schema.NoQuery,
        response=None,
    ),
    Route(
        method="GET",
        path=f"{PREFIX}/access",
        handler=allowed.access,
        summary="What the caller may do, and what it lacks for the rest",
        scope=Scope.READ,
        request=schema.NoQuery,
        response=allowed.AccessView,
    ),
    Route(
        method="GET",
        path="/healthz",
        handler=handlers.healthz,
        summary="Whether the daemon runs",
        scope=Scope.READ,
        request=None,
        response=views.HealthView,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=handlers.readyz,
        summary="Whether a request would be served",
        scope=Scope.READ,
        request=None,
        response=views.ReadinessView,
        also=(HTTPStatus.SERVICE_UNAVAILABLE,),
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
    public: Container[str] = (),
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
        public: Paths that others mount and that are open to everybody.
    """
    scopes: dict[tuple[str, str], Scope] = {}
    control: set[str] = set()
    for route in (*ROUTES, *others):
        added = app.router.add_route(route.method, route.path, _bind(route, backend))
        if added.resource is not None:
            scopes[route.method, added.resource.canonical] = route.scope
            control.add(added.resource.canonical)
    if metrics is not None:
        app.router.add_get(openapi.METRICS, metrics)
        control.add(openapi.METRICS)
    app.on_response_prepare.extend((errors.mark_started, cors.give))
    app.middlewares.extend((errors.problems, authentication(auth, scopes, control, gate, public)))
    sse.install(app, stream or sse.StreamSettings())


def _bind(route: Route, backend: Backend) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await route.handler(backend, request)

    return handle
