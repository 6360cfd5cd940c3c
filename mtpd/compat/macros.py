"""llama-swap's macros: ``${env.X}``, ``${NAME}``, ``${MODEL_ID}`` and ``${PORT}``.

Expanded as llama-swap's own loader does (internal/config/load.go): once through the
list, the last definition first, so that a macro may use those before it. What is left
over is the caller's fault to tell. Growth is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "MAX_TEXT",
    "Macros",
    "TooLongError",
    "expand",
    "left_over",
    "name_fault",
    "plain",
    "with_environment",
]

MAX_TEXT = 64 * 1024
"""Characters that one expanded text may have."""

_USE = re.compile(r"\$\{([a-zA-Z0-9_-]+)\}")
_ENV = re.compile(r"\$\{env\.([a-zA-Z_][a-zA-Z0-9_]*)\}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,63}")
_RESERVED = frozenset({"PORT", "MODEL_ID"})

Macros = tuple[tuple[str, object], ...]
"""Name and value, in the order of definition."""


class TooLongError(Exception):
    """An expansion grew beyond ``MAX_TEXT``."""


def with_environment(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``${env.X}``.

    Raises:
        LookupError: A variable is not set; the first argument says which.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            message = f"the environment variable {name!r} is not set where mtpd runs"
            raise LookupError(message)
        return environment[name]

    return _ENV.sub(value, text)


def name_fault(name: str, value: object) -> str | None:
    """What is wrong with a definition, or None."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a macro name: letters, digits, _ and - (at most 63)"
    if name in _RESERVED:
        return f"the macro name {name!r} is reserved"
    if isinstance(value, str) and f"${{{name}}}" in value:
        return f"the macro {name!r} contains itself"
    if not isinstance(value, str | int | float | dict):
        return f"the macro {name!r} must be text, a number, true, false or a table"
    return None


def expand(value: object, macros: Macros) -> object:
    """Replace macros in a text, or in every text of a list or table.

    A text that is nothing but one macro takes the macro's type, as ``metadata`` needs.

    Raises:
        TooLongError: The expansion of a text grew too long.
    """
    if isinstance(value, str):
        return _expand_text(value, macros)
    if isinstance(value, list):
        return [expand(item, macros) for item in value]
    if isinstance(value, dict):
        return {key: expand(item, macros) for key, item in value.items()}
    return value


def _expand_text(text: str, macros: Macros) -> object:
    for number in range(len(macros) - 1, -1, -1):
        name, value = macros[number]
        use = f"${{{name}}}"
        if text == use and not isinstance(value, str):
            return expand(value, macros[:number])
        count = text.count(use)
        if not count:
            continue
        shown = plain(value)
        if len(text) + count * len(shown) > MAX_TEXT:
            raise TooLongError
        text = text.replace(use, shown)
    return text


def plain(value: object) -> str:
    """A value as llama-swap writes it into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def left_over(value: object) -> Iterator[str]:
    """Names of the macros that nothing replaced."""
    if isinstance(value, str):
        yield from _USE.findall(value)
    elif isinstance(value, list):
        for item in value:
            yield from left_over(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from left_over(item)
