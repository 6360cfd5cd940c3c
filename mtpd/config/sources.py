"""Reading one TOML file: bounded, and every failure a problem with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomli

from mtpd.config.layers import Problem, Tree
from mtpd.config.locate import locate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mtpd.config.locate import Path as KeyPath

__all__ = ["MAX_BYTES", "Source", "find", "read"]

MAX_BYTES = 256 * 1024
"""Size up to which a configuration file is read; far larger ones take seconds to parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A TOML file that was read.

    Attributes:
        file: Its path as it is shown.
        folder: Its directory; relative paths in it start there.
        tree: Its values.
        lines: The line of each key path.
    """

    file: str
    folder: str
    tree: Tree
    lines: Mapping[KeyPath, int]


def read(path: Path) -> Source | Problem:
    """Read and parse a file, or say why not."""
    data = _bytes(path)
    if isinstance(data, Problem):
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Problem(file=str(path), line=line, message="is not UTF-8 text")
    try:
        tree: Tree = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        return Problem(
            file=str(path), line=error.lineno, column=error.colno, message=f"not TOML: {error.msg}"
        )
    except RecursionError:
        return Problem(file=str(path), message="arrays or tables are nested too deeply")
    except ValueError as error:
        # tomli passes on what the standard library thinks of a number or a date.
        return Problem(file=str(path), message=f"not TOML: {error}")
    return Source(file=str(path), folder=str(path.absolute().parent), tree=tree, lines=locate(text))


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
