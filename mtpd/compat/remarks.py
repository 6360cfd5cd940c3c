"""What is told of a foreign file: faults, what is not honoured, what was changed.

A fault makes the file unusable, as it would for the program that it was written for.
A remark does not: the configuration is used, and the reader knows what it lacks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.access import Token

__all__ = [
    "MAX_MESSAGE",
    "Fault",
    "Import",
    "Kind",
    "Path",
    "Remark",
    "Tree",
    "as_table",
    "is_whole",
    "shortened",
]

Path = tuple[str | int, ...]
"""Keys and array indices from the top of a document to a value."""

Tree = dict[str, object]
"""A table of values as tomli gives it."""


MAX_MESSAGE = 300
"""Characters of a message."""


class Kind(enum.StrEnum):
    """How much of what was written is lost."""

    NOT_HONOURED = "not honoured"
    """Written in the file and without effect here; refused under ``--strict``."""

    CHANGED = "changed"
    """In effect, but not word for word."""

    NOTE = "note"
    """Without effect here, and nothing is lost by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing that a reader of the file should know.

    Attributes:
        kind: How much is lost.
        file: The file as it was named; set by the reader of the file.
        line: 1-based line.
        key: Key path in the file; a flag of a command is a key below it.
        message: Why, as a sentence without a full stop.
        setting: Key path in ``Import.tree`` of the value that the message is about, or empty;
            later layers may set another one, which is then told.
    """

    kind: Kind
    file: str = ""
    line: int
    key: Path
    message: str
    setting: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[int, Path]:
        """Line and key."""
        return self.line, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why the file cannot be used.

    Attributes:
        line: 1-based line; 0 where there is none.
        column: 1-based column; 0 where it says nothing.
        key: Key path in the file, or empty.
        message: What is wrong.
    """

    line: int = 0
    column: int = 0
    key: Path = ()
    message: str


@dataclass(slots=True, kw_only=True)
class Import:
    """A foreign file in the terms of ``mtpd.toml``.

    Attributes:
        tree: What ``mtpd.toml`` would hold, the models under ``models``.
        lines: Line of each value of ``tree`` in the foreign file, by key path in ``tree``.
        keys: Where it stands in the foreign file's own terms, by key path in ``tree``.
        remarks: In the order in which they were found.
        faults: Empty, or the file cannot be used.
        names: Name in the foreign file to the profile name under which it is served.
        ports: Port that ``${PORT}`` stands for, by name in the foreign file.
        tokens: Access tokens that the file asks for.
    """

    tree: Tree = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)
    keys: dict[Path, Path] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)

    def value(self, path: tuple[str, ...]) -> object:
        """What ``tree`` holds at a path; None where nothing does."""
        found: object = self.tree
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def put(self, path: tuple[str, ...], value: object, *, line: int, key: Path) -> None:
        """Set a value of ``tree``, with the place that it comes from.

        What stands where a table of ``path`` has to be gives way: the later word counts.
        """
        table: Tree = self.tree
        for name in path[:-1]:
            below = table.get(name)
            if not isinstance(below, dict):
                below = table[name] = {}
            table = below
        table[path[-1]] = value
        for end in range(1, len(path)):
            self.lines.setdefault(path[:end], line)
        self.lines[path], self.keys[path] = line, key

    def remark(
        self, kind: Kind, line: int, key: Path, message: str, *, setting: tuple[str, ...] = ()
    ) -> None:
        """Tell something."""
        self.remarks.append(
            Remark(kind=kind, line=line, key=key, message=shortened(message), setting=setting)
        )

    def fault(self, line: int, key: Path, message: str) -> None:
        """Refuse the file; the same fault counts once."""
        fault = Fault(line=line, key=key, message=shortened(message))
        if fault not in self.faults:
            self.faults.append(fault)

    def remarks_of(self, file: str) -> tuple[Remark, ...]:
        """The remarks with the file's name, each once, by line."""
        named = dict.fromkeys(replace(one, file=file) for one in self.remarks)
        return tuple(sorted(named, key=lambda one: one.line))


def shortened(message: str) -> str:
    """A message of at most ``MAX_MESSAGE`` characters: the file may hold one long word."""
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."


def as_table(value: object) -> Mapping[str, object]:
    """The value if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)
