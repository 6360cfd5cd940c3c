"""A table as TOML text, for the files that ``mtpd import`` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mtpd.config.locate import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["toml_text"]


def toml_text(table: Mapping[str, object]) -> str:
    """The table with its values first and the tables below it after them.

    Raises:
        TypeError: It holds a value that TOML does not have.
    """
    # JSON, which strings and keys are written as, does not escape this one; TOML must.
    return "".join(f"{line}\n" for line in _lines((), table)).replace("\x7f", "\\u007f")


def _lines(at: tuple[str, ...], table: Mapping[str, object]) -> Iterator[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if at and (values or not table):
        yield f"[{dotted(at)}]"
    for key, value in values.items():
        yield f"{dotted((key,))} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines((*at, key), value)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):  # within an array, where a table has no lines of its own
        pairs = (f"{dotted((key,))} = {_value(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    raise TypeError(value)
