"""What starts were measured to take: by what they depend on, and by what runs now. Pure.

A figure belongs to an arm under a fingerprint: another engine binary, model file, context
or driver has another one, so that what was measured before them is void by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.types import LaunchPlan
    from tuner.types import Arm

__all__ = ["Needs"]


class Needs:
    """Bytes that the last start of each arm took; keeps one figure per fingerprint and arm."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, Arm], int] = {}

    def note(self, fingerprint: str, arm: Arm, count: int) -> None:
        """Take in what a start took, in this life of the daemon or an earlier one."""
        self._taken[fingerprint, arm] = count

    def see(self, plan: LaunchPlan, count: int) -> None:
        """Take in what an engine that runs holds now: buffers are counted once they are used."""
        known = self.of(plan.fingerprint, plan.arm)
        self.note(plan.fingerprint, plan.arm, count if known is None else max(known, count))

    def of(self, fingerprint: str, arm: Arm) -> int | None:
        """What an arm took under a fingerprint; None where no start was measured."""
        return self._taken.get((fingerprint, arm))
