"""What the inference endpoints say themselves: errors in OpenAI's shape, and model cards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.proxy.outcomes import RejectedError
    from mtpd.proxy.route import BadBody, UnknownModel
    from mtpd.views import EngineView, Json

__all__ = [
    "ModelCard",
    "bad_body",
    "broken_off",
    "error",
    "model_list",
    "rejected",
    "unknown_model",
    "upstream_lost",
]

SERVER = {"Server": "mtpd"}
NAMES_SHOWN = 20

_CODES = {
    "full": "queue_full",
    "deadline": "queue_timeout",
    "engine": "engine_unavailable",
    "closed": "stopping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model as clients see it.

    Attributes:
        id: The name to ask for.
        created: When its file was made, Unix seconds.
        context: Tokens that one request may use.
        aliases: Other names of it.
        profile: The model that answers; a pool names the one chosen for it now.
    """

    id: str
    created: int
    context: int
    aliases: tuple[str, ...] = ()
    profile: str | None = None


def error(  # noqa: D417 - the others are the fields of OpenAI's error object
    status: int,
    message: str,
    *,
    kind: str = "invalid_request_error",
    code: str,
    param: str | None = None,
    retry_after_s: int | None = None,
) -> web.Response:
    """An error in OpenAI's shape.

    Args:
        retry_after_s: Seconds for a Retry-After header, or None for no such header.
    """
    fields: dict[str, Json] = {"message": message, "type": kind, "code": code, "param": param}
    headers = dict(SERVER)
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    return web.json_response({"error": fields}, status=status, headers=headers)


def unknown_model(outcome: UnknownModel) -> web.Response:
    """404, with the names that might have been meant."""
    shown = ", ".join(outcome.known[:NAMES_SHOWN])
    if not outcome.name:
        message = f"the request names no model and none is the default; known: {shown}"
        return error(404, message, code="model_not_found", param="model")
    message = f"no model is called {outcome.name[:200]!r}"
    if outcome.close:
        message += f"; did you mean {' or '.join(map(repr, outcome.close))}?"
    else:
        message += f"; known: {shown}"
    return error(404, message, code="model_not_found", param="model")


def bad_body(outcome: BadBody) -> web.Response:
    """400."""
    return error(400, outcome.reason, code="invalid_body", param=outcome.param)


def rejected(outcome: RejectedError) -> web.Response:
    """503 with Retry-After."""
    return error(
        outcome.status,
        str(outcome),
        kind="unavailable_error",
        code=_CODES[outcome.kind],
        retry_after_s=outcome.retry_after_s,
    )


def upstream_lost(message: str) -> web.Response:
    """502: nothing of the response had been sent yet."""
    return error(502, message, kind="upstream_lost", code="upstream_lost")


def broken_off(message: str) -> bytes:
    """The event that ends a stream whose engine is gone; no ``[DONE]`` follows."""
    fields = {"message": message, "type": "upstream_lost"}
    return b"data: " + json.dumps({"error": fields}).encode() + b"\n\n"


def model_list(cards: Sequence[ModelCard], engines: Sequence[EngineView]) -> web.Response:
    """The list of models, each with whether it is loaded."""
    states = {view.profile: _loaded(view.state) for view in engines}
    data: list[Json] = [
        {
            "id": card.id,
            "object": "model",
            "created": card.created,
            "owned_by": "mtpd",
            "meta": {
                "context": card.context,
                "aliases": list(card.aliases),
                "status": states.get(card.profile or card.id, "unloaded"),
                **({} if card.profile is None else {"profile": card.profile}),
            },
        }
        for card in cards
    ]
    return web.json_response({"object": "list", "data": data}, headers=SERVER)


def _loaded(state: str) -> str:
    match state:
        case "ready":
            return "loaded"
        case "spawning" | "loading" | "probing":
            return "loading"
        case "failed" | "wedged" | "backoff" | "vram_unrecovered" | "gpu_failed":
            return "failed"
        case _:
            return "unloaded"
