"""Whether one start serves, and where its model lies: a verdict, or why it must not serve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from mtpd.errors import MtpdError
from mtpd.supervise.starter import cause_of
from mtpd.supervise.watch import device_lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.supervise.life import Life
    from mtpd.supervise.ports import Card, Probe
    from mtpd.supervise.states import Cause
    from mtpd.types import Verdict

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """Asks an engine, and then looks at the card.

    Attributes:
        probe: Asks over the engine's endpoint.
        card: Where its memory is.
    """

    probe: Probe
    card: Card

    async def outcome(self, life: Life, on_healthy: Callable[[], None]) -> Verdict | Cause:
        """Wait until it can be said, or until cancelled.

        Args:
            life: The start; one that is refused ends the wait at once.
            on_healthy: Called when the health check says ok.
        """
        found: Verdict | Cause | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when, life.refused, tasks.cancel_scope)
            found = await self._asked(life, on_healthy)
            tasks.cancel_scope.cancel()
        return life.refusal if found is None or life.refused.is_set() else found

    async def _asked(self, life: Life, on_healthy: Callable[[], None]) -> Verdict | Cause:
        try:
            speculates = await self.probe.check(
                life.plan, pid=life.pid, listening=life.listening, on_healthy=on_healthy
            )
        except MtpdError as error:
            return device_lost(life.lost_line) if life.lost.is_set() else cause_of(error)
        now = await self.card.look(life.engine_id, life.pid)
        verdict = life.judge(now, speculates=speculates)
        return life.without_gpu or replace(verdict, taken_bytes=self.card.took(life.engine_id))


async def _end_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
