"""Named points at which a test may make the daemon fail.

Production code calls ``faults.hit("ledger.after_commit")`` at each place where a
crash or an error would be worst. Outside tests every point does nothing.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Faults", "NoFaults"]


class Faults(Protocol):
    """What to do when a named point is reached."""

    def hit(self, point: str) -> None:
        """Return, raise, or end the process."""


class NoFaults:
    """No point ever fails."""

    def hit(self, point: str) -> None:
        """Return."""
