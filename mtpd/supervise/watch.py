"""Looks after one serving engine: it answers, it has its card, it keeps its memory.

Each of the three runs until it has something to say, and says it as an event. After a suspend
of the machine it is asked for tokens and its residency is judged anew. Covers the
looking only; what follows is decided in ``machine`` and, about the residency, above it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from mtpd.engine.memory_look import room
from mtpd.engine.residency import Rate, conclude, rejudge
from mtpd.supervise.creep import Creep
from mtpd.supervise.messages import Broken, Condemn, Judged
from mtpd.supervise.states import Cause
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.engine.memory_look import MemoryLook
    from mtpd.supervise.life import Life
    from mtpd.supervise.messages import Event
    from mtpd.supervise.ports import Card, Probe
    from mtpd.supervise.pulse import Pulse
    from mtpd.types import LaunchPlan, Verdict

__all__ = ["Watch", "device_lost", "no_record"]

log = structlog.get_logger()

LOOKS = 3
"""Looks in a row that must agree that the engine has lost memory."""


async def no_record(plan: LaunchPlan) -> float | None:
    """Remember no speed of any arm."""
    del plan
    return None


class Watch:
    """Watches the engines of one slot, one after the other.

    Args:
        probe: Asks an engine whether it can still compute.
        pulse: Asks whether it answers; None to leave that out.
        card: Its memory.
        record: Median tokens per second of an arm under its fingerprint, if known.
        clock: Measures silence.
        post: Takes the events.
        creeps: Told once per start of a slow growth of its memory.
    """

    def __init__(
        self,
        *,
        probe: Probe,
        pulse: Pulse | None,
        card: Card,
        record: Callable[[LaunchPlan], Awaitable[float | None]],
        clock: Clock,
        post: Callable[[Event], None],
        creeps: Callable[[Life, Creep], None],
    ) -> None:
        self._probe, self._pulse, self._card = probe, pulse, card
        self._record, self._clock, self._post = record, clock, post
        self._creeps = creeps

    async def over(self, life: Life, verdict: Verdict, *, printed_at: Callable[[], float]) -> None:
        """Watch until cancelled.

        Args:
            life: The start that serves.
            verdict: Its residency when it became ready.
            printed_at: When it printed something last.
        """
        life.judged = verdict
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._device, life)
            if life.ready is not None:
                tasks.start_soon(self._memory, life, life.ready, verdict)
            if self._pulse is not None:
                tasks.start_soon(self._again, life, self._pulse.woken)
                reason = await self._pulse.until_lost(
                    life.plan, clock=self._clock, printed_at=printed_at
                )
                self._post(Condemn(now=self._clock.now(), reason=reason))

    async def _device(self, life: Life) -> None:
        """A log line says that the card is lost, ``/health`` does not know; ask for tokens.

        A line can quote a prompt, so it is only believed when a completion fails, too.
        """
        while True:
            await life.lost.wait()
            line = life.lost_line
            if await self._probe.fails(life.plan):
                now = self._clock.now()
                self._post(Broken(start=life.start, now=now, cause=device_lost(line)))
                return
            log.warning("engine.device_lost_denied", engine=life.engine_id, line=line)
            life.lost = anyio.Event()

    async def _again(self, life: Life, woken: Callable[[int], Awaitable[int]]) -> None:
        """A card may come back from a suspend without its memory; ``/health`` does not know.

        An answer that is merely late is the pulse's business, and memory that is gone that of
        ``_memory``; another program is asked nothing. Who serves as before is judged so again.
        """
        seen = await woken(-1)
        while True:
            seen = await woken(seen)
            if life.plan.opaque is None and await self._probe.fails(life.plan):
                self._post(Broken(start=life.start, now=self._clock.now(), cause=_WOKE_BROKEN))
                return
            await self._as_before(life)

    async def _as_before(self, life: Life) -> None:
        """Judge it as before once all its memory is there, which a card moves back by and by."""
        verdict, ready = life.judged, life.ready
        while verdict is not None:
            now = None if ready is None else await self._card.following(life.engine_id, life.pid)
            if life.judged is not verdict:
                return  # memory that does not come back was told of meanwhile
            if ready is None or now is None or rejudge(verdict, ready=ready, now=now) is verdict:
                self._post(Judged(start=life.start, verdict=verdict))
                return

    async def _memory(self, life: Life, ready: MemoryLook, verdict: Verdict) -> None:
        """Judge again with every look at the card; only what is worse three times counts."""
        record_tps = await self._record(life.plan)
        creep, row = Creep(), 0
        while True:
            now = await self._card.following(life.engine_id, life.pid)
            if now is None:
                return
            found = rejudge(self._by_speed(life, verdict, record_tps), ready=ready, now=now)
            row = row + 1 if found.label != verdict.label else 0
            if row >= LOOKS:
                verdict, row = replace(found, room_bytes=room(life.before, now)), 0
                life.judged = verdict
                self._post(Judged(start=life.start, verdict=verdict))
            if creep.add(now):
                self._creeps(life, creep)

    @staticmethod
    def _by_speed(life: Life, verdict: Verdict, record_tps: float | None) -> Verdict:
        """The verdict on the load with the speed of the latest replies as one more witness."""
        tps = life.decode_tps
        if tps is None or record_tps is None or life.witnesses is None:
            return verdict
        rate = Rate(tps=tps, record_tps=record_tps)
        found = conclude(replace(life.witnesses, rate=rate))
        return found if verdict.passes else verdict


_WOKE_BROKEN: Final = Cause(
    failure=FailureClass.DEVICE_LOST,
    reason="since the machine was suspended, the engine answers errors only",
    hint="look for amdgpu in the kernel log; the model is loaded again",
)


def device_lost(line: str) -> Cause:
    """The cause where the engine lives on without its card."""
    return Cause(
        failure=FailureClass.DEVICE_LOST,
        reason=f"the GPU was lost, and the engine answers errors only: {line}",
        hint="look for a GPU reset in the kernel log; a longer amdgpu.lockup_timeout may help",
    )
