"""Every configuration key with its type, its default, its meaning and where it stands.

Read from the tables of ``mtpd.config.schema``: the types and ranges from the fields, the
meanings from their docstrings. docs/configuration.md and the manual are made of this.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from inspect import getdoc
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mtpd.config import schema
from mtpd.config.schema_words import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SECTIONS", "Key", "Section", "meanings"]

UNIT_OF: Final = {"_s": "seconds", "_mib": "MiB", "_w": "W", "_c": "°C"}
"""How a key's name ends, and what it then counts."""
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)
_UNSET = re.compile(r" ?Unset: (.*)\.$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table.

    Attributes:
        name: As it is written.
        type: What may be written, e.g. ``integer, 0 … 100000``.
        default: As it would be written, "required", or what holds where it is unset.
        meaning: Sentences; code stands between backticks, a page as it is named
            in the repository, with ``#PART`` behind it.
    """

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Keys that stand in the same table.

    Attributes:
        name: The table's name in this reference.
        where: The files and headers where it may stand.
        table: Its class.
        names: Which of its keys this section is about; all of them where it is empty.
    """

    name: str
    where: str
    table: type[Table]
    names: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys in the order of the schema."""
        told = meanings(self.table)
        fields = self.table.model_fields
        wanted = self.names or tuple(fields)
        return tuple(_key(name, fields[name], told[name]) for name in wanted)


_LAUNCH: Final = tuple(schema.LaunchTable.model_fields)
_PROGRAM: Final = ("command", "proxy", "check", "env")
_MODEL: Final = tuple(
    name for name in schema.ModelTable.model_fields if name not in {*_LAUNCH, *_PROGRAM}
)
_FILE: Final = "`profiles/models/NAME.toml`"

SECTIONS: Final = (
    Section(name="server", where="`[server]`", table=schema.ServerTable),
    Section(name="timeouts", where="`[server.timeouts]`", table=schema.TimeoutsTable),
    Section(name="limits", where="`[server.limits]`", table=schema.LimitsTable),
    Section(name="engine", where="`[engine]`", table=schema.EngineTable),
    Section(name="budget", where="`[budget]`", table=schema.BudgetTable),
    Section(name="tuning", where="`[tuning]`", table=schema.TuningTable),
    Section(name="pools", where="`[pools.NAME]`", table=schema.PoolTable),
    Section(name="groups", where="`[groups.NAME]`", table=schema.GroupTable),
    Section(
        name="models",
        where=f"`[models.NAME]`, or the top of {_FILE}",
        table=schema.ModelTable,
        names=_MODEL,
    ),
    Section(
        name="launch",
        where=f"`[models.NAME]`, the top of {_FILE}, or `[model_defaults]` of a hardware profile",
        table=schema.ModelTable,
        names=_LAUNCH,
    ),
    Section(
        name="program",
        where=f'`[models.NAME]`, or the top of {_FILE}, with `kind = "opaque"`',
        table=schema.ModelTable,
        names=_PROGRAM,
    ),
    Section(
        name="model_timeouts",
        where=f"`[models.NAME.timeouts]`, or `[timeouts]` of {_FILE}",
        table=schema.EngineTimeoutsTable,
    ),
    Section(
        name="drafter",
        where=f"`[models.NAME.drafter]`, or `[drafter]` of {_FILE}",
        table=schema.DrafterTable,
    ),
    Section(
        name="drafters",
        where=f"`[[models.NAME.drafters]]`, or `[[drafters]]` of {_FILE}; besides all of `drafter`",
        table=schema.CandidateTable,
        names=("name",),
    ),
    Section(
        name="quality",
        where=f"`[models.NAME.quality]`, or `[quality]` of {_FILE}",
        table=schema.QualityTable,
    ),
    Section(
        name="filters",
        where=f"`[models.NAME.filters]`, or `[filters]` of {_FILE}",
        table=schema.FiltersTable,
    ),
    Section(
        name="hardware",
        where="the top of `profiles/hardware/NAME.toml`",
        table=schema.HardwareTable,
    ),
    Section(
        name="workload",
        where="the top of `profiles/workloads/NAME.toml`",
        table=schema.WorkloadTable,
    ),
    Section(name="prompts", where="`[[prompts]]` of a workload", table=schema.PromptTable),
    Section(name="messages", where="`messages` of a prompt", table=schema.MessageTable),
)
"""All tables, in reading order."""


def meanings(table: type[Table]) -> dict[str, str]:
    """What each key of a table means, with those that it inherits; one line each."""
    told: dict[str, str] = {}
    for kind in reversed(table.__mro__):
        if issubclass(kind, Table) and kind is not Table:
            for name, text in _ATTRIBUTE.findall(getdoc(kind) or ""):
                told[name] = " ".join(text.split())
    return told


def _key(name: str, field: FieldInfo, meaning: str) -> Key:
    unset = _UNSET.search(meaning)
    if field.is_required():
        default = "required"
    elif unset is not None:
        default, meaning = unset.group(1), meaning[: unset.start()]
    else:
        default = _written(field.get_default(call_default_factory=True))
    return Key(name=name, type=_type(name, field), default=default, meaning=meaning)


def _written(value: object) -> str:
    """A default as TOML has it; a table's and an empty array's is nothing."""
    if isinstance(value, Table) or value in ([], {}):
        return "none"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value)}`"


def _type(name: str, field: FieldInfo) -> str:
    kind, bounds = _unwrapped(field.annotation, tuple(_bounds(field.metadata)))
    if kind in {int, float}:
        ends = [name.removesuffix(ending) != name and unit for ending, unit in UNIT_OF.items()]
        unit = next((unit for unit in ends if unit), "integer" if kind is int else "number")
        return ", ".join([unit, *_range(dict(bounds))])
    return _shape(kind)


def _shape(kind: Any) -> str:
    """What may be written for a type that is no number."""
    if get_origin(kind) is Literal:
        return ", ".join(f'`"{word}"`' for word in get_args(kind))
    if get_origin(kind) is list:
        inner, _ = _unwrapped(get_args(kind)[0])
        return "array of strings" if inner is str else "array of tables"
    if get_origin(kind) is dict:
        inner, _ = _unwrapped(get_args(kind)[1])
        return "table of strings" if inner is str else "table"
    return {str: "string", bool: "`true`, `false`"}.get(kind, "table")


def _unwrapped(
    annotation: Any, bounds: tuple[tuple[str, float], ...] = ()
) -> tuple[Any, tuple[tuple[str, float], ...]]:
    """The type itself, with the bounds that ``Annotated`` gives it, without ``| None``."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        found = [
            pair for mark in marks if isinstance(mark, FieldInfo) for pair in _bounds(mark.metadata)
        ]
        return _unwrapped(inner, (*bounds, *found))
    if get_origin(annotation) in {Union, UnionType}:
        return _unwrapped(next(o for o in get_args(annotation) if o is not type(None)), bounds)
    return annotation, bounds


def _bounds(marks: list[Any]) -> Iterator[tuple[str, float]]:
    for mark in marks:
        for name in ("ge", "gt", "le", "lt"):
            if hasattr(mark, name):
                yield name, getattr(mark, name)


def _range(bounds: dict[str, float]) -> Iterator[str]:
    """The range in words, if there is one."""
    low = f"{bounds['ge']:g}" if "ge" in bounds else None
    if "gt" in bounds:
        low = f"above {bounds['gt']:g}"
    high = f"{bounds['le']:.16g}" if "le" in bounds else None
    if "lt" in bounds:
        high = f"below {bounds['lt']:g}"
    if low is not None and high is not None:
        yield f"{low} … {high}"
    elif low is not None:
        yield low if low.startswith("above") else f"at least {low}"
