"""Views as JSON values. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mtpd.engine_views import Json

__all__ = ["encode"]

_PLAIN: Final = (str, int, float, type(None))


@cache
def _members(kind: type) -> tuple[str, ...] | None:
    """The members of a view in declared order; None for what is none."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(one.name for one in dataclasses.fields(kind))


def encode(value: object) -> Json:
    """A view as JSON values: members in declared order, tuples as lists.

    Raises:
        TypeError: for a type that has no place in a view.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    kind: type = type(value)
    if (names := _members(kind)) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # Numbers by the thousand are worth no call each.
        return [item if isinstance(item, _PLAIN) else encode(item) for item in value]
    msg = f"a view may not hold {type(value).__name__}"
    raise TypeError(msg)
