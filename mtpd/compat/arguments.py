"""A command line of llama-server as the options that it gives.

Reads as llama-server does: ``--under_score`` is ``--under-score``, the last of two equal
options wins, ``--flag=value`` is no spelling. Flags that build b11434 has removed are
translated, which is told as a change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.compat.flag_table import BY_ENV, BY_NAME
from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.compat.flag_table import Flag
    from mtpd.compat.remarks import Import, Path

__all__ = [
    "BUILD",
    "TRUTHY",
    "Option",
    "Source",
    "changed",
    "from_environment",
    "made_option",
    "parse",
    "replacement",
]

BUILD = "b11434"
"""The build of llama.cpp whose flags are known."""

_RENAMED = {
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
    "--draft-n-min": "--spec-draft-n-min",
    "--spec-ngram-size-n": "--spec-ngram-simple-size-n",
    "--spec-ngram-size-m": "--spec-ngram-simple-size-m",
    "--spec-ngram-min-hits": "--spec-ngram-simple-min-hits",
}
_LOAD_MODES = {  # switches that --load-mode has replaced
    "--mmap": "mmap",
    "--no-mmap": "none",
    "--mlock": "mlock",
    "--direct-io": "dio",
    "-dio": "dio",
    "--no-direct-io": "auto",
    "-ndio": "auto",
}
_LOAD_MODES_OFF = {"--mmap": "none", "--no-mmap": "mmap"}
TRUTHY = frozenset({"on", "enabled", "true", "1"})
"""What turns a switch on."""
_FLASH_ATTENTION = frozenset({"-fa", "--flash-attn"})
_FLASH_ATTENTION_VALUES = frozenset(
    {"on", "off", "auto", "enabled", "disabled", "true", "false", "1", "0", "-1"}
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where options are written.

    Attributes:
        key: The key that holds them, in the terms of the file.
        line: Its line.
        lines: Line of a word where the key spans several.
    """

    key: Path
    line: int
    lines: Mapping[str, int]

    def line_of(self, word: str) -> int:
        """The line of a word, else of the key."""
        return self.lines.get(word, self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option that was given.

    Attributes:
        flag: What it is.
        written: How it was spelled.
        value: Its value; several are joined by a space. None for a switch.
        on: Whether a switch is turned on.
        line: Where it is written.
        key: The key that holds it, in the terms of the file.
        change: What is told where llama-server does not take it as it is written in the file.
    """

    flag: Flag
    written: str
    value: str | None
    on: bool = True
    line: int
    key: Path
    change: str | None = None

    @property
    def shown(self) -> str:
        """As it would be typed."""
        return self.written if self.value is None else f"{self.written} {self.value}"


def parse(words: Iterable[str], source: Source, into: Import) -> dict[str, Option]:
    """Read the words after the program's name; the options by ``Flag.key``.

    Args:
        words: The arguments.
        source: Where they are written.
        into: Takes faults and remarks.
    """
    return _Reader(list(words), source, into).options()


class _Reader:
    def __init__(self, words: list[str], source: Source, into: Import) -> None:
        self.words = words
        self.at = 0
        self.source = source
        self.into = into

    def options(self) -> dict[str, Option]:
        found: dict[str, Option] = {}
        while self.at < len(self.words):
            option = self.option(self.take())
            if option is not None:
                found.pop(option.flag.key, None)
                found[option.flag.key] = option
        return found

    def take(self) -> str:
        word = self.words[self.at]
        self.at += 1
        return word

    def option(self, word: str) -> Option | None:
        name = word.replace("_", "-") if word.startswith("--") else word
        if name in _LOAD_MODES:
            return self.made("--load-mode", word, _LOAD_MODES[name], change=True)
        if name in _FLASH_ATTENTION and self.ahead() not in _FLASH_ATTENTION_VALUES:
            return self.made(name, word, "on", change=True)
        renamed = _RENAMED.get(name)
        flag = BY_NAME.get(renamed or name)
        if flag is None:
            self.unknown(word)
            return None
        if self.at + flag.values > len(self.words):
            self.into.fault(*self.place(word), "a value must follow")
            self.at = len(self.words)
            return None
        values = [self.take() for _ in range(flag.values)]
        value = " ".join(values) if values else None
        return self.made(renamed or name, word, value, change=renamed is not None)

    def ahead(self) -> str | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def made(self, name: str, word: str, value: str | None, *, change: bool) -> Option:
        line, key = self.place(word)
        on = name not in BY_NAME[name].off
        option = Option(flag=BY_NAME[name], written=name, value=value, on=on, line=line, key=key)
        if not change:
            return option
        given = word if name in {"--load-mode", word} else f"{word} {value}"
        return replace(option, change=changed(given, option.shown))

    def unknown(self, word: str) -> None:
        """Name it; a word after it that is no flag is taken for its value, and may be a secret."""
        following = self.ahead()
        shown, line = word, self.source.line_of(word)
        if word.startswith("-"):
            name, joined, _ = word.partition("=")
            shown = word = f"{name}=…" if joined else name
            if following is not None and not following.startswith("-"):
                self.take()
                shown = f"{word} …"
        message = f"{shown!r} is no flag of llama-server {BUILD}"
        self.into.remark(Kind.NOT_HONOURED, line, (*self.source.key, word), message)

    def place(self, word: str) -> tuple[int, Path]:
        """Line and key of a word."""
        return self.source.line_of(word), (*self.source.key, word)


def from_environment(
    variables: Mapping[str, tuple[str, int, Path]],
) -> tuple[dict[str, Option], dict[str, tuple[str, int, Path]]]:
    """Split variables into the options that llama-server takes from them, and the rest.

    Args:
        variables: Value, line and key in the file, by name.
    """
    options: dict[str, Option] = {}
    rest: dict[str, tuple[str, int, Path]] = {}
    for name, (value, line, key) in variables.items():
        flag = BY_ENV.get(name)
        if flag is None:
            rest[name] = (value, line, key)
            continue
        options[flag.key] = made_option(flag, name, value, line=line, key=key)
    return options, rest


def made_option(flag: Flag, written: str, value: str, *, line: int, key: Path) -> Option:
    """An option given as name and value, as in the environment or in a preset file.

    A switch takes ``on``, ``enabled``, ``true`` or ``1``, and anything else turns it off;
    where it is written in its negative form, the other way round (common/preset.cpp).
    """
    if flag.values:
        return Option(flag=flag, written=written, value=value, line=line, key=key)
    truthy = value in TRUTHY
    negative = any(spelling.lstrip("-") == written.lstrip("-") for spelling in flag.off)
    return Option(flag=flag, written=written, value=None, on=truthy != negative, line=line, key=key)


def changed(old: str, new: str) -> str:
    """The difference that is shown for an option that is written anew."""
    return f"{old!r} is read as {new!r}: llama-server {BUILD} does not take the former"


def replacement(key: str, value: str) -> tuple[str, str] | None:
    """What stands in a preset file instead of a removed option; None for any other."""
    written = f"--{key}"
    if written in _RENAMED:
        return _RENAMED[written].lstrip("-"), value
    if written in _LOAD_MODES:
        off = _LOAD_MODES_OFF.get(written, "auto")
        return "load-mode", _LOAD_MODES[written] if value in TRUTHY else off
    return None
