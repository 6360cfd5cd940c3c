"""Names of parameters of a request, as llama-swap's ``filters`` write them.

``a.b`` is the member ``b`` of the table ``a``, and ``a?`` is set only where a request has no
``a``. The model's name is nobody's to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PROTECTED", "Parameter", "parse"]

PROTECTED = "model"
"""What no filter touches."""

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes:
        path: Its name; more than one where it stands in a table.
        soft: Whether it is set only where a request has none.
    """

    path: tuple[str, ...]
    soft: bool = False


def parse(text: str) -> Parameter | str:
    """The parameter of a name, or what is wrong with the name, as a predicate."""
    name = text.removesuffix("?")
    path = tuple(name.split("."))
    if len(path) > _MOST_PARTS or not all(map(_PART.fullmatch, path)):
        return "is not the name of a parameter, such as 'temperature' or 'chat_template_kwargs.x'"
    if path[0] == PROTECTED:
        return "is protected: the model asked for is the model served"
    return Parameter(path, soft=name != text)
