"""What a client asks of the daemon itself, in headers: a deadline and a priority; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.proxy.admission_types import Priority

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEADLINE_HEADER", "PRIORITY_HEADER", "BadWish", "Wishes", "wishes"]

DEADLINE_HEADER = "X-Mtpd-Deadline-Ms"
MAX_DEADLINE_MS = 86_400_000
PRIORITY_HEADER = "X-Mtpd-Priority"
PRIORITIES = {priority.name.lower(): priority for priority in Priority}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a request asks for.

    Attributes:
        deadline_s: Seconds within which its answer must begin; infinite without one.
        priority: How urgent it is.
    """

    deadline_s: float = math.inf
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class BadWish:
    """A header that cannot be understood.

    Attributes:
        header: Which.
        message: One sentence for the client.
    """

    header: str
    message: str


def wishes(headers: Mapping[str, str]) -> Wishes | BadWish:
    """Read the headers of a request."""
    deadline_s, priority = math.inf, Priority.NORMAL
    if (asked := headers.get(DEADLINE_HEADER)) is not None:
        milliseconds = _milliseconds(asked)
        if milliseconds is None:
            message = f"{DEADLINE_HEADER} must be whole milliseconds from 1 to {MAX_DEADLINE_MS}"
            return BadWish(DEADLINE_HEADER, message)
        deadline_s = milliseconds / 1000
    if (asked := headers.get(PRIORITY_HEADER)) is not None:
        named = PRIORITIES.get(asked.strip().lower())
        if named is None:
            message = f"{PRIORITY_HEADER} must be one of {', '.join(PRIORITIES)}"
            return BadWish(PRIORITY_HEADER, message)
        priority = named
    return Wishes(deadline_s=deadline_s, priority=priority)


def _milliseconds(asked: str) -> int | None:
    if not (asked.isascii() and asked.isdigit() and len(asked) <= len(str(MAX_DEADLINE_MS))):
        return None
    milliseconds = int(asked)
    return milliseconds if 1 <= milliseconds <= MAX_DEADLINE_MS else None
