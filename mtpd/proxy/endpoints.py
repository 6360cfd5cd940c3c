"""Which of an engine's endpoints clients may use, and under which path it has them; pure.

The routes are llama-server's (b11434, ``tools/server/server.cpp``) without what writes
files, shows other clients' prompts or loads models. llama-swap's ``/v/...`` prefix is
taken off, as there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "ENDPOINTS",
    "FORMS",
    "HEALTH",
    "MODEL_LISTS",
    "PROPS",
    "READS",
    "Dialect",
    "Endpoint",
    "endpoint_of",
]


class Dialect(enum.Enum):
    """How a stream of the endpoint tells an error."""

    PLAIN = "plain"
    """``data: {"error": ...}``: OpenAI's older endpoints and the engine's own."""
    NAMED = "named"
    """``event: error`` before it: Anthropic's messages and OpenAI's responses."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that is relayed.

    Attributes:
        path: As the client writes it.
        target: As the engine knows it.
        dialect: How its streams tell an error.
        light: Needs no slot of the engine: it counts or converts, and generates nothing.
        streams: Answers with an event stream where the body asks for one.
    """

    path: str
    target: str
    dialect: Dialect = Dialect.PLAIN
    light: bool = False
    streams: bool = False


_STREAMED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/chat/completions",
    "/completion",
    "/completions",
    "/infill",
)
_SAME = (
    "/v1/embeddings",
    "/embedding",
    "/embeddings",
    "/rerank",
    "/reranking",
    "/v1/rerank",
    "/v1/reranking",
)
_MEDIA = (
    "/v1/audio/speech",
    "/v1/images/generations",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
)
"""Of programs that are no llama-server, which answers them with 404."""
_NAMED = ("/v1/responses", "/responses", "/v1/messages")
_LIGHT = (
    "/v1/chat/completions/input_tokens",
    "/v1/responses/input_tokens",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
    "/apply-template",
)
_PREFIXED = ("embeddings", "rerank", "reranking")

ENDPOINTS: tuple[Endpoint, ...] = (
    *(Endpoint(path, path, streams=True) for path in _STREAMED),
    *(Endpoint(path, path) for path in (*_SAME, *_MEDIA)),
    *(Endpoint(path, path, Dialect.NAMED, streams=True) for path in _NAMED),
    *(Endpoint(path, path, light=True) for path in _LIGHT),
    Endpoint("/v/chat/completions", "/chat/completions", streams=True),
    Endpoint("/v/completions", "/completions", streams=True),
    *(Endpoint(f"/v/{name}", f"/{name}") for name in _PREFIXED),
    Endpoint("/v/responses", "/responses", Dialect.NAMED, streams=True),
    # The engine has these under /v1 only.
    Endpoint("/v/messages", "/v1/messages", Dialect.NAMED, streams=True),
    Endpoint("/v/messages/count_tokens", "/v1/messages/count_tokens", light=True),
)
"""POST with a JSON body that may name the model."""

FORMS: tuple[Endpoint, ...] = (
    Endpoint("/v1/audio/transcriptions", "/v1/audio/transcriptions"),
    Endpoint("/audio/transcriptions", "/v1/audio/transcriptions"),
    Endpoint("/v1/images/edits", "/v1/images/edits"),
)
"""POST with a multipart form that may name the model."""

READS: tuple[str, ...] = ("/health", "/v1/health", "/metrics", "/v1/models", "/models")
"""What may be read of an engine; tells nothing of other clients' requests."""

MODEL_LISTS = ("/v1/models", "/models")
HEALTH = ("/health", "/v1/health")
PROPS = "/props"

_BY_TARGET = {endpoint.target: endpoint for endpoint in ENDPOINTS}


def endpoint_of(target: str) -> Endpoint | None:
    """The JSON endpoint that an engine has under a path, or None if clients may not use it."""
    return _BY_TARGET.get(target)
