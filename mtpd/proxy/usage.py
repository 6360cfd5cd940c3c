"""Reads the copy of a relayed response: timings, usage, and whether it is complete.

Total and bounded: it never raises on any bytes, and holds at most one event (or, for a
JSON body, one body) up to a limit; what is larger is passed over and stays unknown.
The bytes themselves are relayed by ``mtpd.proxy.forward``, never from here.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_EVENT_BYTES", "MAX_JSON_BYTES", "Summary", "Tap", "Usage", "usage_of"]

MAX_EVENT_BYTES = 1024 * 1024
MAX_JSON_BYTES = 8 * 1024 * 1024

_NOTHING: Mapping[str, object] = MappingProxyType({})
_TELLING = re.compile(
    rb'"(?:timings"|usage"|stop"|message_stop"|error"|response\.|transcript\.text\.done")|\[DONE\]'
)
"""Cheap test before an event is parsed: most events of a stream hold none of these."""

_REASONING = re.compile(
    rb'"(?:reasoning_content|thinking)"\s*:\s*"[^"]|"response\.reasoning_text\.delta"'
)
"""A part of a reasoning trace: of chat completions, Anthropic's messages, OpenAI's responses."""

_ENDS = frozenset(
    {
        "message_stop",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "transcript.text.done",
    }
)
"""Types of the last event: Anthropic's messages, OpenAI's responses and transcriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the copy of a response said.

    Attributes:
        timings: The last ``timings`` object, or empty.
        usage: The last ``usage`` object, or empty.
        complete: The protocol's own end was seen: ``[DONE]``, ``"stop": true``,
            ``message_stop``, ``response.completed``, or a whole JSON body.
        error: The engine reported an error of its own.
        between_events: The last byte ended a line that ended an event (or none came).
        reasoning: A reasoning trace was written.
        truncated: The engine dropped a part of the context.
    """

    timings: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    usage: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    complete: bool = False
    error: bool = False
    between_events: bool = True
    reasoning: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The figures of one request; None where the response did not say.

    Attributes:
        generated: Tokens generated in ``decode_s``, as the engine timed them.
        cached_tokens: Of the prompt's tokens, taken from the cache.
        prompt_s: Seconds that the others took.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    decode_tps: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    generated: int | None = None
    decode_s: float | None = None
    cached_tokens: int | None = None
    prompt_s: float | None = None


class Tap:
    """Takes the bytes of one response as they pass, in any chunking."""

    def __init__(self, *, sse: bool) -> None:
        self._sse = sse
        self._line = bytearray()
        self._data: list[bytes] = []
        self._held = 0
        self._oversize = False
        self._after_cr = False
        self._blank = True
        self._dirty = False
        self._timings: Mapping[str, object] = _NOTHING
        self._usage: Mapping[str, object] = _NOTHING
        self._complete = False
        self._error = False
        self._reasoning = False
        self._truncated = False
        self.events = 0
        """Events that had data."""

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes."""
        if self._sse:
            self._feed_lines(chunk)
        elif not self._oversize:
            self._line += chunk
            if len(self._line) > MAX_JSON_BYTES:
                self._oversize = True
                self._line.clear()

    def summary(self) -> Summary:
        """What was seen so far; for a JSON body, call it once the body is whole."""
        if not self._sse and not self._complete:
            self._whole_body()
        return Summary(
            timings=self._timings,
            usage=self._usage,
            complete=self._complete,
            error=self._error,
            between_events=not self._dirty,
            reasoning=self._reasoning,
            truncated=self._truncated,
        )

    def _whole_body(self) -> None:
        self._look_for_reasoning(self._line)
        parsed = _object(bytes(self._line))
        if parsed is not None:
            self._take(parsed)
            self._complete = True

    def _feed_lines(self, chunk: bytes) -> None:
        if not self._dirty and chunk.endswith(b"\n\n") and _TELLING.search(chunk) is None:
            # Nearly every chunk: whole events between which nothing is told.
            self._after_cr = False
            self.events += chunk.count(b"\ndata:") + chunk.startswith(b"data:")
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk, self._after_cr = chunk[1:], False
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        # CRLF, CR and LF each end a line (WHATWG HTML 9.2.5).
        first, *rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._extend(first)
        for part in rest:
            self._end_line()
            self._extend(part)

    def _extend(self, part: bytes) -> None:
        if not part:
            return
        self._dirty, self._blank = True, False
        self._held += len(part)
        if self._held > MAX_EVENT_BYTES:
            self._oversize = True
            self._line.clear()
            self._data.clear()
        else:
            self._line += part

    def _end_line(self) -> None:
        if self._blank:
            self._dispatch()
            return
        if self._line.startswith(b"data:") and not self._oversize:
            self._data.append(bytes(self._line[5:]).removeprefix(b" "))
        self._line.clear()
        self._blank = True

    def _dispatch(self) -> None:
        self.events += bool(self._data)
        data = b"\n".join(self._data)
        self._data.clear()
        self._held, self._oversize, self._dirty = 0, False, False
        self._look_for_reasoning(data)
        if data.strip() == b"[DONE]":
            self._complete = True
        elif _TELLING.search(data) and (parsed := _object(data)) is not None:
            self._take(parsed)

    def _look_for_reasoning(self, data: bytes | bytearray) -> None:
        self._reasoning = self._reasoning or _REASONING.search(data) is not None

    def _take(self, parsed: Mapping[str, object]) -> None:
        if isinstance(timings := parsed.get("timings"), dict):
            self._timings = timings
        # Anthropic tells the prompt in message_start.message and the rest at the end.
        for place in (parsed.get("message"), parsed.get("response"), parsed):
            if isinstance(place, dict) and isinstance(usage := place.get("usage"), dict):
                self._usage = {**self._usage, **usage}
        if parsed.get("stop") is True or parsed.get("type") in _ENDS:
            self._complete = True
        if parsed.get("error") is not None:
            self._error = True
        if parsed.get("truncated") is True:
            self._truncated = True


def usage_of(summary: Summary) -> Usage:
    """The figures: ``timings`` where the engine gave them, else ``usage``."""
    timings, usage = summary.timings, summary.usage
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    if prompt is not None and "cache_read_input_tokens" in usage:
        # Anthropic counts what was cached apart, OpenAI within.
        prompt += _count(usage["cache_read_input_tokens"]) or 0
    if prompt is None:
        prompt = _sum(_count(timings.get("prompt_n")), _count(timings.get("cache_n")))
    completion = _first(usage, "completion_tokens", "output_tokens")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(timings.get("predicted_n")) if completion is None else completion,
        decode_tps=_rate(timings.get("predicted_per_second")),
        drafted=_count(timings.get("draft_n")),
        accepted=_count(timings.get("draft_n_accepted")),
        generated=_count(timings.get("predicted_n")),
        decode_s=_seconds(timings.get("predicted_ms")),
        cached_tokens=_count(timings.get("cache_n")),
        prompt_s=_seconds(timings.get("prompt_ms")),
    )


def _first(source: Mapping[str, object], *keys: str) -> int | None:
    return next((n for key in keys if (n := _count(source.get(key))) is not None), None)


def _sum(prompt: int | None, cached: int | None) -> int | None:
    return None if prompt is None else prompt + (cached or 0)


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _rate(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of a float
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _seconds(milliseconds: object) -> float | None:
    found = _rate(milliseconds)
    return None if found is None else found / 1000


def _object(data: bytes) -> Mapping[str, object] | None:
    try:
        parsed: object = json.loads(data.decode())
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
