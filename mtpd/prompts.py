"""What a prompt of a workload becomes: a request, a text, and the digest of its reply.

Covers only shapes; when what is asked is the business of ``mtpd.calibrate``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from mtpd.errors import UpstreamError
from mtpd.types import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.model import WorkloadPrompt
    from mtpd.engine.client import EngineClient
    from mtpd.views import Json

__all__ = ["body", "digest", "seen", "text"]


def body(prompt: WorkloadPrompt, *, seed: int, max_tokens: int) -> dict[str, Json]:
    """A request whose text depends on nothing but model, prompt and seed."""
    request: dict[str, Json] = {
        "max_tokens": max_tokens,
        "n_predict": max_tokens,
        "temperature": 0.0,
        "seed": seed,
        "stream": False,
        "cache_prompt": False,
    }
    if prompt.prompt is not None:
        return {**request, "prompt": prompt.prompt}
    return {**request, "messages": [*_messages(prompt)]}


async def seen(prompt: WorkloadPrompt, client: EngineClient) -> str:
    """A prompt as the model sees it; its bare words where the engine has no template.

    Raises:
        UpstreamError: The engine does not answer.
    """
    if prompt.prompt is not None:
        return prompt.prompt
    templated = await client.templated(_messages(prompt))
    if isinstance(templated, Value):
        return templated.value
    return "\n".join(message.content for message in prompt.messages)


def _messages(prompt: WorkloadPrompt) -> list[dict[str, Json]]:
    return [{"role": m.role, "content": m.content} for m in prompt.messages]


def text(reply: Mapping[str, Json]) -> str:
    """The generated text of a chat or a native completion, reasoning included.

    Raises:
        UpstreamError: There is none.
    """
    match reply:
        case {"content": str(said)}:
            return said
        case {"choices": [{"message": {"content": content, **rest}}, *_]}:
            reasoning = rest.get("reasoning_content")
            return f"{reasoning or ''}{content or ''}"
        case _:
            raise UpstreamError("the engine's reply has no text")


def digest(said: str) -> str:
    """SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(said.encode()).hexdigest()
