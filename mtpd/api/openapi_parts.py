"""What of the OpenAPI description follows from no row: problems, security, the head. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mtpd import __version__
from mtpd.api import problem

if TYPE_CHECKING:
    from mtpd.api.json_schema import JsonObject
    from mtpd.views import Json

__all__ = ["HEAD", "PROBLEM", "REFUSALS", "SECURITY_SCHEMES", "refusal", "security"]

PROBLEM: Final[JsonObject] = {
    "type": "object",
    "description": "A refusal that a person can act on (RFC 9457).",
    "required": ["type", "title", "status", "detail", "hint"],
    "properties": {
        "type": {
            "type": "string",
            "pattern": "^urn:mtpd:problem:[a-z-]+$",
            "description": "The kind of problem; stable, for programs.",
        },
        "title": {"type": "string", "description": "The kind in words; the same every time."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "This occurrence, in one sentence."},
        "hint": {
            "anyOf": [{"type": "string"}, {"type": "null"}],
            "description": "What to do next, or null.",
        },
        "errors": {
            "type": "array",
            "description": "One entry per unusable value; absent where there is none.",
            "items": {
                "type": "object",
                "required": ["path", "message"],
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "Where it is, e.g. depths.1; empty for the whole.",
                    },
                    "message": {"type": "string", "description": "What is wrong with it."},
                },
            },
        },
    },
}

REFUSALS: Final[dict[int, str]] = {
    400: "The request cannot be read, or a filter names nothing that there is.",
    401: "A token is needed, and none that counts was shown.",
    403: "The token is not for this, the peer may not use the socket, another site asks, or a"
    " change is asked for over TCP while there is no token.",
    404: "There is no such model, pool, operation, decision or quarantined request.",
    409: "The present state forbids it.",
    413: "The body is larger than 64 KiB.",
    415: "The body is not application/json.",
    421: "The Host header is not this daemon's.",
    422: "Well formed, but it cannot be done.",
    500: "A fault of the daemon; its log says more.",
    502: "The engine or a tool did not start, died, or answered nonsense.",
    503: "There is no usable engine.",
}
"""What each status means, as in the table of problems in docs/http_api.md."""

_EXAMPLES: Final[dict[int, problem.Problem]] = {
    404: problem.Problem(
        slug="not-found",
        status=404,
        title="No such thing",
        detail="There is no model 'nobody'.",
        hint="mtpctl models lists them.",
    ),
    422: problem.Problem(
        slug="invalid-body",
        status=422,
        title="The body does not fit its schema",
        detail="dpeth: Extra inputs are not permitted",
        hint="docs/http_api.md lists what each request takes.",
        errors=(problem.FieldProblem("dpeth", "Extra inputs are not permitted"),),
    ),
}

SECURITY_SCHEMES: Final[JsonObject] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token (mtpd token add NAME --scope read|admin).",
    },
    "key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same token, as clients of other interfaces send it.",
    },
}

HEAD: Final[JsonObject] = {
    "openapi": "3.1.0",
    "info": {
        "title": "mtpd control API",
        "version": __version__,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        "description": "Asks and steers a running mtpd. On the control socket the kernel names"
        " the peer: the daemon's own user, root and members of its group may do everything, and"
        " no token is needed. On the port everybody may read while there is no token, and"
        " nobody may change anything; once there is one, `read` and `admin` say what a token is"
        " for. Unknown is null, never 0. New members may be added to every view; clients ignore"
        " those that they do not know. The inference endpoints are the engine's: of them it is"
        " said what mtpd adds. Any /upstream/MODEL/PATH is one engine; see docs/data_plane.md.",
    },
    "servers": [
        {"url": "http://127.0.0.1:8080", "description": "The data port, by default."},
        {
            "url": "http://localhost",
            "description": "The control socket (unix), which GET /mtpd/v1/status names.",
        },
    ],
}


def security(scope: str) -> list[Json]:
    """Nothing (the control socket, or no token exists), or a token of a scope."""
    return [{}, {"bearer": [scope]}, {"key": [scope]}]


def refusal(status: int, schema: JsonObject) -> JsonObject:
    """The description of a refusal with this status."""
    content: JsonObject = {"schema": schema}
    if (example := _EXAMPLES.get(status)) is not None:
        content["example"] = example.body()
    made: JsonObject = {
        "description": REFUSALS[status],
        "content": {problem.CONTENT_TYPE: content},
    }
    if status == HTTPStatus.UNAUTHORIZED:
        made["headers"] = {
            "WWW-Authenticate": {"required": True, "schema": {"type": "string"}},
        }
    return made
