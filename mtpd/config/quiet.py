"""When files that are being saved have come to rest: a look at them, one after the other. Pure.

Ten saves in two seconds are one change: it is told once nothing has moved for the quiet
period. A file that is written in place is read whole for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["Look", "look"]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen last.

    Attributes:
        stamp: Of all files.
        moved_at: When they were last seen to move, None where that has been told.
    """

    stamp: Hashable
    moved_at: float | None = None


def look(before: Look, stamp: Hashable, now: float, *, quiet_s: float) -> tuple[Look, bool]:
    """Take in the present stamp; whether a change has come to rest with it."""
    if stamp != before.stamp:
        return Look(stamp, now), False
    if before.moved_at is None or now - before.moved_at < quiet_s:
        return before, False
    return replace(before, moved_at=None), True
