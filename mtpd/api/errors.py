"""The middleware that turns every failure of a request into an error that its client knows.

Clients of the inference endpoints know OpenAI's errors, all others problem documents.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from mtpd.api.problem import CONTENT_TYPE, Problem, from_error, from_status, unexpected
from mtpd.api.schema import InvalidRequestError
from mtpd.errors import MtpdError
from mtpd.proxy import replies
from mtpd.proxy.endpoints import ENDPOINTS, FORMS
from mtpd.proxy.passing import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.typedefs import Handler

__all__ = ["is_inference", "mark_started", "openai_response", "problem_response", "problems"]

log = structlog.get_logger()
_STARTED = web.RequestKey("mtpd.response_started", bool)
_INFERENCE = frozenset(
    {"/models", "/props", "/v1", *(endpoint.path for endpoint in (*ENDPOINTS, *FORMS))}
)

_OLLAMA: Final = frozenset(
    f"/api/{name}"
    for name in ("chat", "generate", "tags", "show", "ps", "embed", "embeddings", "pull")
)
"""What clients of Ollama ask for, by the description of its API; nothing here answers it."""
_NOT_OLLAMA: Final = (
    "Ollama's own interface is not spoken here: set the client to OpenAI's, whose base is /v1."
)


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


def openai_response(
    problem: Problem, *, kind: str | None = None, code: str | None = None
) -> web.Response:
    """A problem as an error in OpenAI's shape; its kind follows from the status if left out."""
    if kind is None:
        ours = problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        kind = "server_error" if ours else "invalid_request_error"
    return replies.error(
        problem.status,
        problem.detail if problem.hint is None else f"{problem.detail} {problem.hint}",
        kind=kind,
        code=problem.slug.replace("-", "_") if code is None else code,
    )


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors with problem documents; log the unexpected ones.

    An error of a response that has begun is raised again: the connection is then
    closed, which is the only way left to tell the client.
    """
    try:
        return await handler(request)
    except InvalidRequestError as error:
        return _told(request, error.problem)
    except web.HTTPException as error:
        return _http(request, error)
    except MtpdError as error:
        if request.get(_STARTED):
            raise
        problem = from_error(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.warning("api.request_failed", method=request.method, path=request.path, error=error)
        return _told(request, problem)
    except Exception:  # the request boundary: a fault must not take the daemon along
        if request.get(_STARTED):
            raise
        log.exception("api.request_crashed", method=request.method, path=request.path)
        return _told(request, unexpected())


def is_inference(path: str) -> bool:
    """Whether the clients of a path know OpenAI's errors."""
    return path in _INFERENCE or path.startswith(("/v1/", "/v/", PREFIX))


def _told(
    request: web.Request, problem: Problem, headers: Mapping[str, str] | None = None
) -> web.Response:
    if not is_inference(request.path):
        return problem_response(problem, headers=headers)
    response = openai_response(problem)
    response.headers.update(headers or {})
    return response


def _http(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    """Redirects and JSON that a handler wrote itself pass; aiohttp's plain texts do not."""
    if error.status < HTTPStatus.BAD_REQUEST or error.content_type != "text/plain":
        raise error
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    hint: str | None = None
    match error:
        case web.HTTPNotFound():
            page = "data_plane" if is_inference(request.path) else "http_api"
            detail = f"There is nothing at {request.path}."
            hint = _NOT_OLLAMA if request.path in _OLLAMA else f"docs/{page}.md lists the paths."
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            detail = f"{request.path} takes {allowed}, not {error.method}."
        case web.HTTPRequestEntityTooLarge():
            detail = "The body is larger than the daemon reads."
        case _:
            detail = f"{error.reason}."
    return _told(request, from_status(error.status, detail, hint=hint), headers)
