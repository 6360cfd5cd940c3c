"""Trees of raw values laid over each other, each value with the place it came from.

Knows nothing of what the keys mean; ``mtpd.config.load`` decides which files make
which layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.config.locate import Path, dotted

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Origin", "Origins", "Problem", "Tree", "merge", "mount", "nest", "prune"]

Tree = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was written.

    Attributes:
        file: Path of the file as it was opened, or "command line".
        line: 1-based line; 0 where the file has none.
        path: Key path within that file.
        folder: Directory that relative paths in it are relative to.
    """

    file: str
    line: int
    path: Path
    folder: str

    def __str__(self) -> str:
        """``FILE:LINE``, or just the file where there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, where, and what to do about it."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""
    message: str

    def __str__(self) -> str:
        """``FILE:LINE: PATH: MESSAGE``, without the parts that do not apply."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(slots=True)
class Origins:
    """The origin of every path of a merged tree."""

    at: dict[Path, Origin] = field(default_factory=dict)

    def find(self, path: Path) -> Origin | None:
        """The origin of a path or of the nearest table above it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.at:
                return self.at[path[:end]]
        return None

    def problem(self, path: Path, message: str, *, default_file: str) -> Problem:
        """A problem at a merged path, told in the terms of the file that holds it."""
        for end in range(len(path), -1, -1):
            origin = self.at.get(path[:end])
            if origin is not None:
                shown = dotted((*origin.path, *path[end:]))
                return Problem(file=origin.file, line=origin.line, path=shown, message=message)
        return Problem(file=default_file, path=dotted(path), message=message)

    def forget(self, path: Path) -> None:
        """Drop a path and all below it."""
        for known in [key for key in self.at if key[: len(path)] == path]:
            del self.at[known]


def mount(
    lines: Mapping[Path, int], *, file: str, folder: str, at: Path = (), below: Path = ()
) -> dict[Path, Origin]:
    """Origins of a file whose table ``below`` is placed at ``at`` in the merged tree."""
    origins = {at: Origin(file=file, line=lines.get(below, 1), path=below, folder=folder)}
    for path, line in lines.items():
        if path[: len(below)] == below:
            merged = (*at, *path[len(below) :])
            origins[merged] = Origin(file=file, line=line, path=path, folder=folder)
    return origins


def merge(
    base: Tree, base_origins: Origins, over: Tree, over_origins: Mapping[Path, Origin]
) -> None:
    """Lay ``over`` on ``base`` in place: tables are joined, anything else is replaced."""
    joined: set[Path] = {()}
    _merge_at((), base, base_origins, over, joined)
    for path, origin in over_origins.items():
        if path in joined:
            base_origins.at.setdefault(path, origin)
        else:
            base_origins.at[path] = origin


def _merge_at(path: Path, base: Tree, origins: Origins, over: Tree, joined: set[Path]) -> None:
    for key, value in over.items():
        here = (*path, key)
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            joined.add(here)
            _merge_at(here, old, origins, value, joined)
            continue
        if key in base:
            origins.forget(here)
        base[key] = _copy(value)


def _copy(value: object) -> object:
    """Tables and arrays are copied so that merging never changes what a file said."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def nest(path: tuple[str, ...], value: object) -> Tree:
    """A tree that holds one value at a path."""
    tree: Tree = {path[-1]: value}
    for key in reversed(path[:-1]):
        tree = {key: tree}
    return tree


def prune(tree: Tree, path: Path) -> bool:
    """Remove what stands at a path (an array as a whole); whether there was anything."""
    keys = []
    for part in path:
        if isinstance(part, int):
            break
        keys.append(part)
    current: object = tree
    for key in keys[:-1]:
        current = current.get(key) if isinstance(current, dict) else None
    if not keys or not isinstance(current, dict) or keys[-1] not in current:
        return False
    del current[keys[-1]]
    return True
