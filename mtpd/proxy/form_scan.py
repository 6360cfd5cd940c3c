"""Finds the field ``model`` in a multipart form that comes in pieces; pure and bounded.

Only what is needed to route: boundaries, part headers and one short value (RFC 2046
section 5.1, RFC 7578). Bytes of other parts are passed over, never kept.
"""

from __future__ import annotations

import enum
import re
from email.message import Message

__all__ = ["FormScan", "boundary_of"]

MAX_HEAD_BYTES = 16 * 1024
MAX_MODEL_BYTES = 1024

_NAME = re.compile(
    rb'^content-disposition:[^\r\n]*?[;\s]name=(?:"([^"\r\n]*)"|([^\s;"]+))',
    re.IGNORECASE | re.MULTILINE,
)


class _At(enum.Enum):
    BETWEEN = enum.auto()
    EDGE = enum.auto()
    HEAD = enum.auto()
    MODEL = enum.auto()
    END = enum.auto()


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a ``multipart/form-data`` type; None for any other type."""
    message = Message()
    message["Content-Type"] = content_type
    boundary = message.get_boundary()
    if message.get_content_type() != "multipart/form-data" or not boundary:
        return None
    try:
        return boundary.encode("ascii")
    except UnicodeEncodeError:
        return None


class FormScan:
    """Takes the bytes of one form, in any chunking, until it knows the model.

    Attributes:
        model: The value of the field, or None while it was not seen.
        span: Where in the form its bytes begin and end, or None likewise.
        problem: Why the form cannot be read, or None.
    """

    def __init__(self, boundary: bytes) -> None:
        self.model: str | None = None
        self.span: tuple[int, int] | None = None
        self.problem: str | None = None
        self._fed = 0
        self._mark = b"\r\n--" + boundary
        # The first boundary has no line before it; with one it is like the others.
        self._held = bytearray(b"\r\n")
        self._at = _At.BETWEEN

    @property
    def decided(self) -> bool:
        """Whether more bytes would tell nothing more."""
        return self._at is _At.END

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes."""
        self._held += chunk
        self._fed += len(chunk)
        steps = {
            _At.BETWEEN: self._between,
            _At.EDGE: self._edge,
            _At.HEAD: self._head,
            _At.MODEL: self._value,
        }
        while not self.decided and steps[self._at]():
            pass

    def _between(self) -> bool:
        found = self._held.find(self._mark)
        if found < 0:
            del self._held[: max(0, len(self._held) - len(self._mark) + 1)]
            return False
        del self._held[: found + len(self._mark)]
        self._at = _At.EDGE
        return True

    def _edge(self) -> bool:
        """Behind a boundary: the last one ends in "--", padding may follow the others."""
        rest = self._held.lstrip(b" \t")
        if len(rest) < 2:  # noqa: PLR2004 - CRLF or two dashes
            return self._within(MAX_HEAD_BYTES)
        if rest.startswith(b"--"):
            self._at = _At.END
            return False
        # A boundary must end its line; text that only begins like one is part of the data.
        self._at = _At.HEAD if rest.startswith(b"\r\n") else _At.BETWEEN
        self._held = rest
        return True

    def _head(self) -> bool:
        found = self._held.find(b"\r\n\r\n")
        if found < 0:
            return self._within(MAX_HEAD_BYTES)
        head = bytes(self._held[:found])
        # The line end before the next boundary may be the one that ends the head.
        del self._held[: found + 2]
        match = _NAME.search(head)
        name = None if match is None else match[1] if match[1] is not None else match[2]
        self._at = _At.MODEL if name == b"model" else _At.BETWEEN
        return True

    def _value(self) -> bool:
        found = self._held.find(self._mark)
        if found < 0:
            return self._within(MAX_MODEL_BYTES)
        try:
            self.model = self._held[2:found].decode().strip()
            before = self._fed - len(self._held)
            self.span = (before + 2, before + found)
        except UnicodeDecodeError:
            self.problem = "the field 'model' is not UTF-8"
        self._at = _At.END
        return False

    def _within(self, limit: int) -> bool:
        """More is needed; give up where more than a sane client sends is."""
        if len(self._held) > limit + len(self._mark):
            self.problem = "the form cannot be read: a header or the field 'model' is too long"
            self._at = _At.END
        return False
