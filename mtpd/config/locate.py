"""Where a key of a TOML document stands: key path -> line.

tomli gives values without positions; this scanner gives positions without values.
It expects a document that tomli accepted, and for any other text it stops early
rather than raise. It does not check anything.
"""

from __future__ import annotations

import contextlib
import json
import re

__all__ = ["Path", "dotted", "locate", "parse_key"]

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|.)")
_SHORT_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}
_MAX_DEPTH = 100


class _Stop(Exception):  # noqa: N818 - a signal inside this module, not an error
    """The text is not TOML from here on."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.array_sizes: dict[Path, int] = {}
        self._line = 1
        self._counted = 0

    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> None:
        if not self.peek(token):
            raise _Stop
        self.at += len(token)

    def note(self, path: Path, line: int) -> None:
        """Record a path and the parents it creates; the first mention counts."""
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def document(self) -> None:
        table: Path = ()
        while True:
            self.skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.peek("["):
                table = self.header()
            else:
                self.pair(table, 0)

    def header(self) -> Path:
        line = self.line()
        double = self.peek("[[")
        self.take("[[" if double else "[")
        keys = self.key()
        self.skip(_SPACE)
        self.take("]]" if double else "]")
        path = self.resolve(keys[:-1] if double else keys)
        if double:
            array = (*path, keys[-1])
            number = self.array_sizes.get(array, 0)
            self.array_sizes[array] = number + 1
            path = (*array, number)
        self.note(path, line)
        self.lines[path] = line  # an explicit header beats an earlier implicit mention
        return path

    def resolve(self, keys: tuple[str, ...]) -> Path:
        """Header keys to a path: an array of tables means its last element."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self.array_sizes:
                path = (*path, self.array_sizes[path] - 1)
        return path

    def key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self.skip(_SPACE)
            parts.append(self.simple_key())
            self.skip(_SPACE)
            if not self.peek("."):
                return tuple(parts)
            self.take(".")

    def simple_key(self) -> str:
        if self.peek('"') or self.peek("'"):
            return self.string()
        match = _BARE.match(self.text, self.at)
        if match is None:
            raise _Stop
        self.at = match.end()
        return match.group()

    def string(self) -> str:
        """A one-line string at the cursor, decoded."""
        quote = self.text[self.at]
        start = self.at
        self.at += 1
        while not self.peek(quote):
            if self.at >= len(self.text) or self.text[self.at] == "\n":
                raise _Stop
            self.at += 2 if quote == '"' and self.peek("\\") else 1
        self.at += 1
        raw = self.text[start : self.at]
        return raw[1:-1] if quote == "'" else _unescape(raw[1:-1])

    def long_string(self) -> None:
        quotes = self.text[self.at : self.at + 3]
        self.at += 3
        while not self.peek(quotes):
            if self.at >= len(self.text):
                raise _Stop
            self.at += 2 if quotes == '"""' and self.peek("\\") else 1
        self.at += 3
        # A long string may end in up to two quotes of its own.
        for _ in range(2):
            if self.peek(quotes[0]):
                self.at += 1

    def pair(self, table: Path, depth: int) -> None:
        line = self.line()
        keys = self.key()
        self.take("=")
        path = (*table, *keys)
        self.note(path, line)
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Stop
        self.skip(_SPACE)
        if self.peek('"""') or self.peek("'''"):
            self.long_string()
        elif self.peek('"') or self.peek("'"):
            self.string()
        elif self.peek("["):
            self.array(path, depth)
        elif self.peek("{"):
            self.inline_table(path, depth)
        else:
            match = _SCALAR.match(self.text, self.at)
            if match is None:
                raise _Stop
            self.at = match.end()

    def array(self, path: Path, depth: int) -> None:
        self.take("[")
        number = 0
        while True:
            self.skip(_BLANK)
            if self.peek("]"):
                break
            self.note((*path, number), self.line())
            self.value((*path, number), depth + 1)
            number += 1
            self.skip(_BLANK)
            if self.peek(","):
                self.take(",")
        self.take("]")

    def inline_table(self, path: Path, depth: int) -> None:
        self.take("{")
        while True:
            self.skip(_BLANK)
            if self.peek("}"):
                break
            self.pair(path, depth + 1)
            self.skip(_BLANK)
            if self.peek(","):
                self.take(",")
        self.take("}")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) == 1:
        return _SHORT_ESCAPES.get(escape, escape)
    try:
        return chr(int(escape[1:], 16))
    except (ValueError, OverflowError):
        return escape


def locate(text: str) -> dict[Path, int]:
    """Map every key path of a TOML document to its 1-based line; never raises.

    Elements of arrays are paths with their index; for an array of tables the line is
    the one of its ``[[header]]``.
    """
    scanner = _Scanner(text)
    with contextlib.suppress(_Stop, IndexError):
        scanner.document()
    return scanner.lines


def parse_key(text: str) -> tuple[str, ...] | None:
    """Split a dotted key as TOML would, e.g. ``models."a.b".context``; None if malformed."""
    scanner = _Scanner(text)
    try:
        keys = scanner.key()
    except (_Stop, IndexError):
        return None
    return keys if scanner.at == len(text) else None


def dotted(path: Path) -> str:
    """Write a path as a user would type it; quotes only where TOML needs them."""
    return ".".join(
        part
        if isinstance(part, str) and _BARE.fullmatch(part)
        else json.dumps(part, ensure_ascii=False)
        for part in path
    )
