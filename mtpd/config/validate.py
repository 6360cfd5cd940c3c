"""From a raw tree to a checked table, collecting every problem on the way.

A value that is wrong is reported and taken out, so that the rest can still be
checked in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from mtpd.config.checks import did_you_mean
from mtpd.config.layers import prune
from mtpd.config.schema import Table, keys_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

    from mtpd.config.layers import Origins, Problem, Tree
    from mtpd.config.locate import Path

__all__ = ["Validation"]

TableT = TypeVar("TableT", bound=Table)

_ROUNDS = 8
_UNSHOWN = "env"
"""The tables whose values are not shown, wherever they stand."""
_SHOWN = 60
_SECTION = 2  # keys of a section of their own do not depend on each other
_MUST_BE = {
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
}


class Validation:
    """The problems of one tree, and which of its tables they are in."""

    def __init__(self, *, origins: Origins, file: str) -> None:
        self.problems: list[Problem] = []
        self._origins = origins
        self._file = file
        self._broken: set[Path] = set()
        self._pruned: set[Path] = set()

    def table(self, schema: type[TableT], tree: Tree) -> TableT | None:
        """Validate; wrong values are pruned from ``tree``. None if nothing usable is left."""
        for _ in range(_ROUNDS):
            try:
                return schema.model_validate(tree)
            except ValidationError as error:
                removed = [self._take(schema, tree, one) for one in error.errors()]
                if not any(removed):
                    return None
        return None

    def findings(self, findings: Iterable[tuple[Path, str]]) -> None:
        """Add what the checks found.

        Keys of a table with a wrong value are left out: that value was replaced by its
        default, so a contradiction with it would be of our own making.
        """
        for path, message in findings:
            if path[:-1] not in self._broken:
                self.add(path, message)

    def add(self, path: Path, message: str) -> None:
        """Add a problem at a path of the tree."""
        self.problems.append(self._origins.problem(path, message, default_file=self._file))

    def _take(self, schema: type[Table], tree: Tree, error: ErrorDetails) -> bool:
        path, kind = error["loc"], error["type"]
        target = path[:-1] if kind == "missing" else path
        if path not in self._pruned:  # what an earlier round removed is not missing
            self.add(target, _message(schema, error))
        if kind != "extra_forbidden" and len(path) > _SECTION:
            self._broken.add(path[:-1])
        self._pruned.add(_without_index(target))
        return bool(target) and prune(tree, target)


def _without_index(path: Path) -> Path:
    """The path of the array instead of one of its elements, as ``prune`` removes it."""
    for end, part in enumerate(path):
        if isinstance(part, int):
            return path[:end]
    return path


def _kind(given: object) -> str:
    """What a value is, where the value itself may be a secret."""
    match given:
        case str():
            return "text"
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return "a number, a date, true or false"


def _message(schema: type[Table], error: ErrorDetails) -> str:
    path, kind, given = error["loc"], error["type"], error["input"]
    if kind == "missing":
        return f"the key {path[-1]!r} is required"
    if kind == "extra_forbidden":
        known = keys_at(schema, path[:-1])
        return f"unknown key{did_you_mean(str(path[-1]), known)}"
    shown = repr(given) if _UNSHOWN not in path else _kind(given)
    if len(shown) > _SHOWN:
        shown = f"{shown[: _SHOWN - 3]}..."
    text = _MUST_BE.get(kind)
    if text is None:
        text = error["msg"].replace("Input should", "must").replace("String should", "must")
        text = text.replace("List should", "must").replace(" after validation", "")
    if kind == "too_short":
        return text
    hint = ""
    if kind == "literal_error" and isinstance(given, str):
        expected = str(error.get("ctx", {}).get("expected", ""))
        hint = did_you_mean(given, expected.split("'")[1::2])
    return f"{text}, not {shown}{hint}"
