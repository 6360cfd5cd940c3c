"""What is known of where models lie: from the ledger, of a card, and of an arm's own speed.

Covers the memory of arms that do not fit across lives of the daemon, the choice that
follows from it, and what supervisors need of the card. The verdicts are
``mtpd.engine.residency``'s, the reaction is ``mtpd.proxy.changes``'s.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from mtpd.control.account import MemoryAccount
from mtpd.errors import MtpdError, NotFoundError
from mtpd.gpu.host import HostProvider
from mtpd.proxy.feasibility import Feasibility
from mtpd.store.samples import MeasurementFilter
from mtpd.supervise.host_keeper import HostKeeper
from mtpd.supervise.keeper import CardKeeper
from mtpd.supervise.needs import Needs
from mtpd.types import Verdict
from mtpd.units import HOST, MIB
from tuner.types import Evicted, Host, Resident, Spilled, Unknown, passes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.shapes import MemoryPlanner
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.gpu.card import Card
    from mtpd.gpu.sampler import Sampler
    from mtpd.proxy.seats import Seating
    from mtpd.store.ledger import Ledger, LedgerRow
    from mtpd.store.samples import Measurements
    from mtpd.types import Absent, LaunchPlan, ProcessMemory
    from tuner.types import Arm, Residency

__all__ = ["Residencies"]


class Residencies:
    """Which arms fit, for everybody who starts or chooses one.

    Args:
        config: The models.
        planner: Plans starts; its fingerprints name what a verdict belongs to.
        memory: Predicts what a start takes.
        seating: Which engines may run at once.
        card: Where engines run.
        sampler: Reads it.
        clock: Measures waits.

    Attributes:
        feasible: Verdicts by fingerprint and arm.
        needs: What starts were measured to take.
        keeper: The account of the card's memory; None without a card.
        host: The account of the machine's memory.
        account: What engines need and hold, and what is free.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        planner: LaunchPlanner,
        memory: MemoryPlanner,
        seating: Seating,
        measurements: Measurements,
        card: Card,
        sampler: Sampler,
        clock: Clock,
    ) -> None:
        self._config, self._planner, self._memory = config, planner, memory
        self._measurements, self._seating = measurements, seating
        self._device, self.needs, machine = card.key, Needs(), HostProvider()
        self.keeper = CardKeeper(sampler, clock=clock, needs=self.needs) if card.is_gpu else None
        self.host = HostKeeper(self.needs, memory=machine.memory, processes=partial(_own, machine))
        self.feasible = Feasibility(self._room_bytes, self._free_bytes)
        self.account = MemoryAccount(
            config=config,
            memory=memory,
            needs=self.needs,
            feasible=self.feasible,
            card=self.keeper,
            host=self.host,
        )

    async def restore(self, ledger: Ledger) -> None:
        """Take over what earlier lives of the daemon found, and what can be predicted."""
        for row in await ledger.judged_arms():
            self.feasible.note(row.fingerprint, row.arm, _verdict(row))
        for row in await ledger.measured_arms():
            if row.taken_bytes is not None and row.device == self._device:
                self.needs.note(row.fingerprint, row.arm, row.taken_bytes)
        if self.keeper is not None:
            for profile in self._config.profiles.values():
                await self._memory.forecast(profile)

    async def learn(self, names: Iterable[str]) -> None:
        """Forecast models that were configured anew, or otherwise than before."""
        for name in names:
            self._memory.forget(name)
            if self.keeper is not None:
                await self._memory.forecast(self._config.profiles[name])

    def plan(self, arm: Arm) -> LaunchPlan:
        """Plan a start, with the memory that it takes at most.

        Raises:
            NotFoundError: The configuration does not allow the arm any more.
            MtpdError: See ``LaunchPlanner.plan``.
        """
        self._need(arm)
        if self.keeper is None:
            return self._planner.plan(arm)
        if self._config.profiles[arm.profile].opaque is not None:
            plan = self._planner.plan(arm)
            measured = self.needs.of(plan.fingerprint, arm)
            return plan if measured is None else replace(plan, memory_bytes=measured)
        most_bytes = self._memory.most_bytes(arm)
        plan = self._planner.plan(arm, fits=self._is_certain(arm, most_bytes))
        return replace(plan, memory_bytes=most_bytes)

    def _need(self, arm: Arm) -> None:
        profile = self._config.profiles.get(arm.profile)
        if profile is None or not profile.allows(arm):
            msg = f"{arm} is not in the configuration any more"
            raise NotFoundError(msg, hint="mtpctl models shows what is configured")

    def _is_certain(self, arm: Arm, most_bytes: int | None) -> bool:
        """Whether an arm fits beyond doubt: by what is free, and by what its starts showed.

        What other programs took since the card was last read for a forecast counts, too.
        """
        if most_bytes is None or not self._memory.certain(arm):
            return False
        room_bytes, headroom = self._free_bytes(arm.profile), self._config.budget.headroom_mib * MIB
        if room_bytes is not None and most_bytes > room_bytes - headroom:
            return False
        profile = self._config.profiles[arm.profile]
        return self.feasible.misfit(self._planner.digest(profile), arm) is None

    def _room_bytes(self, profile: str) -> int | None:
        """What a profile would find if all that may go for it had gone."""
        return self._room_beside(
            profile, lambda other: self._seating.group(self._seating.seat(other)).persistent
        )

    def _free_bytes(self, profile: str) -> int | None:
        """What it would find beside all that runs, in the place of what it takes the place of."""
        return self._room_beside(profile, lambda _other: True)

    def _room_beside(self, profile: str, stays: Callable[[str], bool]) -> int | None:
        keeper = self.keeper
        room_bytes = None if keeper is None else keeper.room_bytes
        if keeper is None or room_bytes is None:
            return None
        mine = self._seating.seat(profile)
        others = [one for one in keeper.profiles if self._seating.seat(one) != mine]
        return room_bytes - sum(keeper.held(one) or 0 for one in others if stays(one))

    def instead(self, profile: Profile, arm: Arm) -> tuple[Arm, str] | None:
        """The arm to serve in place of one that is known not to fit, and why; else None.

        Asked for every request: nothing is read unless some start of the arm did not fit.
        """
        if profile.offload.value == "accept" or not self.feasible.doubtful(arm):
            return None
        try:
            digest = self._planner.digest(profile)
        except MtpdError:
            return None  # its start will say so
        verdict = self.feasible.misfit(digest, arm)
        if verdict is None:
            return None
        other = self.feasible.instead(digest, arm)
        if other is None:
            return None
        reason = f"depth {arm.depth} does not fit ({verdict.reason}): depth {other.depth}"
        return other, f"{reason} until engine, model or settings change"

    async def record(self, plan: LaunchPlan) -> float | None:
        """Median tokens per second of an arm, as measured under the plan's fingerprint."""
        found = await self._measurements.observations(
            MeasurementFilter(profile=plan.arm.profile, fingerprint=plan.fingerprint)
        )
        speeds = [
            one.tokens / one.decode_s
            for one in found
            if one.arm == plan.arm and one.decode_s > 0 and passes(one.residency)
        ]
        return median(speeds) if speeds else None


def _own(machine: HostProvider, pids: Collection[int]) -> tuple[ProcessMemory, ...] | Absent:
    """What processes hold of the machine's memory, of their own."""
    return machine.processes(HOST, pids=pids)


def _verdict(row: LedgerRow) -> Verdict:
    """What a row says, as far as it was kept: layers and bytes are in its reason only."""
    residencies: dict[str | None, Residency] = {
        "resident": Resident(),
        "host": Host(),
        "evicted": Evicted(None),
        "spilled": Spilled(None),
    }
    reason = row.residency_reason or "an earlier start showed it"
    return Verdict(
        residency=residencies.get(row.residency, Unknown("not judged")),
        reason=reason,
        room_bytes=row.room_bytes,
    )
