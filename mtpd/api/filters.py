"""Places and types in the event stream; pure, shared by the stream and ``mtpctl``."""

from __future__ import annotations

__all__ = ["OLDEST", "Position", "format_position", "parse_position", "wants"]

Position = tuple[str, int]
"""A place in the event stream: the daemon's life (boot) and the sequence within it."""

OLDEST = "0"
"""As an event id: begin with the oldest event that is kept."""

_DIGITS = 18  # fits a signed 64-bit integer


def format_position(boot: str, seq: int) -> str:
    """The id of an event."""
    return f"{boot}-{seq}"


def parse_position(text: str) -> Position | None:
    """A place from an event id; None for anything else. The boot of ``OLDEST`` is empty."""
    if text == OLDEST:
        return "", 0
    boot, _, seq = text.rpartition("-")
    if boot and seq.isascii() and seq.isdigit() and len(seq) <= _DIGITS:
        return boot, int(seq)
    return None


def wants(types: str | None, kind: str) -> bool:
    """Whether a filter such as ``decision,engine.transition`` lets a type through.

    The stream's own ``stream.*`` events always pass.
    """
    if types is None or kind.startswith("stream."):
        return True
    names = (name.strip() for name in types.split(","))
    return any(kind == name or kind.startswith(f"{name}.") for name in names if name)
