"""What a request for an engine may hold: what would take others' places, crash or misuse it.

Pure. Nothing is taken out of a body: what is not allowed is refused with a sentence, and
the one thing that is put into it is a limit of tokens that the configuration asks for.
The figures are from what b11434 does: 20 000 brackets in a grammar end the process, a
schema is turned into a grammar in a time that grows with its size, and an ``http`` URL of
an image is fetched by the engine from wherever the engine can reach.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.proxy.json_body import BadBody, parse
from mtpd.proxy.rename import with_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mtpd.config.serving import BodyLimits
    from mtpd.proxy.endpoints import Endpoint

__all__ = ["Examined", "capped", "examine", "violation"]

MAX_GRAMMAR = 64 * 1024
"""Characters of a grammar, and of a schema that becomes one."""

MAX_BRACKETS = 256
"""Open brackets of a grammar at once."""

MAX_LOGPROBS = 20
MAX_BIASES = 1024
MAX_STOPS = 64
MAX_MESSAGES = 4096

_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
_TOKENS_OF = {
    "/completion": "n_predict",
    "/infill": "n_predict",
    "/v1/responses": "max_output_tokens",
    "/responses": "max_output_tokens",
}
_COUNTS = (
    ("top_logprobs", MAX_LOGPROBS, "alternatives to a token"),
    ("logprobs", MAX_LOGPROBS, "alternatives to a token"),
    ("n_probs", MAX_LOGPROBS, "alternatives to a token"),
)
_LENGTHS = (
    ("logit_bias", MAX_BIASES, "biased tokens"),
    ("stop", MAX_STOPS, "stop texts"),
    ("messages", MAX_MESSAGES, "messages"),
    ("input", MAX_MESSAGES, "inputs"),
)
_MEDIA = ("image_url", "video_url", "audio_url", "input_audio", "input_video")
_TOLD = 60

# Texts and character classes of a grammar, in which a bracket is no bracket.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|#[^\n]*', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Examined:
    """A body that may go to an engine.

    Attributes:
        fields: Its members, as they came.
        body: The bytes to send.
    """

    fields: Mapping[str, object]
    body: bytes = field(repr=False)


def examine(body: bytes, endpoint: Endpoint, limits: BodyLimits) -> Examined | BadBody:
    """What may be sent of a body, or what it is refused for; total.

    Args:
        body: As it came.
        endpoint: Where it came to.
        limits: As configured.
    """
    fields = parse(body)
    if isinstance(fields, BadBody):
        return fields
    return violation(fields, limits) or Examined(fields, capped(body, fields, endpoint, limits))


def violation(fields: Mapping[str, object], limits: BodyLimits) -> BadBody | None:
    """What a client may not ask for, or None; total."""
    checks: tuple[Callable[[Mapping[str, object], BodyLimits], BadBody | None], ...] = (
        _others,
        _numbers,
        _lengths,
        _grammar,
        _schema,
        _media,
    )
    return next((bad for check in checks if (bad := check(fields, limits)) is not None), None)


def capped(
    body: bytes, fields: Mapping[str, object], endpoint: Endpoint, limits: BodyLimits
) -> bytes:
    """The body, with the configured number of tokens where it names none, or an endless one."""
    if not limits.max_tokens or not endpoint.streams:
        return body
    named = {key: fields[key] for key in _TOKENS if key in fields}
    endless = [key for key, value in named.items() if value is None or _number(value) < 0]
    if not named:
        endless = [_TOKENS_OF.get(endpoint.target, "max_tokens")]
    for key in endless:
        body = with_value(body, key, str(limits.max_tokens))
    return body


def _others(fields: Mapping[str, object], _limits: BodyLimits) -> BadBody | None:
    """What belongs to the daemon or to all requests of an engine."""
    if fields.get("id_slot") not in (None, -1):
        return BadBody(
            "'id_slot' cannot be chosen: the engine gives each request a slot", "id_slot"
        )
    if fields.get("lora"):
        return BadBody("'lora' cannot be chosen by a request", "lora")
    return None


def _numbers(fields: Mapping[str, object], limits: BodyLimits) -> BadBody | None:
    counts = [*_COUNTS, ("n", limits.max_choices, "answers ([server.limits] max_choices)")]
    if limits.max_tokens:
        counts += [
            (key, limits.max_tokens, "tokens ([server.limits] max_tokens)") for key in _TOKENS
        ]
    for key, most, what in counts:
        value = fields.get(key)
        if _number(value) > most:
            given = str(value)[:_TOLD]
            return BadBody(f"{key!r} is {given}; at most {most} {what} may be asked for", key)
    return None


def _lengths(fields: Mapping[str, object], _limits: BodyLimits) -> BadBody | None:
    for key, most, what in _LENGTHS:
        held = _held(fields.get(key))
        if held > most:
            return BadBody(f"{key!r} holds {held} {what}; at most {most} are taken", key)
    return None


def _held(value: object) -> int:
    """How many things; the numbers of a list are the tokens of one text."""
    if isinstance(value, list):
        return sum(not isinstance(one, int | float) for one in value)
    return len(value) if isinstance(value, dict) else 0


def _grammar(fields: Mapping[str, object], _limits: BodyLimits) -> BadBody | None:
    grammar = fields.get("grammar")
    if not isinstance(grammar, str):
        return None
    if len(grammar) > MAX_GRAMMAR:
        reason = f"'grammar' has {len(grammar)} characters; at most {MAX_GRAMMAR} are taken"
        return BadBody(reason, "grammar")
    if _brackets(grammar) > MAX_BRACKETS:
        return BadBody(f"'grammar' nests more than {MAX_BRACKETS} brackets", "grammar")
    return None


def _brackets(grammar: str) -> int:
    """The most brackets that are open at once."""
    most = now = 0
    for sign in _QUOTED.sub("", grammar):
        now += (sign == "(") - (sign == ")")
        most = max(most, now)
    return most


def _schema(fields: Mapping[str, object], _limits: BodyLimits) -> BadBody | None:
    for key in ("json_schema", "response_format", "text"):
        value = fields.get(key)
        if isinstance(value, dict | list) and len(json.dumps(value)) > MAX_GRAMMAR:
            return BadBody(f"{key!r} has more than {MAX_GRAMMAR} characters", key)
    return None


def _media(fields: Mapping[str, object], limits: BodyLimits) -> BadBody | None:
    """URLs of images and recordings that the engine would fetch."""
    if limits.remote_media:
        return None
    for key in ("messages", "input", "system"):
        for url in _urls(fields.get(key)):
            if _is_fetched(url):
                reason = (
                    f"{url[:_TOLD]!r} is not fetched: images and recordings must come as data: "
                    "URLs ([server.limits] remote_media)"
                )
                return BadBody(reason, key)
    return None


def _is_fetched(url: str) -> bool:
    """Whether it names a place; bare base64 holds no colon."""
    scheme, colon, _ = url.partition(":")
    return bool(colon) and scheme.strip().lower() != "data"


def _urls(top: object) -> Iterator[str]:
    """Every URL, or data in its place, in the parts of messages."""
    left = [top]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            for key in _MEDIA:
                media = one.get(key)
                found = media.values() if isinstance(media, dict) else (media,)
                yield from (url for url in found if isinstance(url, str))
            if one.get("type") == "url" and isinstance(url := one.get("url"), str):
                yield url
            left += one.values()
        elif isinstance(one, list):
            left += one


def _number(value: object) -> float:
    """A number, 0 for what is none; the engine says what is wrong with that."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value
