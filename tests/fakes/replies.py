"""The fake engine's bodies: metrics, completions and chunks in llama-server's shapes. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes.generation import Totals
    from tests.fakes.http_api import Engine
    from tests.fakes.script import Script

__all__ = [
    "DONE",
    "chat_chunk",
    "chat_reply",
    "error",
    "event",
    "metrics",
    "native",
    "slot",
    "text_chunk",
    "usage",
]

DONE = b"data: [DONE]\n\n"
IDENTITY = {"created": 1795979596, "model": "fake", "system_fingerprint": "b0-unknown"}


def error(code: int, message: str, kind: str) -> dict[str, Any]:
    """A refusal."""
    return {"error": {"code": code, "message": message, "type": kind}}


def event(body: dict[str, Any]) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def native(text: str, **more: Any) -> dict[str, Any]:
    """A reply or a chunk of `/completion`."""
    return {"index": 0, "content": text, "tokens": [], "stop": False, "id_slot": 0} | more


def _choice(key: str, value: object, finish: str | None, kind: str, **more: Any) -> dict[str, Any]:
    choice = {"finish_reason": finish, "index": 0, key: value}
    return {"choices": [choice], **IDENTITY, "object": kind, "id": "chatcmpl-fake", **more}


def chat_chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of `/v1/chat/completions`."""
    return _choice("delta", delta, finish, "chat.completion.chunk", **more)


def chat_reply(text: str, **more: Any) -> dict[str, Any]:
    """A whole reply of `/v1/chat/completions`."""
    message = {"role": "assistant", "content": text}
    return _choice("message", message, "length", "chat.completion", **more)


def text_chunk(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A reply or a chunk of `/v1/completions`."""
    return _choice("text", text, finish, "text_completion", **more)


def usage(totals: Totals) -> dict[str, Any]:
    """The token counts that OpenAI's clients read."""
    prompt = totals.cache_n + totals.prompt_n
    return {
        "completion_tokens": totals.predicted_n,
        "prompt_tokens": prompt,
        "total_tokens": prompt + totals.predicted_n,
        "prompt_tokens_details": {"cached_tokens": totals.cache_n},
    }


def slot(engine: Engine, number: int, entry: tuple[int, int] | None) -> dict[str, Any]:
    """One row of `/slots`; the entry is the task that holds it and its tokens so far."""
    task, decoded = entry or (-1, 0)
    types = "none,draft-mtp" if engine.spec.depth else "none"
    return {
        "id": number,
        "n_ctx": engine.context // engine.slots,
        "speculative": engine.spec.depth > 0,
        "is_processing": entry is not None,
        "id_task": task,
        "params": {"speculative.types": types},
        "next_token": [{"has_next_token": entry is not None, "n_decoded": decoded}],
    }


def metrics(script: Script, totals: Totals, *, decodes: int, processing: int, deferred: int) -> str:
    """The Prometheus text; the seconds are the model's."""
    rows: list[tuple[str, str, float]] = [
        ("counter", "prompt_tokens_total", totals.prompt_n),
        ("counter", "prompt_tokens_cached_total", totals.cache_n),
        ("counter", "prompt_seconds_total", totals.prompt_ms / 1000.0),
        ("counter", "tokens_predicted_total", totals.predicted_n),
        ("counter", "tokens_predicted_seconds_total", totals.predicted_ms / 1000.0),
        ("counter", "n_decode_total", decodes),
    ]
    if not script.no_spec_metrics:
        rows += [
            ("counter", "spec_decode_num_draft_tokens_total", totals.drafted),
            ("counter", "spec_decode_num_accepted_tokens_total", totals.accepted),
            ("counter", "spec_decode_num_drafts_total", totals.drafts),
        ]
    rows += [
        ("gauge", "requests_processing", processing),
        ("gauge", "requests_deferred", deferred),
    ]
    lines = []
    for kind, name, value in rows:
        lines += [f"# HELP llamacpp:{name} {name}", f"# TYPE llamacpp:{name} {kind}"]
        lines.append(
            f"llamacpp:{name} {value:g}" if value < 1e6 else f"llamacpp:{name} {value:.0f}"
        )
    if totals.drafts and not (script.no_spec_metrics or script.no_per_pos_metrics):
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        lines += [f"# HELP llamacpp:{name} {name}", f"# TYPE llamacpp:{name} counter"]
        lines += [
            f'llamacpp:{name}{{position="{position}"}} {count}'
            for position, count in enumerate(totals.per_position)
        ]
    return "\n".join(lines) + "\n"
