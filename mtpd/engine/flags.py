"""What a llama-server binary can do, read from its ``--help``.

Version numbers of builds say nothing reliable, so features are decided by the flags
that a binary lists. Does not run anything: the text comes from ``mtpd.engine.binary``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["can_listen_on_unix_socket", "parse_help"]

_ENTRY = re.compile(r"(?P<names>--?[A-Za-z][\w.-]*(?:, +--?[A-Za-z][\w.-]*)*)(?P<rest>.*)")
# Entries that --help still lists although passing them ends the engine with an error.
_REMOVED = "argument has been removed"


def parse_help(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Read the spellings that may be passed, and the values of ``--spec-type``.

    Never raises; a text that is no help gives two empty sets. A flag that is listed as
    removed is left out.
    """
    flags: set[str] = set()
    types: set[str] = set()
    for names, description in _entries(text):
        if _REMOVED in description:
            continue
        flags |= names
        if "--spec-type" in names:
            choices = description.split(maxsplit=1)[:1]
            types |= {word for word in re.split(r"[{}\[\]|,]", "".join(choices)) if word}
    return frozenset(flags), frozenset(types)


def can_listen_on_unix_socket(text: str) -> bool:
    """Whether ``--host`` takes the path of a unix socket, by its own description."""
    return any(
        "--host" in names and "unix" in description.lower() and ".sock" in description
        for names, description in _entries(text)
    )


def _entries(text: str) -> Iterator[tuple[frozenset[str], str]]:
    """Each option's spellings, and what follows them up to the next option as one line."""
    names: frozenset[str] = frozenset()
    words: list[str] = []
    for line in text.splitlines():
        match = _ENTRY.match(line)
        if match is None:
            words += line.split()
            continue
        yield names, " ".join(words)
        names = frozenset(re.split(r", +", match["names"]))
        words = match["rest"].split()
    yield names, " ".join(words)
