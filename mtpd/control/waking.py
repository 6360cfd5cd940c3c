"""Notices that the machine was suspended, and says so once.

``Clock.now`` stands still while a machine sleeps, so no timer runs out and no engine seems
silent; but the card may have lost its memory and its power cap, and nobody knows what a
measurement measured. Covers noticing. What follows belongs to whoever hears of it
(docs/time.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio.lowlevel import checkpoint_if_cancelled

from mtpd import suspend
from mtpd.events import MachineResumed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.events import Event

__all__ = ["MEASURING", "Waking"]

log = structlog.get_logger()

LOOK_S: Final = 1.0
"""Seconds between two looks."""

MEASURING: Final = frozenset({"tune", "sweep", "probe", "perplexity", "bench"})
"""Operations that a suspend ends: what they measured while the machine slept is not known."""


class Waking:
    """Looks at the clocks.

    Args:
        clock: Says how long the machine has slept.
        publish: Takes the event.
        sleep: Waits between two looks.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        publish: Callable[[Event], object],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._clock, self._publish, self._sleep = clock, publish, sleep
        self._slept = clock.slept()
        self._woken, self._count = anyio.Event(), 0

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await self._sleep(LOOK_S)

    def look(self) -> None:
        """Look now; what follows from a suspend has been told when this returns."""
        lasted_s = suspend.lasted_s(self._slept, slept := self._clock.slept())
        if not lasted_s:
            return
        self._slept = slept
        reason = suspend.sentence(lasted_s)
        log.warning("machine.resumed", suspended_s=round(lasted_s, 1), reason=reason)
        self._publish(MachineResumed(suspended_s=round(lasted_s, 3), reason=reason))
        self._count += 1
        self._woken.set()
        self._woken = anyio.Event()

    async def woken(self, after: int) -> int:
        """Wait until more suspends than these were told of; how many it were by now."""
        while self._count <= after:
            await self._woken.wait()
        return self._count

    async def awake(self) -> None:
        """Look now, and end here if the operation that calls this is to end for it."""
        self.look()
        await checkpoint_if_cancelled()
