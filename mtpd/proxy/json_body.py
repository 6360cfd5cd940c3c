"""A JSON body as a table, or the sentence that says why it is none; pure and total.

Stricter than JSON where the engine and others could read one body in two ways, or where
reading it alone is dear: a key may not come twice, and nesting has a limit.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["MAX_DEPTH", "MAX_OBJECTS", "MAX_VALUES", "BadBody", "parse"]

MAX_DEPTH = 128
"""Of arrays and objects within each other."""
MAX_OBJECTS = 100_000
MAX_VALUES = 500_000
"""In lists and objects together: more than the tokens of a prompt that is sent as numbers. While a
body is read nobody else is served, and 3.6 MB of small objects took more than a second."""
_TOLD = 40
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class BadBody:
    """The body cannot be used; the reason is one sentence for the client."""

    reason: str
    param: str | None = None


class _TwiceError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class _NumberError(ValueError):
    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def parse(body: bytes) -> Mapping[str, object] | BadBody:
    """The members of the object that a body is."""
    if _holds_too_much(body) and _holds_too_much(_STRING.sub(b"", body)):
        most = f"at most {MAX_OBJECTS} objects and {MAX_VALUES} values are taken"
        return BadBody(f"the body holds too much: {most}")
    try:
        # Strictly UTF-8: json.loads would also guess UTF-16 and UTF-32, the engine does not.
        parsed: object = json.loads(
            body.decode(),
            object_pairs_hook=_table,
            parse_constant=_constant,
            parse_float=_finite,
        )
    except _NumberError as error:
        return BadBody(error.reason)
    except _TwiceError as error:
        return BadBody(f"the key {error.key[:100]!r} comes twice", error.key[:100])
    except (ValueError, RecursionError) as error:
        return BadBody(f"the body is not JSON: {_what(error)}")
    return _checked(parsed)


def _checked(parsed: object) -> Mapping[str, object] | BadBody:
    if not isinstance(parsed, dict):
        return BadBody("the body must be a JSON object")
    if _is_deeper(parsed, MAX_DEPTH):
        return BadBody(f"the body is nested too deeply: at most {MAX_DEPTH} levels are taken")
    return parsed


def _holds_too_much(body: bytes) -> bool:
    """Whether there are too many objects or values, by the signs that begin or part them."""
    objects = body.count(b"{")
    return objects > MAX_OBJECTS or objects + body.count(b"[") + body.count(b",") > MAX_VALUES


def _table(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(key)
            seen.add(key)
    return table


def _constant(name: str) -> object:
    """Python would take NaN and the infinities, which are larger than no limit or than any."""
    reason = f"the body is not JSON: {name} is no value of it"
    raise _NumberError(reason)


def _finite(text: str) -> float:
    """1e999 is JSON, but no engine takes it, and Python would write ``Infinity`` for it."""
    number = float(text)
    if math.isinf(number):
        reason = f"the number {text[:_TOLD]} in the body is too large"
        raise _NumberError(reason)
    return number


def _is_deeper(top: object, levels: int) -> bool:
    """Whether arrays and objects are nested in more than so many levels."""
    level = [top]
    for _ in range(levels):
        level = [below for one in level for below in _containers(one)]
        if not level:
            return False
    return True


def _containers(value: object) -> Iterator[object]:
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return (one for one in inner if isinstance(one, dict | list))


def _what(error: ValueError | RecursionError) -> str:
    match error:
        case UnicodeDecodeError(start=start):
            return f"byte {start} is not UTF-8"
        case json.JSONDecodeError(msg=msg, lineno=line, colno=column):
            return f"{msg} (line {line}, column {column})"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return "a number in it is too long"
