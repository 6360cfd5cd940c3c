"""Another value at the top of a JSON body, every other byte as it came; pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["renamed", "with_value"]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def renamed(body: bytes, model: str) -> bytes:
    """The body with this value of ``model`` at its top, which is added where there is none."""
    return with_value(body, "model", json.dumps(model))


def with_value(body: bytes, key: str, value: str) -> bytes:
    """The body with a value at its top, in place of the present one or added.

    Args:
        body: A JSON object in UTF-8 that ``json.loads`` takes.
        key: Its key, of which JSON needs nothing escaped.
        value: As JSON.
    """
    text = body.decode()
    parts: list[str] = []
    done = 0
    for start, end in _values(text, key):
        parts += (text[done:start], value)
        done = end
    if parts:
        return "".join((*parts, text[done:])).encode()
    inside = text.index("{") + 1
    comma = "" if text[_blank(text, inside)] == "}" else ","
    return f'{text[:inside]}"{key}":{value}{comma}{text[inside:]}'.encode()


def _values(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    """Where the values of a key begin and end; it may come twice."""
    at = _blank(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _blank(text, _blank(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        if key == wanted:
            yield start, end
        at = _blank(text, end)
        if text[at] == ",":
            at = _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    match = _BLANK.match(text, at)
    return at if match is None else match.end()
