"""How long a machine was suspended between two looks at its clocks.

Pure. ``Clock.slept`` grows by the length of every suspend, and by nothing else. Small growth is
no suspend that anybody has noticed: two clocks are never read at the same moment.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_S", "lasted_s", "length", "sentence"]

LEAST_S: Final = 2.0
"""Seconds that count as a suspend. Shorter ones add up until they do, as long as the first look
is kept."""

_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def lasted_s(before: float, now: float) -> float:
    """Seconds of suspend between two readings of ``Clock.slept``; 0 where there was none."""
    gone_s = now - before
    return gone_s if gone_s > LEAST_S else 0.0


def length(seconds: float) -> str:
    """A length of time in its two largest units, whole ones: ``8 h``, ``1 d 2 h``, ``41 s``.

    The second is the nearest one, since the clocks were not read at the same moment.
    """
    left, parts = max(0, round(seconds)), list[str]()
    for size, unit in _STEPS:
        count, rest = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        left = rest
    return " ".join(one for one in parts[:2] if one) or "0 s"


def sentence(seconds: float) -> str:
    """What is said of it wherever it is said."""
    return f"the machine was suspended for {length(seconds)}"
