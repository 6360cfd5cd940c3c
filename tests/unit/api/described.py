"""Holding answers against the description of the API, member by member."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, FormatChecker

from mtpd.api import openapi
from mtpd.api.json_schema import closed
from mtpd.api.routes import ROUTES

if TYPE_CHECKING:
    from mtpd.api.row import Route
    from mtpd.views import Json

__all__ = [
    "DESCRIPTION",
    "STRICT",
    "against",
    "event_misfits",
    "misfits",
    "operation_of",
    "path_of",
    "result_misfits",
]

DESCRIPTION: Any = openapi.document(ROUTES)
STRICT: Any = closed(DESCRIPTION)
"""The same, by which no answer may have a member that is not documented."""


def path_of(route: Route) -> str:
    """A route's path as the description writes it."""
    return re.sub(r"\{id:[^}]*\}+", "{id}", route.path)


def operation_of(route: Route) -> Any:
    return STRICT["paths"][path_of(route)][route.method.lower()]


def misfits(route: Route, status: int, media_type: str, body: Json) -> list[str]:
    """What of an answer the description does not say."""
    answers = operation_of(route)["responses"]
    if str(status) not in answers:
        return [f"{route.method} {route.path} is not said to answer {status}"]
    content = answers[str(status)]["content"]
    if media_type not in content:
        return [f"{route.method} {route.path} is not said to answer {media_type}"]
    return against(content[media_type]["schema"], body)


def event_misfits(kind: str, data: Json, *, path: str = "/mtpd/v1/events") -> list[str]:
    """What of the data of a stream's event the description does not say."""
    content = STRICT["paths"][path]["get"]["responses"]["200"]["content"]
    described = content["text/event-stream"]["x-mtpd-events"]
    if kind not in described:
        return [f"there is no event {kind}"]
    # Of an envelope it is the payload that the type decides; the rest is every envelope's.
    parts = described[kind].get("allOf", [described[kind]])
    return [
        found
        for part in parts
        for found in against(
            {name: value for name, value in part.items() if name != "additionalProperties"}, data
        )
    ]


def result_misfits(kind: str, result: Json) -> list[str]:
    """What of an operation's result the description does not say."""
    return against(_components()["schemas"]["OperationView"]["x-mtpd-results"][kind], result)


def against(schema: Any, data: Json) -> list[str]:
    whole = {**schema, "components": _components()}
    checker = Draft202012Validator(whole, format_checker=FormatChecker())
    return [f"{error.json_path}: {error.message[:300]}" for error in checker.iter_errors(data)]


@cache
def _components() -> Any:
    return STRICT["components"]
