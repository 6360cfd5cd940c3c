"""Whether a serving engine still works: it answers a question, or it prints something.

``/health`` is answered by a thread of its own also where inference is dead; ``/slots``
goes through the queue that requests go through. A long prompt keeps that queue busy, but
the log tells of its progress, so silence counts only where both are silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.types import LaunchPlan

__all__ = ["Ask", "Pulse"]


class Ask(Protocol):
    """Puts a question to an engine."""

    async def __call__(self, plan: LaunchPlan) -> bool:
        """Whether it answered; bounded in time, never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """How a serving engine is watched.

    Attributes:
        ask: The question.
        every_s: Seconds between two questions.
        patience_s: Seconds of silence after which the engine counts as hung.
    """

    ask: Ask
    every_s: float = 5.0
    patience_s: float = 30.0

    async def until_lost(
        self, plan: LaunchPlan, *, clock: Clock, printed_at: Callable[[], float]
    ) -> str:
        """Return what is to be said once the engine hangs; until then, go on asking.

        Args:
            plan: Of the engine.
            clock: Measures the silence.
            printed_at: When the engine printed something last.
        """
        answered_at = clock.now()
        while clock.now() - max(answered_at, printed_at()) < self.patience_s:
            await anyio.sleep(self.every_s)
            if await self.ask(plan):
                answered_at = clock.now()
        return f"has neither answered nor printed anything for {self.patience_s:g} s"
