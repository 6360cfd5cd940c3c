"""The middleware that turns every failure of a request into a problem document."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from mtpd.api.problem import CONTENT_TYPE, Problem, from_error, from_status, unexpected
from mtpd.api.schema import InvalidRequestError
from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.typedefs import Handler

__all__ = ["mark_started", "problem_response", "problems"]

log = structlog.get_logger()
_STARTED = web.RequestKey("mtpd.response_started", bool)


def problem_response(problem: Problem, *, headers: Mapping[str, str] | None = None) -> web.Response:
    """A problem as a response."""
    return web.Response(
        status=problem.status,
        text=json.dumps(problem.body(), ensure_ascii=False) + "\n",
        content_type=CONTENT_TYPE,
        headers=headers,
    )


async def mark_started(request: web.Request, _response: web.StreamResponse) -> None:
    """Remember that bytes are on their way, so that no second response is begun."""
    request[_STARTED] = True


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors with problem documents; log the unexpected ones.

    An error of a response that has begun is raised again: the connection is then
    closed, which is the only way left to tell the client.
    """
    try:
        return await handler(request)
    except InvalidRequestError as error:
        return problem_response(error.problem)
    except web.HTTPException as error:
        return _http(request, error)
    except MtpdError as error:
        if request.get(_STARTED):
            raise
        problem = from_error(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("api.request_failed", method=request.method, path=request.path, error=error)
        return problem_response(problem)
    except Exception:  # the request boundary: a fault must not take the daemon along
        if request.get(_STARTED):
            raise
        log.exception("api.request_crashed", method=request.method, path=request.path)
        return problem_response(unexpected())


def _http(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    """Redirects and JSON that a handler wrote itself pass; aiohttp's plain texts do not."""
    if error.status < HTTPStatus.BAD_REQUEST or error.content_type != "text/plain":
        raise error
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    hint: str | None = None
    match error:
        case web.HTTPNotFound():
            detail, hint = (
                f"There is nothing at {request.path}.",
                "docs/http_api.md lists the paths.",
            )
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            detail = f"{request.path} takes {allowed}, not {error.method}."
        case web.HTTPRequestEntityTooLarge():
            detail = "The body is larger than the daemon reads."
        case _:
            detail = f"{error.reason}."
    return problem_response(from_status(error.status, detail, hint=hint), headers=headers)
