"""What each route asks of the backend; no HTTP beyond the checked values."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web
from anyio import to_thread

from mtpd.api.schema import dump, dump_piecewise, listed
from mtpd.errors import NotFoundError
from mtpd.history_views import UNITS
from mtpd.views import HealthView, ReadinessView

if TYPE_CHECKING:
    from mtpd.api.backend import Backend
    from mtpd.api.schema import (
        DecisionQuery,
        ExplainQuery,
        HistoryQuery,
        LimitQuery,
        LoadBody,
        MeasurementQuery,
        NoQuery,
        ProbeBody,
        ReloadBody,
        ReportQuery,
        SwitchBody,
        TuneBody,
        UnloadBody,
    )
    from mtpd.explanation_views import ExplanationView
    from mtpd.gpu.views import DeviceView
    from mtpd.history_views import HistoryView
    from mtpd.live_views import LiveView
    from mtpd.report_views import ReportView
    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        MeasurementView,
        ModelView,
        OperationView,
        QuarantineView,
        StatusView,
    )


async def status(backend: Backend, _query: NoQuery, _id: str) -> StatusView:
    """The daemon on one screen."""
    return await backend.status()


async def gpu(backend: Backend, _query: NoQuery, _id: str) -> dict[str, tuple[DeviceView, ...]]:
    """Every device with its newest reading."""
    return {"devices": await backend.gpu()}


async def history(backend: Backend, query: HistoryQuery, _id: str) -> HistoryView:
    """The last hours."""
    names = None if query.metrics is None else listed("metrics", query.metrics, tuple(UNITS))
    return backend.history(names, since_s=query.since_s, step_s=query.step_s)


async def live(backend: Backend, _query: NoQuery, _id: str) -> LiveView:
    """Live traffic by class, and what the daemon would do by itself."""
    return backend.live()


async def models(backend: Backend, _query: NoQuery, _id: str) -> dict[str, tuple[ModelView, ...]]:
    """Every profile with what was measured of it."""
    return {"models": await backend.models()}


async def model(backend: Backend, _query: NoQuery, name: str) -> ModelView:
    """One profile, by name or alias."""
    found = await backend.model(name)
    if found is None:
        message = f"There is no model {name!r}."
        raise NotFoundError(message, hint="mtpctl models lists them.")
    return found


async def switch(backend: Backend, body: SwitchBody, key: str | None) -> OperationView:
    """Drain, stop, start; without a depth the chosen one is meant."""
    return await backend.switch(
        model=body.model,
        depth=body.depth,
        force=body.force,
        measured=body.measured,
        idempotency_key=key,
    )


async def load(backend: Backend, body: LoadBody, key: str | None) -> OperationView:
    """Start an engine."""
    return await backend.load(model=body.model, idempotency_key=key)


async def unload(backend: Backend, body: UnloadBody, key: str | None) -> OperationView:
    """Stop one engine or all."""
    return await backend.unload(model=body.model, idempotency_key=key)


async def tune(backend: Backend, body: TuneBody, key: str | None) -> OperationView:
    """Measure arms and choose among them."""
    return await backend.tune(
        subject=body.subject,
        method=body.method,
        depths=body.depths,
        workloads=body.workloads,
        prompts=body.prompts,
        repetitions=body.repetitions,
        max_tokens=body.max_tokens,
        max_starts=body.max_starts,
        max_cells=body.max_cells,
        max_minutes=body.max_minutes,
        max_joules=body.max_joules,
        apply=body.apply,
        idempotency_key=key,
    )


async def probe(backend: Backend, body: ProbeBody, key: str | None) -> OperationView:
    """Measure the acceptance of each draft position."""
    return await backend.probe(model=body.model, depth=body.depth, idempotency_key=key)


async def reload(backend: Backend, _body: ReloadBody, key: str | None) -> OperationView:
    """Apply the configuration as it lies on the disk."""
    return await backend.reload(idempotency_key=key)


async def operations(
    backend: Backend, query: LimitQuery, _id: str
) -> dict[str, tuple[OperationView, ...]]:
    """Operations, newest first."""
    return {"operations": await backend.operations(query.limit)}


async def operation(backend: Backend, _query: NoQuery, operation_id: str) -> OperationView:
    """One operation."""
    return _known(await backend.operation(operation_id), operation_id)


async def quarantine(
    backend: Backend, _query: NoQuery, _id: str
) -> dict[str, tuple[QuarantineView, ...]]:
    """Requests that are refused because engines died of them."""
    return {"quarantine": backend.quarantine()}


async def cancel(backend: Backend, operation_id: str) -> OperationView:
    """Ask an operation to end; one that has ended already is returned as it is."""
    return _known(await backend.cancel(operation_id), operation_id)


async def measurements(
    backend: Backend, query: MeasurementQuery, _id: str
) -> dict[str, tuple[MeasurementView, ...]]:
    """Stored repetitions, newest first."""
    found = await backend.measurements(
        model=query.model,
        depth=query.depth,
        workload=query.workload,
        operation_id=query.operation,
        ids=query.id,
        limit=query.limit,
    )
    return {"measurements": found}


async def decisions(
    backend: Backend, query: DecisionQuery, _id: str
) -> dict[str, tuple[DecisionView, ...]]:
    """Decisions, newest first."""
    return {"decisions": await backend.decisions(subject=query.subject, limit=query.limit)}


async def decision(backend: Backend, _query: NoQuery, number: str) -> DecisionView:
    """One decision."""
    found = await backend.decision(int(number))
    if found is None:
        message = f"There is no decision {number}."
        raise NotFoundError(message, hint="mtpctl decisions lists them.")
    return found


async def explain(backend: Backend, query: ExplainQuery, _id: str) -> ExplanationView:
    """A decision with all that it stands on."""
    return await backend.explain(query.id, query.subject)


async def report(backend: Backend, query: ReportQuery, _id: str) -> ReportView:
    """Everything that was measured, side by side."""
    return await backend.report(query.subject)


async def config(
    backend: Backend, _query: NoQuery, _id: str
) -> dict[str, tuple[ConfigValueView, ...]]:
    """Every configuration value and where it comes from."""
    return {"config": backend.config()}


async def healthz(_backend: Backend, _request: web.Request) -> web.Response:
    """Whether the loop runs; true whenever this is answered."""
    return json_response(HealthView(status="ok"))


async def readyz(backend: Backend, _request: web.Request) -> web.Response:
    """Whether a request would be served now, or would start an engine."""
    engines = {engine.id: engine.state for engine in (await backend.status()).engines}
    at_rest = all(state == "stopped" for state in engines.values())
    ready = at_rest or "ready" in engines.values()
    return json_response(
        ReadinessView(ready=ready, engines=engines),
        status=HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE,
    )


def json_response(
    value: object, *, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> web.Response:
    """A view, or a dictionary of views, as a response that ends with a newline."""
    return text_response(dump(value), status=status, headers=headers)


async def large_response(value: object) -> web.Response:
    """The same of a view that may have a thousand rows, which is put into words beside the loop."""
    return text_response(await to_thread.run_sync(dump_piecewise, value))


def text_response(
    text: str, *, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> web.Response:
    """JSON text as a response that ends with a newline."""
    return web.Response(
        status=status,
        text=text + "\n",
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def _known(found: OperationView | None, operation_id: str) -> OperationView:
    if found is None:
        message = f"There is no operation {operation_id!r}."
        raise NotFoundError(message, hint="mtpctl operations lists them.")
    return found
