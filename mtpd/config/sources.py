"""Reading one file: bounded, and every failure a problem with its place.

A file of llama-swap (``.yaml``, ``.yml``) or of llama.cpp's router (``.ini``) becomes
what the same configuration would be in TOML, with its own lines and keys.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import tomli

from mtpd.config.layers import Problem, Tree
from mtpd.config.locate import dotted, locate
from mtpd.config.model import may_set_for_engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mtpd.access import Token
    from mtpd.compat.remarks import Fault, Import, Remark
    from mtpd.config.layers import Origin
    from mtpd.config.locate import Path as KeyPath

__all__ = [
    "KINDS",
    "MAX_BYTES",
    "Source",
    "find",
    "hint_for",
    "is_foreign",
    "read",
    "read_configuration",
]

_FOREIGN = frozenset({".yaml", ".yml", ".ini"})
"""Suffixes of the files of other programs."""

KINDS = ("hardware", "models", "workloads")
"""The folders of profiles that are read along with a configuration file."""

MAX_BYTES = 256 * 1024
"""Size up to which a configuration file is read; far larger ones take seconds to parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that was read.

    Attributes:
        file: Its path as it is shown.
        folder: Its directory; relative paths in it start there.
        tree: Its values.
        lines: The line of each key path.
        keys: Key paths that the file writes otherwise, in its own terms.
        imported: What a file of another program was translated to; None for TOML.
        problems: What makes a file of another program unusable.
    """

    file: str
    folder: str
    tree: Tree
    lines: Mapping[KeyPath, int]
    keys: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    imported: Import | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What of a file of another program is not taken word for word."""
        return self.imported.remarks_of(self.file) if self.imported is not None else ()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Access tokens that a file of another program asks for."""
        return tuple(self.imported.tokens) if self.imported is not None else ()

    def in_own_terms(self, origins: Mapping[KeyPath, Origin]) -> dict[KeyPath, Origin]:
        """Origins of this file with its own keys instead of TOML's."""
        return {
            path: replace(origin, path=self.keys.get(path, origin.path))
            for path, origin in origins.items()
        }


def is_foreign(path: Path | None) -> bool:
    """Whether a configuration file is one of another program, by its suffix."""
    return path is not None and path.suffix.lower() in _FOREIGN


def hint_for(path: Path | None) -> str:
    """Where the keys of a configuration file are explained."""
    if is_foreign(path):
        return "docs/migrating.md tells what each key of this file becomes"
    return "every key is explained in docs/configuration.md"


_TWICE: Final = re.compile(r"Cannot declare (?P<key>\(.+\)) twice")
"""tomli writes the table's path as a tuple of Python."""


def _told(said: str) -> str:
    """What tomli says; of a table that is declared twice as it is written in the file."""
    twice = _TWICE.fullmatch(said)
    if twice is None:
        return f"not TOML: {said}"
    table = dotted(ast.literal_eval(twice["key"]))
    return f"not TOML: the table [{table}] is declared twice: its keys belong under one heading"


def read(path: Path) -> Source | Problem:
    """Read and parse a TOML file, or say why not."""
    text = _text(path)
    if isinstance(text, Problem):
        return text
    try:
        tree: Tree = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        return Problem(
            file=str(path), line=error.lineno, column=error.colno, message=_told(error.msg)
        )
    except RecursionError:
        return Problem(file=str(path), message="arrays or tables are nested too deeply")
    except ValueError as error:
        # tomli passes on what the standard library thinks of a number or a date.
        return Problem(file=str(path), message=f"not TOML: {error}")
    return Source(file=str(path), folder=str(path.absolute().parent), tree=tree, lines=locate(text))


def read_configuration(path: Path, environment: Mapping[str, str]) -> Source | Problem:
    """Read the configuration file: TOML, or a file of another program by its suffix.

    Args:
        path: The file.
        environment: For ``${env.X}`` in a file of llama-swap.
    """
    if not is_foreign(path):
        return read(path)
    text = _text(path)
    if isinstance(text, Problem):
        return text
    # The readers of other programs' files take 1.6 MB that a daemon with a TOML file does not need.
    from mtpd.compat import llama_swap, preset_ini  # noqa: PLC0415

    if path.suffix.lower() == ".ini":
        imported = preset_ini.translate(text)
    else:
        imported = llama_swap.translate(text, environment=environment, may_set=may_set_for_engine)
    return Source(
        file=str(path),
        folder=str(path.absolute().parent),
        tree=imported.tree,
        lines=imported.lines,
        keys=imported.keys,
        imported=imported,
        problems=tuple(_problem(path, fault) for fault in imported.faults),
    )


def _problem(path: Path, fault: Fault) -> Problem:
    return Problem(
        file=str(path),
        line=fault.line,
        column=fault.column,
        path=dotted(fault.key),
        message=fault.message,
    )


def _text(path: Path) -> str | Problem:
    data = _bytes(path)
    if isinstance(data, Problem):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Problem(file=str(path), line=line, message="is not UTF-8 text")


def _bytes(path: Path) -> bytes | Problem:
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "does not exist"
            return Problem(file=str(path), message=what)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Problem(file=str(path), message=f"cannot be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        return Problem(file=str(path), message=f"is larger than {MAX_BYTES // 1024} KiB")
    return data


def find(places: tuple[Path, ...], kind: str) -> dict[str, Path]:
    """Profiles of a kind ("models", ...) by name; an earlier place wins."""
    found: dict[str, Path] = {}
    for place in places:
        for path in sorted((place / kind).glob("*.toml")):
            found.setdefault(path.stem, path)
    return found
