"""Places and types in the event stream; pure, shared by the stream and ``mtpctl``."""

from __future__ import annotations

from mtpd.events import EVENT_TYPES

__all__ = ["OLDEST", "Position", "format_position", "parse_position", "unknown_types", "wants"]

Position = tuple[str, int]
"""A place in the event stream: the daemon's life (boot) and the sequence within it."""

OLDEST = "0"
"""As an event id: begin with the oldest event that is kept."""

STREAM = "stream."
"""How the types of the stream's own events begin."""

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
    if types is None or kind.startswith(STREAM):
        return True
    return any(_covers(name, kind) for name in _names(types))


def unknown_types(types: str | None) -> str | None:
    """The sentence about what in a filter is no event type, or None."""
    strange = [
        name
        for name in _names(types or "")
        if not f"{name}.".startswith(STREAM) and not any(_covers(name, k) for k in EVENT_TYPES)
    ]
    if not strange:
        return None
    what = ", ".join(repr(name[:80]) for name in strange[:3])
    return f"there is no event type {what}; there are {', '.join(EVENT_TYPES)}"


def _names(types: str) -> list[str]:
    return [name for part in types.split(",") if (name := part.strip())]


def _covers(name: str, kind: str) -> bool:
    return kind == name or kind.startswith(f"{name}.")
