"""Counts memory for engines that are brought up beside others: needed, free, held.

On a card what the card says and what engines were measured to take comes first, the
forecast second. Without a card it is the memory of the machine that engines share: what the
kernel could give, less the model files that running engines have mapped, which the kernel
counts as free. Covers figures; what follows from them is ``mtpd.proxy.room``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.types import Absent
from mtpd.units import MIB
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.config.live import Configuration
    from mtpd.control.shapes import MemoryPlanner
    from mtpd.gpu.host import HostMemory
    from mtpd.proxy.feasibility import Feasibility
    from mtpd.supervise.keeper import CardKeeper
    from mtpd.types import LaunchPlan, NotApplicable

__all__ = ["MemoryAccount"]


class MemoryAccount:
    """The account of one device.

    Args:
        config: The models, and what must stay free.
        memory: Predicts what a start takes.
        feasible: Which starts are known not to have fitted.
        keeper: The account of the card; None without one.
        host: Reads the memory of the machine; may block.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        memory: MemoryPlanner,
        feasible: Feasibility,
        keeper: CardKeeper | None,
        host: Callable[[], HostMemory],
    ) -> None:
        self._config, self._memory, self._feasible = config, memory, feasible
        self._keeper, self._host = keeper, host

    async def need(self, plan: LaunchPlan) -> int | Absent:
        """Bytes that a start takes at most: as measured, else as predicted.

        More than the room in which it is known not to have fitted, whatever is predicted.
        """
        measured = None if self._keeper is None else self._keeper.measured(plan)
        need = await self._predicted(plan) if measured is None else measured
        if isinstance(need, Absent):
            return need
        short = self._feasible.short_of(plan.fingerprint, plan.arm)
        return need if short is None else max(need, short + 1)

    async def free(self, running: Sequence[LaunchPlan]) -> int | Absent | NotApplicable:
        """Bytes that a start may take now, beside what runs."""
        headroom_bytes = self._config.budget.headroom_mib * MIB
        if self._keeper is None:
            memory = await to_thread.run_sync(self._host)
            mapped_bytes = sum(self._memory.weights_bytes(plan.arm) or 0 for plan in running)
            return memory.budget_bytes - mapped_bytes - headroom_bytes
        free_bytes = await self._keeper.free_now()
        if free_bytes is None:
            return Absent("the card does not say how much of its memory is free")
        return free_bytes - headroom_bytes

    def held(self, plan: LaunchPlan) -> int | Absent:
        """Bytes that a running engine holds: as measured, else as predicted."""
        held = None if self._keeper is None else self._keeper.held(plan.key.profile)
        for known in (held, plan.memory_bytes, self._memory.most_bytes(plan.arm)):
            if known is not None:
                return known
        return Absent("neither measured nor predicted")

    async def _predicted(self, plan: LaunchPlan) -> int | Absent:
        profile = self._config.profiles[plan.arm.profile]
        if profile.opaque is not None:
            if plan.memory_bytes is None:
                return Absent("it is no llama-server, and its profile does not say vram_mib")
            return plan.memory_bytes
        forecast = await self._memory.forecast(profile)
        predicted = forecast.at(plan.arm.depth).predicted
        return Absent(predicted.reason) if isinstance(predicted, Unknown) else predicted.high
