"""How many tokens are asked for per second, idle times included, with forgetting.

What a switch saves grows with the tokens that are still to come; those of the last hours
are the best that is known of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Demand"]

HALF_S: Final = 8 * 3600.0
"""Seconds after which what was asked for counts half."""

LEAST_S: Final = 600.0
"""Least time that tokens are spread over: a first burst is no habit."""

LONGEST_S: Final = 3600.0
"""Longest time without a look that counts as watched; more is a machine that was off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Decayed sums; a value, every look makes a new one.

    Attributes:
        tokens: Tokens generated.
        seconds: Time watched.
        at_s: The caller's time at the last look; None before the first.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    at_s: float | None = None

    def look(self, at_s: float, tokens: int = 0) -> Demand:
        """The demand as of now, after so many more tokens; a clock set back stands still."""
        passed = 0.0 if self.at_s is None else min(max(at_s - self.at_s, 0.0), LONGEST_S)
        keep = 0.5 ** (passed / HALF_S)
        return Demand(
            tokens=self.tokens * keep + tokens, seconds=self.seconds * keep + passed, at_s=at_s
        )

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second to be expected over the next hours."""
        return self.tokens / max(self.seconds, LEAST_S)
