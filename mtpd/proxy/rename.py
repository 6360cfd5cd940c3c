"""Another model name in a JSON body, every other byte as it came; pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["renamed"]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def renamed(body: bytes, model: str) -> bytes:
    """The body with this value of ``model`` at its top, which is added where there is none.

    Args:
        body: A JSON object in UTF-8 that ``json.loads`` takes.
        model: The name for the engine.
    """
    text, name = body.decode(), json.dumps(model)
    parts: list[str] = []
    done = 0
    for start, end in _values(text):
        parts += (text[done:start], name)
        done = end
    if parts:
        return "".join((*parts, text[done:])).encode()
    inside = text.index("{") + 1
    comma = "" if text[_blank(text, inside)] == "}" else ","
    return f'{text[:inside]}"model":{name}{comma}{text[inside:]}'.encode()


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Where the values of ``model`` begin and end; a key may come twice."""
    at = _blank(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _blank(text, _blank(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        if key == "model":
            yield start, end
        at = _blank(text, end)
        if text[at] == ",":
            at = _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    match = _BLANK.match(text, at)
    return at if match is None else match.end()
