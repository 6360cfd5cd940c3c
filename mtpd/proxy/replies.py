"""What the inference endpoints say themselves: errors in OpenAI's shape, and model cards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd.proxy.endpoints import Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.proxy.outcomes import NoStreamError, RejectedError, UpstreamLostError
    from mtpd.proxy.route import BadBody, UnknownModel
    from mtpd.views import EngineView, Json

__all__ = [
    "ModelCard",
    "bad_body",
    "body_stopped",
    "broken_off",
    "error",
    "loaded",
    "model_list",
    "no_reload",
    "no_stream",
    "not_open",
    "rejected",
    "unknown_model",
    "upstream_lost",
]

SERVER = {"Server": "mtpd"}
SERVER_ERROR = 500
NAMES_SHOWN = 20

_CODES = {
    "full": "queue_full",
    "deadline": "queue_timeout",
    "engine": "engine_unavailable",
    "closed": "stopping",
    "caller": "rate_limit_exceeded",
    "model": "concurrency_limit",
}
_KINDS = {"caller": "rate_limit_error", "model": "rate_limit_error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model as clients see it.

    Attributes:
        id: The name to ask for.
        created: When its file was made, Unix seconds.
        context: Tokens that one request may use; None where nobody knows.
        slots: How many requests its engine works on at once; each has its own context.
        aliases: Other names of it.
        profile: The model that answers where it has another name; a pool names the one chosen
            for it now.
        title: What programs with a user interface show.
        description: One sentence, or None.
        tags: Of a model its own; of a pool those that may follow its name.
    """

    id: str
    created: int
    context: int | None
    slots: int = 1
    aliases: tuple[str, ...] = ()
    profile: str | None = None
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()


def error(  # noqa: D417 - the others are the fields of OpenAI's error object
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str,
    param: str | None = None,
    retry_after_s: int | None = None,
) -> web.Response:
    """An error in OpenAI's shape; with the outer fields of Anthropic and llama-swap.

    Args:
        retry_after_s: Seconds for a Retry-After header, or None for no such header.
    """
    fields: dict[str, Json] = {"message": message, "type": kind, "code": code, "param": param}
    headers = dict(SERVER)
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    body = {"type": "error", "src": "mtpd", "error": fields}
    text = json.dumps(body) + "\n"
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def unknown_model(outcome: UnknownModel) -> web.Response:
    """404, with the names that might have been meant."""
    shown = ", ".join(outcome.known[:NAMES_SHOWN])
    if not outcome.name:
        message = f"the request names no model and none is the default; known: {shown}"
        return error(404, message, code="model_not_found", param="model")
    if outcome.pool is not None:
        return error(404, _no_such_tags(outcome), code="model_not_found", param="model")
    message = f"no model is called {outcome.name[:200]!r}"
    if outcome.removed:
        message += " any more: the configuration was read again without it"
    if outcome.close:
        message += f"; did you mean {' or '.join(map(repr, outcome.close))}?"
    else:
        message += f"; known: {shown}"
    return error(404, message, code="model_not_found", param="model")


def _no_such_tags(outcome: UnknownModel) -> str:
    """Which tags behind a pool's name are not met, and which there are."""
    known = ", ".join(outcome.known_tags[:NAMES_SHOWN]) or "none"
    strange = [tag for tag in outcome.tags if tag not in outcome.known_tags]
    if strange:
        tag = strange[0][:200]
        return f"no model of {outcome.pool} has the tag {tag!r}; the tags there are: {known}"
    asked = " and ".join(outcome.tags)
    return f"no model of {outcome.pool} has the tags {asked} together; the tags there are: {known}"


def not_open(method: str, target: str) -> web.Response:
    """403: a part of the engine that shows or changes what belongs to others."""
    message = (
        f"{method} {target[:200]} of an engine is open on the control socket only "
        "(curl --unix-socket PATH; GET /mtpd/v1/status names the path)"
    )
    return error(403, message, kind="permission_error", code="control_socket_only")


def no_reload() -> web.Response:
    """403: the list of models is everybody's, reading the configuration again is not."""
    message = (
        "the configuration is read again on the control socket (mtpctl reload), or for an access "
        "token with the scope admin"
    )
    return error(403, message, kind="permission_error", code="control_socket_only")


def bad_body(outcome: BadBody) -> web.Response:
    """400."""
    return error(400, outcome.reason, code="invalid_body", param=outcome.param)


def body_stopped(*, timed_out: bool) -> web.Response:
    """408 or 400: the client did not send all of its body."""
    if timed_out:
        return error(408, "the body did not arrive in time", code="body_timeout")
    return error(400, "the body broke off", code="invalid_body")


def rejected(outcome: RejectedError) -> web.Response:
    """503 with Retry-After; 429 beyond a limit, 422 in quarantine, 404 of a model that is gone."""
    match outcome.kind:
        case "removed":
            return error(outcome.status, str(outcome), code="model_not_found", param="model")
        case "poison":
            return error(outcome.status, str(outcome), code="request_quarantined")
        case _:
            return error(
                outcome.status,
                str(outcome),
                kind=_KINDS.get(outcome.kind, "unavailable_error"),
                code=_CODES[outcome.kind],
                retry_after_s=outcome.retry_after_s,
            )


def upstream_lost(outcome: UpstreamLostError) -> web.Response:
    """502 or 504: the engine broke off or took too long."""
    return error(outcome.status, str(outcome), kind=outcome.code, code=outcome.code)


def no_stream(outcome: NoStreamError) -> web.Response:
    """The engine's own refusal."""
    kind = "invalid_request_error" if outcome.status < SERVER_ERROR else "server_error"
    return error(outcome.status, str(outcome), kind=kind, code="engine_refused")


def broken_off(told: web.Response, dialect: Dialect) -> bytes:
    """The event that ends a stream; no end mark follows.

    Args:
        told: The error that would be the response if none had begun.
        dialect: How the stream tells an error.
    """
    fields = json.loads(told.text or "")["error"]
    if dialect is Dialect.PLAIN:
        return b"data: " + json.dumps({"error": fields}).encode() + b"\n\n"
    # Anthropic's error event has the object, OpenAI's responses have its fields outside.
    body = {"type": "error", "error": fields, "message": fields["message"], "code": fields["code"]}
    return b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"


def model_list(cards: Sequence[ModelCard], engines: Sequence[EngineView]) -> web.Response:
    """The list of models, each with whether it is loaded and how.

    ``status`` is the llama.cpp router's, ``name`` and ``context_length`` are llama-swap's,
    ``meta.n_ctx`` is llama-server's; contexts are those of one request.
    """
    views = {view.profile: view for view in engines}
    data: list[Json] = [_listed(card, views.get(card.profile or card.id)) for card in cards]
    return web.json_response({"object": "list", "data": data}, headers=SERVER)


def _listed(card: ModelCard, view: EngineView | None) -> Json:
    state = "unloaded" if view is None else loaded(view.state)
    # The router knows no state "failed": what failed is unloaded, with a mark.
    status: dict[str, Json] = {"value": "unloaded" if state == "failed" else state}
    if state == "failed":
        status["failed"] = True
        if view is not None and view.failure is not None:
            status["exit_code"] = view.failure.exit_code
    aliases: list[Json] = list(card.aliases)
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": "mtpd",
        "name": card.title or card.id,
        **({} if card.description is None else {"description": card.description}),
        "aliases": aliases,
        "context_length": card.context,
        "status": status,
        "meta": {
            "context": card.context,
            "n_ctx": card.context,
            "aliases": aliases,
            "status": state,
            "mtpd": {
                "profile": card.profile or card.id,
                "slots": card.slots,
                "tags": list(card.tags),
                "context_total": None if card.context is None else card.context * card.slots,
                **_running(view if state == "loaded" else None),
            },
            **({} if card.profile is None else {"profile": card.profile}),
        },
    }


def _running(view: EngineView | None) -> dict[str, Json]:
    """How a loaded model runs; None where it does not."""
    if view is None or view.arm is None:
        return {"drafter": None, "depth": None, "residency": None}
    return {
        "drafter": view.arm.drafter,
        "depth": view.arm.depth,
        "residency": view.residency.state,
    }


def loaded(state: str) -> str:
    """A state of an engine in the words of a model: loaded, loading, unloaded or failed."""
    match state:
        case "ready":
            return "loaded"
        case "spawning" | "loading" | "probing":
            return "loading"
        case "failed" | "wedged" | "backoff" | "vram_unrecovered" | "gpu_failed":
            return "failed"
        case _:
            return "unloaded"
