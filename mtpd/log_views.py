"""What the control API shows of log lines: plain values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ABOUT", "LogLineView", "LogLinesView", "LogView"]

ABOUT: tuple[str, ...] = (
    "start",
    "residency",
    "speculation",
    "acceptance",
    "request",
    "failure",
    "end",
    "unread",
)
"""What a line of an engine can be evidence of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLineView:
    """One line of the daemon's log or of an engine's.

    Attributes:
        seq: Its number among the lines of all sources in this life of the daemon, from 1.
        at: When the daemon had it, RFC 3339 in UTC.
        source: daemon or engine.
        profile: The engine's model; None for the daemon.
        engine_id: The start of the engine that printed it; None for the daemon.
        level: debug, info, warning, error or critical; None where the line does not say.
        text: The line; a traceback of the daemon has line feeds.
        fact: What it was read as, e.g. ``buffer`` or ``layers_offloaded``; None for a line
            that says nothing to the daemon.
        about: What that is evidence of, one of ``ABOUT``; None without a fact.
    """

    seq: int
    at: str
    source: str
    profile: str | None
    engine_id: str | None
    level: str | None
    text: str
    fact: str | None
    about: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The latest lines.

    Attributes:
        boot: Identifies one life of the daemon; numbers restart with it.
        seq: Number of the latest line of all; 0 before the first.
        lost: Whether lines between the wanted place and the first one here are gone.
        lines: Oldest first.
    """

    boot: str
    seq: int
    lost: bool
    lines: tuple[LogLineView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinesView:
    """The next lines of a stream.

    Attributes:
        lines: Oldest first.
    """

    lines: tuple[LogLineView, ...]
