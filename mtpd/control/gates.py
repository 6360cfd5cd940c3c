"""Conditions of measuring: the card is cool and its power cap is in force.

Without a card neither question arises, which passes; an unknown answer never does.
"""

from __future__ import annotations

from mtpd.types import GateResult
from mtpd.views import GateView

__all__ = ["Gates"]

NO_GPU = "not applicable (no GPU)"


class Gates:
    """Answers for the machine's card."""

    def views(self) -> tuple[GateView, ...]:
        """Every gate as the API shows it."""
        return tuple(
            GateView(name=name, state="not_applicable", reason=NO_GPU)
            for name in ("cooling", "power_cap")
        )

    async def measuring(self) -> GateResult:
        """Whether a measurement may start now."""
        return GateResult(passed=True, reason=NO_GPU)
