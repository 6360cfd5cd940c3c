"""The control API as an OpenAPI 3.1 document, made from the table of routes. Pure.

Paths, parameters, bodies and statuses follow from the rows, the schemas of the answers
from the views (``mtpd.api.json_schema``). What is the same for every row stands in
``mtpd.api.openapi_parts``.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from mtpd.api.json_schema import Components, attributes_of, summary_of
from mtpd.api.openapi_inference import inference
from mtpd.api.openapi_parts import HEAD, PROBLEM, SECURITY_SCHEMES, refusal, security
from mtpd.api.results import RESULTS
from mtpd.events import Envelope, Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic import BaseModel

    from mtpd.api.json_schema import JsonObject
    from mtpd.api.row import Route

__all__ = ["METRICS", "document"]

METRICS: Final = "/metrics"
EVENT_STREAM: Final = "text/event-stream"
_REFERENCE: Final = "#/components/schemas/"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::((?:[^{}]|\{[^{}]*\})*))?\}")
_DIGITS: Final = r"\d{1,18}"
_KEY_PATTERN: Final = "^[\\x21-\\x7e]{1,128}$"
_OPEN: Final = ("/healthz",)
_ALWAYS: Final = (403, 421, 500)
_STARTS: Final = (400, 404, 409, 413, 415, 422, 502, 503)
_ENDS: Final = (400, 404, 415)


def document(routes: Sequence[Route]) -> JsonObject:
    """The description of an API that has these rows, the metrics and the inference endpoints."""
    made = Components(_REFERENCE)
    problem = made.add("Problem", PROBLEM)
    paths: dict[str, JsonObject] = {}
    for route in routes:
        at = paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})
        at[route.method.lower()] = _operation(route, made, problem)
    paths[METRICS] = {"get": _metrics(problem)}
    paths |= inference(made, problem)
    results: JsonObject = {kind: made.of(view) for kind, view in RESULTS.items()}
    schemas = made.all()
    schemas["OperationView"] = {**schemas["OperationView"], "x-mtpd-results": results}
    return {
        **HEAD,
        "paths": dict(paths),
        "components": {"schemas": dict(schemas), "securitySchemes": SECURITY_SCHEMES},
    }


def _operation(route: Route, made: Components, problem: JsonObject) -> JsonObject:
    words = re.findall(r"\w+", _PARAMETER.sub(r"\1", route.path.removeprefix("/mtpd/v1")))
    operation: JsonObject = {
        "operationId": "_".join((route.method.lower(), *words)),
        "tags": [words[0]],
        "summary": route.summary,
        "description": _said(route),
        "security": security(_scope(route)),
        "responses": {**_answers(route, made), **_refusals(route, problem)},
    }
    if route.path in _OPEN:
        operation["security"] = [{}]
    if parameters := [*_in_path(route), *_in_query(route), *_in_headers(route)]:
        operation["parameters"] = list(parameters)
    if route.method == "POST" and route.request is not None:
        schema = made.add(route.request.__name__, _checked(route.request))
        required = any(one.is_required() for one in route.request.model_fields.values())
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _scope(route: Route) -> str:
    return "read" if route.method == "GET" else "admin"


def _said(route: Route) -> str:
    about = "" if route.request is None else summary_of(route.request)
    return f"{route.summary}. {about}".strip()


def _answers(route: Route, made: Components) -> JsonObject:
    """The answers to a request that is not refused, by status."""
    content: JsonObject = {}
    if route.response is not None or not route.stream:
        content["application/json"] = {"schema": _answer(route, made)}
    if route.stream:
        content[EVENT_STREAM] = {"schema": {"type": "string"}, **_stream(route, made)}
    answer: JsonObject = {"description": route.summary, "content": content}
    if route.status == HTTPStatus.ACCEPTED:
        answer["headers"] = {
            "Location": {
                "description": "Where the operation is.",
                "required": True,
                "schema": {"type": "string"},
            }
        }
    return {str(int(status)): answer for status in (route.status, *route.also)}


def _answer(route: Route, made: Components) -> JsonObject:
    match route.response:
        case None:
            return {"type": "object"}
        case [one]:
            return made.listed(route.member or route.path.rpartition("/")[2], one)
        case view:
            return made.of(view)


def _stream(route: Route, made: Components) -> JsonObject:
    """What the events of a stream hold, by their type; OpenAPI 3.1 has no word for it."""
    events: JsonObject = {name: _event(kind, made) for name, kind in route.stream.items()}
    return {"x-mtpd-events": dict(sorted(events.items()))}


def _event(kind: type, made: Components) -> JsonObject:
    if kind not in get_args(Event):
        return made.of(kind)
    payload: JsonObject = {"type": "object", "properties": {"event": made.of(kind)}}
    return {"allOf": [made.of(Envelope), payload]}


def _refusals(route: Route, problem: JsonObject) -> JsonObject:
    statuses = {*_ALWAYS, *route.refuses}
    if route.path not in _OPEN:
        statuses.add(401)
    if route.request is not None:
        statuses.add(400)
    if "{" in route.path:
        statuses.add(404)
    if route.method == "POST":
        statuses.update(_STARTS)
    if route.method == "DELETE":
        statuses.update(_ENDS)
    return {str(one): refusal(one, problem) for one in sorted(statuses - {*route.also})}


def _in_path(route: Route) -> Iterator[JsonObject]:
    for name, pattern in _PARAMETER.findall(route.path):
        numbered = pattern == _DIGITS
        schema: JsonObject = (
            {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
            if numbered
            else {"type": "string", "minLength": 1}
        )
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(route: Route) -> Iterator[JsonObject]:
    if route.method == "POST" or route.request is None:
        return
    properties = cast("dict[str, JsonObject]", _checked(route.request).get("properties", {}))
    for name, field in route.request.model_fields.items():
        schema = _given(properties[name])
        parameter: JsonObject = {
            "name": name,
            "in": "query",
            "required": field.is_required(),
            "schema": schema,
        }
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        if schema.get("type") == "array":
            parameter |= {"style": "form", "explode": True}
        yield parameter


def _given(schema: JsonObject) -> JsonObject:
    """A member's schema where it is given: a query has no null, it leaves the member out."""
    options = cast("list[JsonObject]", schema.get("anyOf", []))
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if rest.get("default", "") is None:
        del rest["default"]
    return {**next((one for one in options if one.get("type") != "null"), {}), **rest}


def _in_headers(route: Route) -> Iterator[JsonObject]:
    if route.status == HTTPStatus.ACCEPTED:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The same key with the same request returns the operation that was"
            " started first; with another request it is refused with 409.",
            "schema": {"type": "string", "pattern": _KEY_PATTERN},
            "example": "7f3c6c2e-tune-default",
        }
    if route.stream:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "Replay what came after this event or line, as far as it is kept; 0"
            " replays all.",
            "schema": {"type": "string", "maxLength": 128},
            "example": "0",
        }


def _checked(request: type[BaseModel]) -> JsonObject:
    """What a request takes, with the sentences of its docstring and without generated titles."""
    schema = cast("JsonObject", request.model_json_schema())
    said = attributes_of(request)
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    for name, value in properties.items():
        value.pop("title", None)
        if name in said:
            value["description"] = said[name]
    schema["description"] = summary_of(request)
    schema.pop("title", None)
    return schema


def _metrics(problem: JsonObject) -> JsonObject:
    told: Iterable[int] = (401, *_ALWAYS)
    return {
        "operationId": "get_metrics",
        "tags": ["metrics"],
        "summary": "Every metric, for Prometheus",
        "description": "Every metric, for Prometheus.",
        "security": security("read"),
        "responses": {
            "200": {
                "description": "The text format, or OpenMetrics where that is asked for.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **{str(one): refusal(one, problem) for one in sorted(told)},
        },
    }
