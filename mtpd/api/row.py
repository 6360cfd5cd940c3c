"""How a row of the control API's table is made: what it says, checks and answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from mtpd import views
from mtpd.api import handlers, schema
from mtpd.api.auth import Scope
from mtpd.api.problem import FieldProblem, Problem, from_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from mtpd.api.backend import Backend

__all__ = ["PREFIX", "Route", "query_of", "read_body", "reads", "starts"]

PREFIX = "/mtpd/v1"
MAX_BODY = 64 * 1024
B = TypeVar("B", bound=BaseModel)

_KEY = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table.

    Attributes:
        handler: Takes the backend and the request.
        request: Schema of the body (POST) or of the query (GET), or None.
        response: View type; a one-element list where a list of views is returned, as the one
            member of an object; None where the answer has no view.
        status: Of a request that was accepted.
        member: What that list is called, where it is not the last part of the path.
        also: Other statuses with which a view is answered.
        refuses: Statuses of refusals beside those that follow from the method and the request.
        stream: What a stream of server-sent events holds, by the type of the event; an
            event of the daemon stands in its envelope.
    """

    method: str
    path: str
    handler: Callable[[Backend, web.Request], Awaitable[web.StreamResponse]]
    summary: str
    scope: Scope
    request: type[BaseModel] | None
    response: type | list[type] | None
    status: int = 200
    member: str | None = None
    also: tuple[int, ...] = ()
    refuses: tuple[int, ...] = ()
    stream: Mapping[str, type] = field(default_factory=dict)


def reads(
    path: str,
    call: Callable[[Backend, B, str], Awaitable[object]],
    summary: str,
    *,
    query: type[B],
    response: type | list[type],
    member: str | None = None,
    refuses: tuple[int, ...] = (),
    large: bool = False,
) -> Route:
    """A row that looks something up; ``large`` where a thousand rows may be found."""

    async def handler(backend: Backend, request: web.Request) -> web.StreamResponse:
        asked = query_of(request, query)
        found = await call(backend, asked, request.match_info.get("id", ""))
        return await handlers.large_response(found) if large else handlers.json_response(found)

    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        scope=Scope.READ,
        request=query,
        response=response,
        member=member,
        refuses=refuses,
    )


def starts(
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


def query_of(request: web.Request, query: type[B]) -> B:
    """The checked query string of a request."""
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
