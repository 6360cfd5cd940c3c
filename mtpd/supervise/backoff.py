"""When a failed start may be tried again: delays, the breaker, one retry per kind.

Covers arithmetic over remembered failures. Which failure class follows which rule
is decided in ``machine``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["HEALTHY_S", "Memory", "breaker", "delay_s", "remember"]

FIRST_S = 0.5
LONGEST_S = 60.0
JITTER = 0.2
HEALTHY_S = 600.0
"""An engine that served this long has earned a clean slate."""

LIMITS = ((60.0, 5), (600.0, 10))
"""Windows in seconds, and the failures within each that are still tolerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of earlier failures.

    Attributes:
        failures: When they happened, oldest first; only as many as the breaker needs.
        streak: How many in a row.
        vram_retries: Starts repeated because the device was out of memory.
    """

    failures: tuple[float, ...] = ()
    streak: int = 0
    vram_retries: int = 0


def remember(memory: Memory, now: float) -> Memory:
    """Add a failure."""
    keep = max(count for _, count in LIMITS)
    failures = (*memory.failures[-keep:], now)
    return replace(memory, failures=failures, streak=memory.streak + 1)


def breaker(memory: Memory, now: float) -> str | None:
    """Say why no further start is made, or None while one may be made."""
    for window_s, tolerated in LIMITS:
        count = sum(1 for at in memory.failures if now - at <= window_s)
        if count > tolerated:
            return f"{count} failures within {window_s:.0f} s"
    return None


def delay_s(streak: int, jitter: float) -> float:
    """Seconds before the next attempt after ``streak`` failures in a row.

    Doubles from 0.5 s to 60 s; ``jitter`` in [0, 1) moves it by up to 20 % either way.
    """
    doublings = min(streak - 1, 16)  # 2**16 is far beyond the limit already
    base = min(FIRST_S * 2.0**doublings, LONGEST_S)
    return base * (1.0 + JITTER * (2.0 * jitter - 1.0))
