"""Lets an engine be brought up beside others: unloads what must go, or says why it cannot.

What must go is ``mtpd.proxy.room``'s business. Covers gathering what that needs, draining
and unloading, and writing down what was unloaded and why. Needs the device's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, assert_never

import structlog

from mtpd.errors import EngineError, MtpdError
from mtpd.proxy.actors import AT_REST, WEDGED
from mtpd.proxy.engines import Terms
from mtpd.proxy.room import Demand, Go, Holder, Need, Refuse, Unload, next_step
from mtpd.proxy.turns import DRAIN_S
from mtpd.types import Absent, FailureClass, NotApplicable
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from mtpd.proxy.engines import Engines, Running
    from mtpd.proxy.lane import Lane
    from mtpd.proxy.seats import Seat, Seating
    from mtpd.types import LaunchPlan
    from mtpd.units import DeviceKey

__all__ = ["Account", "Beside", "NoRoomError", "Uncounted"]

log = structlog.get_logger()

C = TypeVar("C")

_COMING = frozenset({"releasing", "backoff", "spawning", "loading", "probing"})
"""States of an engine that does not hold all its memory, and is going to: also of one that
has died, and whose supervisor starts it again."""

_HINT = (
    "unload one of them, take persistent from its group, or ask for a smaller context or "
    "depth; mtpctl switch --force loads it all the same"
)


_STUCK_HINT = (
    "a process that the kernel does not let go of keeps its memory until a reset of the card or a "
    "reboot; ask for a smaller context, depth or model, or mtpctl switch --force"
)


class NoRoomError(EngineError):
    """An engine does not fit beside those that stay."""

    def __init__(self, reason: str, *, stuck: bool) -> None:
        hint = _STUCK_HINT if stuck else _HINT
        super().__init__(reason, failure=FailureClass.OOM_VRAM, hint=hint)


class Account(Protocol):
    """Counts the memory of a device."""

    async def need(self, plan: LaunchPlan) -> Need | Absent:
        """What a start takes at most."""

    async def free(self, running: Sequence[LaunchPlan]) -> int | Absent | NotApplicable:
        """Bytes that a start may take now, beside what runs; not applicable: nobody counts."""

    def held(self, plan: LaunchPlan) -> Need | Absent:
        """What a running engine holds: measured, else as known before its start."""


class Uncounted:
    """Counts nothing: engines go by the rules of their groups alone."""

    _WHY = "memory is not counted"

    async def need(self, plan: LaunchPlan) -> Need | Absent:
        """Nobody knows."""
        del plan
        return Absent(self._WHY)

    async def free(self, running: Sequence[LaunchPlan]) -> int | Absent | NotApplicable:
        """Nobody counts."""
        del running
        return NotApplicable(self._WHY)

    def held(self, plan: LaunchPlan) -> Need | Absent:
        """Nobody knows."""
        del plan
        return Absent(self._WHY)


class Beside(Generic[C]):
    """Makes room on a device.

    Args:
        engines: What runs.
        lanes: Every lane, by seat.
        seating: The rules of the groups.
        account: Counts memory.
        halt: Stops what runs on a lane that is held.
        decide: Writes down what was unloaded, and why.
    """

    def __init__(
        self,
        *,
        engines: Engines[C],
        lanes: Mapping[Seat, Lane],
        seating: Seating,
        account: Account,
        halt: Callable[[Lane, str], Awaitable[None]],
        decide: Callable[[Decision], Awaitable[object]],
    ) -> None:
        self._engines, self._lanes, self._seating = engines, lanes, seating
        self._account, self._halt, self._decide = account, halt, decide

    async def make_room(self, lane: Lane, plan: LaunchPlan, terms: Terms) -> bool:
        """Unload what must go for a start on a lane; whether others ran on the device.

        Raises:
            NoRoomError: It does not fit beside those that stay.
            DrainTimeoutError: Requests still ran on one that must go.
            EngineError: The kernel does not let go of a process.
        """
        met = False
        while self._holders(lane):
            met = True
            demand = await self._demand(lane, plan)
            holders = self._holders(lane)
            match next_step(demand, holders):
                case Go():
                    return met
                case Unload(holder, reason):
                    await self._unload(holder, reason)
                case Refuse(reason) if terms is Terms.FORCE:
                    log.warning("room.forced", arm=str(plan.arm), reason=reason)
                    return met
                case Refuse(reason):
                    raise NoRoomError(reason, stuck=any(one.stuck for one in holders))
                case never:
                    assert_never(never)
        return met

    async def _demand(self, lane: Lane, plan: LaunchPlan) -> Demand:
        own = self._engines.ready(lane.seat)
        gives = None if own is None else self._account.held(own.plan)
        group = self._seating.group(lane.seat)
        return Demand(
            name=str(plan.arm),
            need=await self._account.need(plan),
            free=await self._account.free(self._plans_on(lane.seat.device)),
            own_bytes=gives.count if isinstance(gives, Need) else 0,
            unloads=group.name if group.exclusive else None,
        )

    def _holders(self, lane: Lane) -> tuple[Holder, ...]:
        """The other engines of the device, in the order of their seats; last those that stick."""
        others = (
            self._holder(lane, self._lanes[seat], running)
            for seat, running in self._on(lane.seat.device)
            if seat != lane.seat
        )
        stuck = (
            Holder(seat=seat, profile=plan.key.profile, held=self._account.held(plan), stuck=True)
            for seat, plan in self._engines.wedged(lane.seat.device)
            if seat != lane.seat  # a start on their own seat is refused by their supervisor
        )
        return (*(one for one in others if one is not None), *stuck)

    def _plans_on(self, device: DeviceKey) -> list[LaunchPlan]:
        """Of whatever has memory of the device mapped."""
        running = [one.plan for _, one in self._on(device)]
        stuck = [plan for _, plan in self._engines.wedged(device)]
        return [*running, *(plan for plan in stuck if plan not in running)]

    def _on(self, device: DeviceKey) -> tuple[tuple[Seat, Running[C]], ...]:
        return tuple(one for one in self._engines.all_running() if one[0].device == device)

    def _holder(self, lane: Lane, other: Lane, running: Running[C]) -> Holder | None:
        state = running.actor.view().state
        if state in AT_REST or state == WEDGED:
            return None
        return Holder(
            seat=other.seat,
            profile=running.profile,
            held=self._account.held(running.plan),
            loaded=state not in _COMING,
            busy=other.is_busy,
            same_group=other.seat.group == lane.seat.group,
            persistent=self._seating.group(other.seat).persistent,
            used_at=other.used_at,
        )

    async def _unload(self, holder: Holder, why: str) -> None:
        reason = f"{holder.profile} is unloaded: {why}"
        lane = self._lanes[holder.seat]
        async with lane.lent(reason, timeout_s=DRAIN_S):
            await self._halt(lane, reason)
        decision = Decision(act=Act.UNLOAD, subject=holder.profile, arm=None, reason=reason)
        try:
            await self._decide(decision)
        except MtpdError as error:  # what cannot be written down must not end the start
            log.warning("decision.not_recorded", reason=reason, error=str(error))
