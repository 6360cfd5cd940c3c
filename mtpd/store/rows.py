"""Values to and from columns, without loss: arms, residencies, intervals, JSON.

Covers only the conversions. A column that cannot be read back is a StoreError that
names it, never a default value.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from mtpd.errors import StoreError
from mtpd.views import ArmView, IntervalView
from tuner.types import (
    Arm,
    Evicted,
    Host,
    Interval,
    Resident,
    Spilled,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.views import Json
    from tuner.types import Residency

__all__ = [
    "ResidencyColumns",
    "arm_from_json",
    "arm_json",
    "dump",
    "interval_from_json",
    "interval_json",
    "load",
    "load_integers",
    "load_numbers",
    "load_object",
    "load_strings",
    "matching",
    "residency_columns",
    "residency_from",
    "residency_label",
]

ResidencyColumns = tuple[str, int | None, int | None, str | None]
"""Label, evicted layers, spilled bytes, reason of not knowing."""

_PLAIN: Final[Mapping[str, Residency]] = {"resident": Resident(), "host": Host()}


def dump(value: Json) -> str:
    """Compact JSON in ASCII, so that a lone surrogate of a log line survives too.

    Raises:
        StoreError: A number is not finite, which JSON cannot hold.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError as problem:
        msg = f"a value cannot be stored as JSON: {problem}"
        raise StoreError(msg, hint="this is a defect of mtpd; report it with the log") from problem


def load(text: str) -> Json:
    """The value of a JSON column."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise _unreadable("JSON", text) from problem
    return value


def load_object(text: str) -> dict[str, Json]:
    """The value of a JSON column that holds an object."""
    value = load(text)
    if not isinstance(value, dict):
        raise _unreadable("object", text)
    return value


def load_strings(text: str) -> tuple[str, ...]:
    """The value of a JSON column that holds an array of strings."""
    items = _array(text)
    strings = tuple(item for item in items if isinstance(item, str))
    if len(strings) != len(items):
        raise _unreadable("array of strings", text)
    return strings


def load_numbers(text: str) -> tuple[float, ...]:
    """The value of a JSON column that holds an array of numbers."""
    items = _array(text)
    numbers = tuple(
        float(item)
        for item in items
        if isinstance(item, int | float) and not isinstance(item, bool)
    )
    if len(numbers) != len(items):
        raise _unreadable("array of numbers", text)
    return numbers


def load_integers(text: str) -> tuple[int, ...]:
    """The value of a JSON column that holds an array of integers."""
    items = _array(text)
    integers = tuple(item for item in items if type(item) is int)
    if len(integers) != len(items):
        raise _unreadable("array of integers", text)
    return integers


def _array(text: str) -> list[Json]:
    value = load(text)
    if not isinstance(value, list):
        raise _unreadable("array", text)
    return value


def matching(columns: Mapping[str, str | int | None]) -> str:
    """A WHERE condition for the columns that are not None, with named parameters.

    The names are constants of the callers; only they reach the SQL text.
    """
    return " AND ".join(f"{name} = :{name}" for name in columns if columns[name] is not None)


def arm_json(arm: Arm) -> str:
    """An arm as the journal and the ledger hold it."""
    return dump(asdict(ArmView.of(arm)))


def arm_from_json(text: str) -> Arm:
    """The arm of a journal or ledger row."""
    try:
        return ArmView(**json.loads(text)).arm()
    except (TypeError, ValueError, RecursionError) as problem:
        raise _unreadable("arm", text) from problem


def interval_json(interval: Interval) -> str:
    """An interval as the journal holds it."""
    return dump(
        {
            "low": interval.low,
            "mid": interval.mid,
            "high": interval.high,
            "level": interval.level,
        }
    )


def interval_from_json(text: str) -> IntervalView:
    """The interval of a journal row."""
    try:
        return IntervalView(**json.loads(text))
    except (TypeError, ValueError, RecursionError) as problem:
        raise _unreadable("interval", text) from problem


def residency_label(residency: Residency) -> str:
    """One of resident, evicted, spilled, host, unknown."""
    return type(residency).__name__.lower()


def residency_columns(residency: Residency) -> ResidencyColumns:
    """The four columns that hold a residency."""
    label = residency_label(residency)
    match residency:
        case Evicted(layers):
            return (label, layers, None, None)
        case Spilled(spilled_bytes):
            return (label, None, spilled_bytes, None)
        case Unknown(reason):
            return (label, None, None, reason)
        case Resident() | Host():
            return (label, None, None, None)


def residency_from(columns: ResidencyColumns) -> Residency:
    """The residency that the four columns hold."""
    label, layers, spilled_bytes, reason = columns
    if label in _PLAIN:
        return _PLAIN[label]
    if label == "evicted":
        return Evicted(layers)
    if label == "spilled":
        return Spilled(spilled_bytes)
    if label == "unknown" and reason is not None:
        return Unknown(reason)
    raise _unreadable("residency", repr(columns))


def _unreadable(what: str, text: str) -> StoreError:
    msg = f"the state database holds what is no {what}: {text[:120]!r}"
    return StoreError(msg, hint="the row was changed by hand or by another version of mtpd")
