"""Keeps the account of the machine's memory where engines run without a card.

Covers what engines hold of their own: their private and shared pages. The pages of a mapped
model file are no process's own, the kernel counts them as free; whoever adds up has to add
them (``mtpd.control.account``). Refuses nothing and waits for nothing: what a process held is
free when the process is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.supervise.identity import pids_of
from mtpd.supervise.ports import NoCard
from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mtpd.engine.memory_look import MemoryLook
    from mtpd.gpu.host import HostMemory
    from mtpd.supervise.needs import Needs
    from mtpd.supervise.states import Cause
    from mtpd.types import LaunchPlan, ProcessMemory
    from mtpd.units import EngineId

__all__ = ["HostKeeper"]


@dataclass(slots=True)
class _Start:
    """One engine of ours.

    Attributes:
        plan: What was started.
        held_bytes: What it was seen to hold last; None before it was loaded.
    """

    plan: LaunchPlan
    held_bytes: int | None = None


class HostKeeper(NoCard):
    """The account of the machine's memory; every supervisor without a card shares it.

    Programs that are no llama-server are not measured: what they start may run elsewhere, in
    a container, and what is left would pass for all of it.

    Args:
        needs: Takes what starts were measured to take.
        memory: Memory of the machine now; may block.
        processes: What processes hold of their own; may block.
        pids: The processes of an engine start, by its id; may block.
    """

    def __init__(
        self,
        needs: Needs,
        *,
        memory: Callable[[], HostMemory],
        processes: Callable[[Collection[int]], tuple[ProcessMemory, ...] | Absent],
        pids: Callable[[EngineId], tuple[int, ...]] = pids_of,
    ) -> None:
        self._needs, self._memory = needs, memory
        self._processes, self._pids = processes, pids
        self._starts: dict[EngineId, _Start] = {}

    def held(self, profile: str) -> int | None:
        """What the engine of a profile holds of its own; None where that was not measured."""
        for start in self._starts.values():
            if start.plan.arm.profile == profile and start.held_bytes is not None:
                return start.held_bytes
        return None

    async def memory_now(self) -> HostMemory:
        """Memory of the machine, together with what every loaded engine holds of it."""
        for engine_id, start in tuple(self._starts.items()):
            if start.held_bytes is not None:
                await self._measure(engine_id, start)
        return await to_thread.run_sync(self._memory)

    async def admit(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook | None:
        """Admit everything."""
        if plan.opaque is None:
            self._starts[engine_id] = _Start(plan)
        return None

    def withdrawn(self, engine_id: EngineId) -> None:
        """Keep no account of it any more."""
        self._starts.pop(engine_id, None)

    async def look(self, engine_id: EngineId, pid: int) -> MemoryLook | None:
        """Measure what it holds, now that it is loaded; of a card there is nothing to see."""
        del pid  # its id finds every process of it
        if (start := self._starts.get(engine_id)) is not None:
            await self._measure(engine_id, start)
        return None

    def took(self, engine_id: EngineId) -> int | None:
        """What a start was measured to take of its own; None where that was not possible."""
        start = self._starts.get(engine_id)
        return None if start is None else start.held_bytes

    async def released(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> Cause | None:
        """Wait for nothing: its memory is back."""
        del pid, before, reset
        self.withdrawn(engine_id)
        return None

    async def _measure(self, engine_id: EngineId, start: _Start) -> None:
        count = await to_thread.run_sync(partial(self._own_bytes, engine_id))
        if count is not None:
            start.held_bytes = count
            self._needs.see(start.plan, count)

    def _own_bytes(self, engine_id: EngineId) -> int | None:
        """The sum over its processes; None where one cannot be read, or none is left."""
        found = self._processes(self._pids(engine_id))
        if isinstance(found, Absent) or not found:
            return None
        counts = [one.vram_bytes for one in found]
        known = [one.value for one in counts if isinstance(one, Value)]
        return sum(known) if len(known) == len(counts) else None
