"""Whether a serving engine still works: it answers a question, or it prints something.

``/health`` is answered by a thread of its own also where inference is dead; ``/slots``
goes through the queue that requests go through, which answers between two batches of a
prompt. A batch may take long on a slow card, so a question is given all the patience
there is: with 2048 tokens a batch and 120 s, only a prompt slower than 17 tokens per
second would be taken for a hang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio

from mtpd.suspend import lasted_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.types import LaunchPlan

__all__ = ["Ask", "Pulse"]


class Ask(Protocol):
    """Puts a question to an engine."""

    async def __call__(self, plan: LaunchPlan) -> bool:
        """Whether it answered; waits as long as it is let, and never raises."""


async def never_suspended(after: int) -> int:
    """Wait for ever for the first suspend."""
    if after >= 0:
        await anyio.sleep_forever()
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """How a serving engine is watched.

    Attributes:
        ask: The question.
        every_s: Seconds between two questions.
        patience_s: Seconds of silence after which the engine counts as hung.
        last_s: Seconds in which it must answer one last question then. The silence may be
            the daemon's own: a process that stood still has asked nothing meanwhile.
        woken: Returns once the machine has been suspended more often than that, and is awake:
            how often it was.
    """

    ask: Ask
    every_s: float = 5.0
    patience_s: float = 120.0
    last_s: float = 5.0
    woken: Callable[[int], Awaitable[int]] = never_suspended

    async def until_lost(
        self, plan: LaunchPlan, *, clock: Clock, printed_at: Callable[[], float]
    ) -> str:
        """Return what is to be said once the engine hangs; until then, go on asking.

        Args:
            plan: Of the engine.
            clock: Measures the silence.
            printed_at: When the engine printed something last.
        """
        answered_at, slept = clock.now(), clock.slept()
        while True:
            while clock.now() - max(answered_at, printed_at()) < self.patience_s:
                await anyio.sleep(self.every_s)
                answers = await self._answers(plan, self.patience_s)
                if lasted_s(slept, now := clock.slept()):
                    answers, slept = True, now  # a card that wakes up is given all the patience
                if answers:
                    answered_at = clock.now()
            if not await self._answers(plan, self.last_s):
                return f"has neither answered nor printed anything for {self.patience_s:g} s"
            answered_at = clock.now()

    async def _answers(self, plan: LaunchPlan, within_s: float) -> bool:
        with anyio.move_on_after(within_s):
            return await self.ask(plan)
        return False
