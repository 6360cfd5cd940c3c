"""The inference endpoints in the OpenAPI description: what mtpd adds to the engine's own. Pure.

Made from the table by which requests are relayed (``mtpd.proxy.endpoints``). Bodies are the
engine's, or those of the program behind it, and pass as they came; said is which member mtpd
reads, which headers it takes and gives, and how it refuses. docs/data_plane.md says more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mtpd.api.openapi_parts import refusal, security
from mtpd.proxy.endpoints import ENDPOINTS, FORMS, HEALTH, MODEL_LISTS, PROPS
from mtpd.proxy.wishes import DEADLINE_HEADER, MAX_DEADLINE_MS, PRIORITIES, PRIORITY_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.api.json_schema import Components, JsonObject
    from mtpd.proxy.endpoints import Endpoint

__all__ = ["TAG", "inference"]

TAG: Final = "inference"

_ERROR: Final[JsonObject] = {
    "type": "object",
    "description": "A refusal of an inference endpoint in OpenAI's shape, with the outer members"
    " of Anthropic's and llama-swap's.",
    "required": ["type", "src", "error"],
    "properties": {
        "type": {"const": "error"},
        "src": {"const": "mtpd", "description": "Not the engine."},
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string", "description": "One sentence."},
                "type": {"type": "string", "description": "The kind, as OpenAI's clients know it."},
                "code": {
                    "type": "string",
                    "description": "For programs: model_not_found, invalid_body, queue_full, ...",
                },
                "param": {
                    "anyOf": [{"type": "string"}, {"type": "null"}],
                    "description": "The member of the body that is meant.",
                },
            },
        },
    },
}
_REFUSALS: Final[dict[int, str]] = {
    400: "The body is no JSON object, broke off, or holds what is refused (invalid_body); or a"
    " header of mtpd cannot be understood.",
    401: "A token is needed, and none that counts was shown.",
    403: "The token is not for this, or another site asks.",
    404: "No model, alias or pool has this name, or none there has the tags (model_not_found).",
    408: "The body did not arrive in time (body_timeout).",
    413: "The body is larger than [server] body_mib.",
    421: "The Host header is not this daemon's.",
    422: "Engines died of this request; it is quarantined (request_quarantined).",
    429: "Beyond a limit of the token or of the model; Retry-After says when to ask again.",
    500: "A fault of the daemon; its log says more.",
    502: "The engine broke off before its answer began.",
    503: "The queue is full, the wait was too long, or the model cannot be started; Retry-After"
    " is a forecast.",
    504: "The engine or its answer took longer than is configured.",
}
_RETRIED: Final = (429, 503)
_READS: Final = (401, 403, 421, 500)
_ENGINES: Final = (
    "The engine's answer, as it came. Its own refusals (501 to what its model cannot do)"
)
_ENGINES_OWN: Final[JsonObject] = {
    "description": f"{_ENGINES} keep their status and body.",
    "content": {"application/json": {}},
}
_TEXT: Final[JsonObject] = {"type": "string"}
_TOLD: Final[JsonObject] = {
    name: {"description": said, "schema": _TEXT}
    for name, said in (
        ("X-Mtpd-Profile", "The model that answers."),
        ("X-Mtpd-Depth", "Its draft depth; left out where the answer began before it was known."),
        ("X-Mtpd-Why", "Why this model, or for an exact name why this depth: one sentence."),
        ("X-Mtpd-Attempt", "How many engines were asked; left out likewise."),
        ("X-Mtpd-Instance", "This life of the daemon."),
    )
}
_ASKED: Final[tuple[JsonObject, ...]] = (
    {
        "name": DEADLINE_HEADER,
        "in": "header",
        "description": "Milliseconds within which the answer must begin.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_MS},
        "example": 30_000,
    },
    {
        "name": PRIORITY_HEADER,
        "in": "header",
        "description": "How urgent the request is among those that wait.",
        "schema": {"type": "string", "enum": [*PRIORITIES]},
    },
)
_MODEL: Final = (
    "A model, an alias or a pool; tags that it must have may follow a pool's name or auto"
    " (auto:uncensored). auto and a missing name mean the default."
)
_BODY: Final[JsonObject] = {
    "type": "object",
    "description": "As the engine takes it; passed on byte for byte but for what the model's"
    " profile changes.",
    "properties": {"model": {"type": "string", "description": _MODEL}},
    "additionalProperties": True,
    "examples": [{"model": "auto"}],
}
_CARD: Final[JsonObject] = {
    "type": "object",
    "description": "A model or a pool.",
    "required": ["id", "object", "created", "owned_by", "name", "aliases", "status", "meta"],
    "properties": {
        "id": {"type": "string", "description": "The name to ask for."},
        "object": {"const": "model"},
        "created": {"type": "integer", "description": "Unix seconds."},
        "owned_by": {"const": "mtpd"},
        "name": {"type": "string", "description": "What programs with a user interface show."},
        "description": {"type": "string"},
        "aliases": {"type": "array", "items": {"type": "string"}},
        "context_length": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "description": "Tokens that one request may use; null where nobody knows.",
        },
        "status": {
            "type": "object",
            "required": ["value"],
            "properties": {
                "value": {"enum": ["loaded", "loading", "unloaded"]},
                "failed": {"const": True},
                "exit_code": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
        },
        "meta": {
            "type": "object",
            "description": "The same for programs of llama-swap and the router, and what is mtpd's"
            " own in mtpd.",
            "additionalProperties": True,
        },
    },
}


def inference(made: Components, problem: JsonObject) -> dict[str, JsonObject]:
    """The items of every inference path; adds their schemas."""
    error = made.add("InferenceError", _ERROR)
    body = made.add("InferenceBody", _BODY)
    card = made.add("ModelCard", _CARD)
    paths: dict[str, JsonObject] = {}
    for endpoint in ENDPOINTS:
        paths[endpoint.path] = {"post": _relayed(endpoint, {"application/json": body}, error)}
    for form in FORMS:
        paths[form.path] = {"post": _relayed(form, {"multipart/form-data": body}, error)}
    models: JsonObject = {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": card}},
    }
    reload: JsonObject = {
        "name": "reload",
        "in": "query",
        "description": "1: read the configuration again before, as in llama.cpp's router; on the"
        " control socket or with a token of the scope admin.",
        "schema": _TEXT,
    }
    for path in MODEL_LISTS:
        told = _json("Every model and pool, each with whether it is loaded and how.", models)
        paths[path] = {
            "get": _read(path, "The models to ask for", told, error, parameters=[reload])
        }
    for path in HEALTH:
        told = _json("The daemon can serve, also while a model loads.", {"type": "object"})
        paths[path] = {
            "get": {
                "operationId": _identity("get", path),
                "tags": [TAG],
                "summary": "Whether the daemon can serve",
                "security": [{}],
                "responses": {
                    "200": told,
                    **_refused((503,), error),
                    **{str(one): refusal(one, problem) for one in (403, 421, 500)},
                },
            }
        }
    which: JsonObject = {"name": "model", "in": "query", "description": _MODEL, "schema": _TEXT}
    props = _json("Template, slots, context and modalities; no paths.", {"type": "object"})
    paths[PROPS] = {
        "get": _read(
            PROPS,
            "What an engine says of itself",
            props,
            error,
            parameters=[which],
            also=(404, 429, 502, 503, 504),
        )
    }
    return paths


def _relayed(endpoint: Endpoint, content: JsonObject, error: JsonObject) -> JsonObject:
    kinds: JsonObject = {"application/json": {}}
    if endpoint.streams:
        kinds["text/event-stream"] = {"schema": _TEXT}
    if "multipart/form-data" in content or endpoint.path.startswith(("/v1/audio", "/sdapi")):
        kinds["*/*"] = {}
    shown: JsonObject = {name: {"schema": schema} for name, schema in content.items()}
    waits = "no slot" if endpoint.light else "a slot, waits in the queue for it"
    return {
        "operationId": _identity("post", endpoint.path),
        "tags": [TAG],
        "summary": f"Relayed to the engine as {endpoint.target}",
        "description": f"The model is chosen by the member model; the request needs {waits}, and"
        " the model is loaded where it is not. docs/data_plane.md says how a pool chooses, what"
        " is refused and what is tried again.",
        "security": security("infer"),
        "parameters": list(_ASKED),
        "requestBody": {"required": True, "content": shown},
        "responses": {
            "200": {"description": f"{_ENGINES} too.", "headers": _TOLD, "content": kinds},
            **_refused(_REFUSALS, error),
            "default": _ENGINES_OWN,
        },
    }


def _read(
    path: str,
    summary: str,
    told: JsonObject,
    error: JsonObject,
    *,
    parameters: list[JsonObject],
    also: tuple[int, ...] = (),
) -> JsonObject:
    return {
        "operationId": _identity("get", path),
        "tags": [TAG],
        "summary": summary,
        "security": security("infer"),
        "parameters": list(parameters),
        "responses": {
            "200": told,
            **_refused((*_READS, *also), error),
            "default": _json("Any other refusal.", error),
        },
    }


def _refused(statuses: Iterable[int], error: JsonObject) -> JsonObject:
    answers: JsonObject = {}
    for status in sorted(statuses):
        answer: JsonObject = {
            "description": _REFUSALS[status],
            "content": {"application/json": {"schema": error}},
        }
        if status in _RETRIED:
            seconds: JsonObject = {"type": "integer", "minimum": 1}
            answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": seconds}}
        answers[str(status)] = answer
    return answers


def _json(description: str, schema: JsonObject) -> JsonObject:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _identity(method: str, path: str) -> str:
    return "_".join((method, TAG, *re.findall(r"\w+", path.replace("-", "_"))))
