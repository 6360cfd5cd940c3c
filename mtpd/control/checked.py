"""Whether a value that was read back is what its type hints say, however deep.

Covers the frozen values of a decision's inputs: JSON gives a text where a number was
written, and a dataclass takes it without a word. Pure.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tuner.compare import Quality
from tuner.cost import RowCost
from tuner.plan import WorkloadPlan
from tuner.types import Arm, Budget, Observation, ShortStep, Start

__all__ = ["check"]

_NAMES: Final = {
    kind.__name__: kind
    for kind in (
        Arm,
        Budget,
        Mapping,
        Observation,
        Quality,
        RowCost,
        ShortStep,
        Start,
        WorkloadPlan,
    )
}
"""What the hints of the checked values name and their modules import for the type checker only."""


def check(value: object, kind: object) -> None:
    """Pass over a value that is of this type, all the way down; whole numbers are numbers.

    Args:
        value: Dataclasses, tuples, frozen sets, mappings, enumerations and plain values.
        kind: A type, or a hint as ``typing.get_type_hints`` gives it.

    Raises:
        TypeError: It is not, or a number is not finite; says what was expected.
    """
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind) or kind
    if origin in {types.UnionType, typing.Union}:
        _one_of(value, arguments)
        return
    if origin is float and type(value) is int:
        return
    odd = isinstance(value, bool) and origin is not bool
    if odd or not isinstance(value, typing.cast("type", origin)):
        raise _unexpected(value, origin)
    if isinstance(value, float) and not math.isfinite(value):
        raise _unexpected(value, origin)
    _inside(value, arguments)


def _inside(value: object, arguments: tuple[object, ...]) -> None:
    if isinstance(value, Observation):
        return  # the store made it from a row whose columns have types
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, hint in _hints(type(value)).items():
            check(getattr(value, name), hint)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            check(key, arguments[0])
            check(one, arguments[1])
    elif isinstance(value, tuple | frozenset):
        for one in value:
            check(one, arguments[0])


def _one_of(value: object, kinds: tuple[object, ...]) -> None:
    problem: TypeError | None = None
    for kind in kinds:
        try:
            check(value, kind)
        except TypeError as error:
            problem = problem or error
        else:
            return
    raise problem or _unexpected(value, kinds)


def _unexpected(value: object, kind: object) -> TypeError:
    name = getattr(kind, "__name__", str(kind))
    return TypeError(f"expected {name}, got {value!r}")


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, localns=_NAMES)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
