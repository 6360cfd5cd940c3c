"""JSON back to the views of ``mtpd.views``, for the commands that draw them.

Members that this version does not know are ignored, so that an older ``mtpctl`` can
read a newer daemon.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import TYPE_CHECKING, Any, TypeVar

from mtpd.errors import UpstreamError

if TYPE_CHECKING:
    from mtpd.views import Json

__all__ = ["decode", "decode_all"]

T = TypeVar("T")


def decode(kind: type[T], data: Json) -> T:
    """A view from its JSON.

    Raises:
        UpstreamError: A member is missing or has another shape.
    """
    try:
        value = _value(kind, data)
    except (KeyError, TypeError, AttributeError) as error:
        message = f"The daemon's answer is not a {kind.__name__}: {error}."
        raise UpstreamError(
            message, hint="Are mtpctl and the daemon of the same version? See mtpctl --version."
        ) from None
    return typing.cast("T", value)


def decode_all(kind: type[T], data: Json, member: str) -> tuple[T, ...]:
    """The views in a list answer, e.g. ``{"models": [...]}``."""
    if not isinstance(data, dict) or not isinstance(items := data.get(member), list):
        message = f"The daemon's answer has no list {member!r}."
        raise UpstreamError(message)
    return tuple(decode(kind, item) for item in items)


def _value(kind: Any, data: Json) -> Any:
    if data is None:
        return _none(kind)
    if dataclasses.is_dataclass(kind):
        return _object(kind, data)
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is tuple:
        return tuple(_value(arguments[0], item) for item in _list(data))
    if origin in {types.UnionType, typing.Union}:
        # The views only have "X | None" and Json; Json members are taken as they are.
        options = [option for option in arguments if option is not types.NoneType]
        return _value(options[0], data) if len(options) == 1 else data
    return _scalar(kind, data)


def _object(kind: Any, data: Json) -> Any:
    if not isinstance(data, dict):
        message = f"expected an object, got {type(data).__name__}"
        raise TypeError(message)
    hints = typing.get_type_hints(kind)
    return kind(**{f.name: _value(hints[f.name], data[f.name]) for f in dataclasses.fields(kind)})


def _list(data: Json) -> list[Json]:
    if not isinstance(data, list):
        message = f"expected a list, got {type(data).__name__}"
        raise TypeError(message)
    return data


def _none(kind: Any) -> None:
    if types.NoneType not in typing.get_args(kind):
        message = f"expected {kind}, got null"
        raise TypeError(message)


def _scalar(kind: Any, data: Json) -> Any:
    if kind is float and type(data) is int:
        return float(data)
    expected = typing.get_origin(kind) or kind
    if type(data) is not expected:
        message = f"expected {expected.__name__}, got {type(data).__name__}"
        raise TypeError(message)
    return data
