"""JSON Schema (2020-12) of the views, made from their fields and docstrings. Pure.

A view is a frozen dataclass. Its schema names every member, with the sentence that the
docstring's ``Attributes`` has of it and the unit that the member's name ends in. New
members may be added to a view, so the published schema forbids none; ``closed`` makes of
it one that does, for tests.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mtpd.views import Json

__all__ = [
    "Components",
    "JsonObject",
    "Shape",
    "attributes_of",
    "closed",
    "document_of",
    "summary_of",
    "told",
]

JsonObject = dict[str, "Json"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final[Mapping[object, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}
_UNITS: Final[Mapping[str, str]] = {
    "bytes": "bytes",
    "mib": "MiB",
    "s": "seconds",
    "ms": "milliseconds",
    "w": "watts",
    "c": "degrees Celsius",
    "mhz": "MHz",
    "j": "joules",
    "tps": "tokens per second",
    "percent": "percent",
    "tokens_per_step": "tokens per decode step",
    "tokens_per_s": "tokens per second",
    "tokens_per_joule": "tokens per joule",
    "joules_per_token": "joules per token",
}
"""By the end of a member's name; the longest one that fits counts."""
_MOMENTS: Final = re.compile(r"at|since|.+_at|invalid_since")
_NUMBERS: Final = ("integer", "number")
_NONE: Final = re.compile(r"\bNone\b")
_ATTRIBUTE: Final = re.compile(r"    (\w+): (.*)")


class Components:
    """Collects the schemas of views that refer to each other.

    Args:
        prefix: Of a reference to a schema, e.g. ``#/components/schemas/``.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: dict[str, JsonObject] = {}
        self._kinds: dict[str, type] = {}

    def of(self, kind: Any) -> JsonObject:
        """The schema of a type; a view's is a reference, and its own is collected.

        Raises:
            TypeError: for a type that has no place in a view.
        """
        if dataclasses.is_dataclass(kind):
            return self._reference(cast("type", kind))
        if kind is None or kind is types.NoneType:
            return {"type": "null"}
        if kind in _SCALARS:
            return {"type": _SCALARS[kind]}
        if isinstance(kind, typing.NewType):
            return self.of(kind.__supertype__)
        if inspect.isclass(kind) and issubclass(kind, enum.StrEnum):
            return {"type": "string", "enum": [one.value for one in kind]}
        return self._generic(kind)

    def _generic(self, kind: Any) -> JsonObject:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in {tuple, list}:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in {dict, Mapping}:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin in {types.UnionType, typing.Union}:
            if set(_SCALARS) <= set(arguments):  # mtpd.views.Json, however deep it was resolved
                return {"description": "Any JSON value."}
            return {"anyOf": [self.of(one) for one in arguments]}
        msg = f"a view may not hold {kind}"
        raise TypeError(msg)

    def listed(self, member: str, kind: type) -> JsonObject:
        """The schema of an object with one member, a list of views."""
        return {
            "type": "object",
            "required": [member],
            "properties": {member: {"type": "array", "items": self.of(kind)}},
        }

    def all(self) -> dict[str, JsonObject]:
        """Every view that was met, by name."""
        return dict(sorted(self._made.items()))

    def add(self, name: str, schema: JsonObject) -> JsonObject:
        """Collect a schema that is not a view's; returns the reference to it.

        Raises:
            ValueError: another schema has this name.
        """
        if self._made.setdefault(name, schema) != schema:
            msg = f"there are two schemas {name}"
            raise ValueError(msg)
        return {"$ref": self._prefix + name}

    def _reference(self, kind: type) -> JsonObject:
        name = kind.__name__
        if self._kinds.setdefault(name, kind) is not kind:
            msg = f"there are two views {name}"
            raise ValueError(msg)
        if name not in self._made:
            self._made[name] = {}  # a view may hold itself
            self._made[name] = self._view(kind)
        return {"$ref": self._prefix + name}

    def _view(self, kind: Any) -> JsonObject:
        hints, said = typing.get_type_hints(kind), attributes_of(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return {
            "type": "object",
            "description": summary_of(kind),
            "required": list(names),
            "properties": {
                name: _described(name, self.of(hints[name]), said.get(name)) for name in names
            },
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a text of JSON may be.

    Attributes:
        view: A view, or the one that is listed.
        member: Of an object, with a list of views; None for no such object.
        many: Whether it is an array of views.
    """

    view: type
    member: str | None = None
    many: bool = False

    def schema(self, made: Components) -> JsonObject:
        """Its schema, with the views collected."""
        if self.member is not None:
            return made.listed(self.member, self.view)
        one = made.of(self.view)
        return {"type": "array", "items": one} if self.many else one


def document_of(*shapes: Shape) -> JsonObject:
    """A schema that stands alone, of a text that is one of these."""
    made = Components("#/$defs/")
    roots: list[Json] = [one.schema(made) for one in shapes]
    [first, *others] = cast("list[JsonObject]", roots)
    return {
        "$schema": DIALECT,
        **({"anyOf": roots} if others else first),
        "$defs": dict(made.all()),
    }


def closed(schema: Json) -> Json:
    """The same schema, by which no object may have a member that is not named."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(value) for name, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)  # the keyword's value
    return made


def summary_of(kind: type) -> str:
    """What a docstring says before its sections, as one paragraph."""
    text = inspect.cleandoc(kind.__doc__ or "").split("\nAttributes:\n")[0]
    return told(" ".join(text.split()))


def told(text: str) -> str:
    """A docstring's words as a reader of JSON knows them, in Markdown."""
    return _NONE.sub("null", text.replace("``", "`"))


def attributes_of(kind: type) -> dict[str, str]:
    """What the docstrings say of each member, in Google's form; a base's members too."""
    said: dict[str, str] = {}
    for one in reversed([one for one in kind.__mro__[1:] if dataclasses.is_dataclass(one)]):
        said |= _own_attributes(one)
    return said | _own_attributes(kind)


def _own_attributes(kind: type) -> dict[str, str]:
    said: dict[str, list[str]] = {}
    lines = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2].splitlines()
    for number, text in enumerate(lines):
        if text and not text.startswith("    "):
            break
        if (found := _ATTRIBUTE.fullmatch(text)) is not None:
            said[found[1]] = [found[2]]
        elif said and number:
            said[next(reversed(said))].append(text.strip())
    return {name: told(" ".join(filter(None, parts))) for name, parts in said.items()}


def _described(name: str, schema: JsonObject, said: str | None) -> JsonObject:
    words = [] if said is None else [said if said.endswith((".", "?")) else f"{said}."]
    unit = _unit(name) if _is_number(schema) else None
    if unit is not None:
        words.append(f"Unit: {unit}.")
    if _is_string(schema) and _MOMENTS.fullmatch(name):
        words.append("RFC 3339, UTC.")
    return schema if not words else {**schema, "description": " ".join(words)}


def _unit(name: str) -> str | None:
    fitting = [end for end in _UNITS if name == end or name.endswith(f"_{end}")]
    return _UNITS[max(fitting, key=len)] if fitting else None


def _is_number(schema: JsonObject) -> bool:
    return any(one.get("type") in _NUMBERS for one in _alternatives(schema))


def _is_string(schema: JsonObject) -> bool:
    return any(one.get("type") == "string" for one in _alternatives(schema))


def _alternatives(schema: JsonObject) -> Iterable[JsonObject]:
    options = cast("Sequence[JsonObject]", schema.get("anyOf", [schema]))
    return [one for one in options if "$ref" not in one]
