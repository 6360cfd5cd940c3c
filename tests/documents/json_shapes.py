"""What the commands print as JSON, for docs/json.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtpd.api.json_schema import Components
from mtpd.cli.schemas import MTPCTL, mtpd_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.api.json_schema import Shape

__all__ = ["BLOCKS"]

_PREFIX = "#"
SHAPES = {**MTPCTL, **mtpd_shapes()}


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _shape(one: Shape) -> str:
    view = _link(one.view.__name__)
    if one.member is not None:
        return f'`{{"{one.member}": [...]}}`, each a {view}'
    return f"an array, each a {view}" if one.many else view


def table(program: str, shapes: Mapping[str, tuple[Shape, ...]]) -> str:
    """One row per command."""
    rows = (
        f"| `{program} {words}` | {'; or '.join(map(_shape, those))} |"
        for words, those in shapes.items()
    )
    return "\n".join(["| command | prints |", "|---|---|", *rows])


def kind(schema: Any) -> str:
    """A type in words."""
    match schema:
        case {"$ref": str() as name}:
            return _link(name.removeprefix(_PREFIX))
        case {"anyOf": [*options]}:
            return " or ".join(dict.fromkeys(map(kind, options)))
        case {"type": "array", "items": items}:
            return f"array of {kind(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"object of {kind(values)}"
        case {"type": str() as name}:
            return name
        case _:
            return "any"


def views(shapes: Iterable[Shape]) -> str:
    """Every view with its members, in the order of the alphabet."""
    made = Components(_PREFIX)
    for one in shapes:
        one.schema(made)
    lines: list[str] = []
    for name, schema in made.all().items():
        shown: Any = schema
        lines += [f"### {name}", "", shown["description"], "", "| member | type | meaning |"]
        lines += ["|---|---|---|"]
        for member, value in shown["properties"].items():
            meaning = value.get("description", "").replace("|", "\\|")
            lines.append(f"| `{member}` | {kind(value)} | {meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip()


BLOCKS = {
    "json mtpctl": table("mtpctl", MTPCTL),
    "json mtpd": table("mtpd", mtpd_shapes()),
    "json views": views(one for those in SHAPES.values() for one in those),
}
