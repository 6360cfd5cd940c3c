"""Counts memory for engines that are brought up beside others: needed, free, held.

What engines were measured to take comes first, the forecast second, what a profile declares
last. On a card the card says what is free. Without one it is the memory of the machine that
engines share: what the kernel could give, less the model files that running engines have
mapped, which the kernel counts as free; what an engine takes is then its own and its file.
Covers figures; what follows from them is ``mtpd.proxy.room``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.proxy.room import Need, Source
from mtpd.types import Absent
from mtpd.units import MIB
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.shapes import MemoryPlanner
    from mtpd.proxy.feasibility import Feasibility
    from mtpd.supervise.host_keeper import HostKeeper
    from mtpd.supervise.keeper import CardKeeper
    from mtpd.supervise.needs import Needs
    from mtpd.types import LaunchPlan, NotApplicable
    from tuner.memory import Predicted
    from tuner.types import Arm

__all__ = ["MemoryAccount"]

_NOBODY = "it is no llama-server, its profile does not say vram_mib, and no start was measured"


class MemoryAccount:
    """The account of one device.

    Args:
        config: The models, and what must stay free.
        memory: Predicts what a start takes.
        needs: What starts were measured to take.
        feasible: Which starts are known not to have fitted.
        card: The account of the card; None without one.
        host: The account of the machine's memory.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        memory: MemoryPlanner,
        needs: Needs,
        feasible: Feasibility,
        card: CardKeeper | None,
        host: HostKeeper,
    ) -> None:
        self._config, self._memory, self._needs = config, memory, needs
        self._feasible, self._card, self._host = feasible, card, host

    async def need(self, plan: LaunchPlan) -> Need | Absent:
        """What a start takes at most."""
        return await self.need_of(plan.arm, plan.fingerprint)

    async def need_of(self, arm: Arm, fingerprint: str) -> Need | Absent:
        """What an arm takes at most: as measured, as predicted, or as declared.

        More than the room in which it is known not to have fitted, whatever else is said.
        """
        profile = self._config.profiles.get(arm.profile)
        if profile is None or not profile.allows(arm):
            return Absent(f"{arm} is not in the configuration any more")
        forecast = await self._memory.forecast(profile)
        need = self._known(arm, fingerprint)
        if need is None:
            return _unknown(profile, forecast.at(arm.depth).predicted)
        short = self._feasible.short_of(fingerprint, arm)
        return need if short is None or need.count > short else Need(short + 1, Source.MISFIT)

    async def free(self, running: Sequence[LaunchPlan]) -> int | Absent | NotApplicable:
        """Bytes that a start may take now, beside what runs."""
        headroom_bytes = self._config.budget.headroom_mib * MIB
        if self._card is None:
            for plan in running:
                await self._memory.read(plan.arm)
            memory = await self._host.memory_now()
            mapped_bytes = sum(self._memory.weights_bytes(plan.arm) for plan in running)
            return memory.budget_bytes - mapped_bytes - headroom_bytes
        free_bytes = await self._card.free_now()
        if free_bytes is None:
            return Absent("the card does not say how much of its memory is free")
        return free_bytes - headroom_bytes

    def held(self, plan: LaunchPlan) -> Need | Absent:
        """What a running engine holds."""
        return self.held_by(plan.arm, plan.fingerprint)

    def held_by(self, arm: Arm, fingerprint: str) -> Need | Absent:
        """What an engine that runs holds: as measured now, else as known before its start."""
        keeper = self._host if self._card is None else self._card
        held = keeper.held(arm.profile)
        known = self._known(arm, fingerprint) if held is None else self._measured(arm, held)
        return Absent("neither measured nor predicted nor declared") if known is None else known

    def _known(self, arm: Arm, fingerprint: str) -> Need | None:
        """The best figure that there is without reading a file."""
        taken = self._needs.of(fingerprint, arm)
        if taken is not None:
            return self._measured(arm, taken)
        if (most := self._memory.most_bytes(arm)) is not None:
            return Need(most, Source.FORECAST)
        bound = self._memory.bound(arm)
        if not isinstance(bound, Unknown):
            return Need(bound.total, Source.BOUND)
        profile = self._config.profiles.get(arm.profile)
        declared = None if profile is None else profile.vram_mib
        return None if declared is None else Need(declared * MIB, Source.DECLARED)

    def _measured(self, arm: Arm, own_bytes: int) -> Need:
        """What is an engine's own, without a card together with the file that it maps."""
        mapped_bytes = self._memory.weights_bytes(arm) if self._card is None else 0
        return Need(own_bytes + mapped_bytes, Source.MEASURED)


def _unknown(profile: Profile, predicted: Predicted | Unknown) -> Absent:
    """Why nothing is known."""
    if profile.opaque is not None:
        return Absent(_NOBODY)
    if isinstance(predicted, Unknown):
        return Absent(predicted.reason)
    return Absent("its model file was just replaced")
