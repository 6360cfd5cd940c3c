"""Bytes of a pipe to bounded lines, and the last of them.

Whatever a process prints (binary garbage, a line of 100 MB), the memory used here
stays below a few MiB. Covers text only; facts are read by ``mtpd.engine.logs``.
"""

from __future__ import annotations

import re
from collections import deque

__all__ = ["LINE_BYTES", "Ring", "Splitter"]

LINE_BYTES = 16 * 1024
RING_LINES = 4000
RING_CHARS = 4 * 1024 * 1024

COLOUR = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Splitter:
    """Cuts one stream into lines; what exceeds LINE_BYTES of a line is dropped."""

    def __init__(self) -> None:
        self._held = b""
        self._cut = False

    def feed(self, data: bytes) -> list[str]:
        """Take bytes and return the lines that they complete."""
        first, *others = data.split(b"\n")
        self._hold(first)
        if not others:
            return []
        lines = [self._take()]
        for whole in others[:-1]:  # most lines of a flood come whole
            if len(whole) <= LINE_BYTES:
                lines.append(_text(whole))
            else:
                self._hold(whole)
                lines.append(self._take())
        self._hold(others[-1])
        return lines

    def end(self) -> list[str]:
        """Return what is left of a last line without a line feed."""
        return [self._take()] if self._held else []

    def _hold(self, part: bytes) -> None:
        room = LINE_BYTES - len(self._held)
        self._cut = self._cut or len(part) > room
        self._held += part[:room]

    def _take(self) -> str:
        text = _text(self._held)
        if self._cut:
            text += " [cut]"
        self._held, self._cut = b"", False
        return text


def _text(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace")
    return text if text.isprintable() else UNPRINTABLE.sub("\ufffd", COLOUR.sub("", text))


class Ring:
    """The last lines of a process, bounded in number and in size."""

    def __init__(self, *, lines: int = RING_LINES, chars: int = RING_CHARS) -> None:
        self._lines: deque[str] = deque()
        self._most, self._room = lines, chars
        self.total = 0
        """How many lines there have been, the forgotten ones included."""

    def add(self, line: str) -> None:
        """Add a line and forget the oldest ones that no longer fit."""
        self._lines.append(line)
        self.total += 1
        self._room -= len(line)
        while len(self._lines) > self._most or self._room < 0:
            self._room += len(self._lines.popleft())

    def tail(self, count: int | None = None) -> tuple[str, ...]:
        """The last lines, oldest first; all that are kept without a count."""
        lines = tuple(self._lines)
        return lines if count is None else lines[-count:]
