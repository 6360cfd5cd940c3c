"""Other values at the top of a JSON body, every other byte as it came; pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["renamed", "with_value", "with_values"]

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")


def renamed(body: bytes, model: str) -> bytes:
    """The body with this value of ``model`` at its top, which is added where there is none."""
    return with_value(body, "model", json.dumps(model))


def with_value(body: bytes, key: str, value: str) -> bytes:
    """The body with a value at its top, in place of the present one or added; see below."""
    return with_values(body, {key: value})


def with_values(body: bytes, changes: Mapping[str, str | None]) -> bytes:
    """The body with other values at its top, each in place of the present one or added.

    Args:
        body: A JSON object in UTF-8 that ``json.loads`` takes.
        changes: Values as JSON by their keys; None takes a member out.
    """
    text = body.decode()
    first = text.index("{") + 1
    kept: list[str] = []
    found: set[str] = set()
    end = first
    for member in _members(text, first):
        end = member.end
        found.add(member.key)
        value = changes.get(member.key, "")
        if value:
            kept.append(text[member.start : member.value] + value + text[member.after : member.end])
        elif value is not None:
            kept.append(text[member.start : member.end])
    added = [
        f"{json.dumps(key)}:{value}"
        for key, value in changes.items()
        if value is not None and key not in found
    ]
    return f"{text[:first]}{','.join(added + kept)}{text[end:]}".encode()


class _Member(NamedTuple):
    """Where a member begins and ends with the white space around it, and its value without."""

    key: str
    start: int
    value: int
    after: int
    end: int


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members from behind the first bracket on; a key may come twice."""
    while text[at] != "}" and text[_blank(text, at)] != "}":
        start = at
        key, at = _DECODER.raw_decode(text, _blank(text, start))
        value = _blank(text, _blank(text, at) + 1)
        _, after = _DECODER.raw_decode(text, value)
        end = _blank(text, after)
        yield _Member(key, start, value, after, end)
        at = end + (text[end] == ",")


def _blank(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    match = _BLANK.match(text, at)
    return at if match is None else match.end()
