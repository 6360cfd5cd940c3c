"""A ``cmd`` of llama-swap: its words, and whether it starts a llama-server.

Words are split as llama-swap splits them on POSIX (internal/config/commands.go): lines
that begin with ``#`` are dropped, a backslash at the end of a line is a space.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

__all__ = ["Command", "Opaque", "joined", "read", "without_comments", "word_lines"]

_EMPTY = "is missing or empty: it must be the command that starts the model"

_SERVER = re.compile(r"(?:.*/)?[^/]*llama-server[^/]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A start of llama-server.

    Attributes:
        program: Its name or path.
        words: What follows it.
        environment: Variables from a leading ``env``.
    """

    program: str
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Another program.

    Attributes:
        words: Its name or path, and what follows it.
        environment: Variables from a leading ``env``.
    """

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def read(text: str) -> Command | Opaque | str:
    """Split and classify a command whose macros are replaced; a text says what is wrong."""
    try:
        words = shlex.split(joined(text))
    except ValueError as error:
        return f"cannot be split into words: {error}"
    if not words:
        return _EMPTY
    whole, environment = tuple(words), list[tuple[str, str]]()
    if _base(words[0]) == "env":
        del words[0]
        while words and _VARIABLE.fullmatch(words[0]):
            name, _, value = words.pop(0).partition("=")
            environment.append((name, value))
    if not words:
        return _EMPTY
    if _SERVER.fullmatch(words[0]):
        return Command(words[0], tuple(words[1:]), tuple(environment))
    if words[0].startswith("-"):  # an option of env, which has to be run with it
        return Opaque(whole, ())
    return Opaque(tuple(words), tuple(environment))


def without_comments(text: str) -> str:
    """The text without the lines that begin with ``#``."""
    kept = (line for line in text.split("\n") if not line.strip().startswith("#"))
    return "\n".join(kept)


def word_lines(text: str, first: int) -> dict[str, int]:
    """Line of the first use of each word of a block of text that begins in line ``first``."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=first):
        if not line.strip().startswith("#"):
            for word in line.split():
                lines.setdefault(word, number)
    return lines


def joined(text: str) -> str:
    """The text as one line, without its comments."""
    lines = []
    for line in without_comments(text).split("\n"):
        stripped = line.strip()
        lines.append(f"{stripped[:-1]} " if stripped.endswith("\\") else line)
    return "\n".join(lines)


def _base(program: str) -> str:
    return program.rpartition("/")[2]
