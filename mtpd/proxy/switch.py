"""The one place that starts and stops engines, for requests and for operations.

A request leases an engine; an operation switches, stops, or holds the device. What a
request needs and does not find running is brought up for it; what cannot be brought up
is rolled back to what served before. One engine runs per seat (``mtpd.proxy.seats``), and
one starts or stops at a time per device (``mtpd.proxy.turns``, with the order of locks).

Not covered: how a process is supervised (``mtpd.supervise``), and which arm is best
(``arm_for`` is asked).
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
import structlog

from mtpd.errors import ConflictError, MtpdError
from mtpd.proxy.admission_types import ORDINARY, Claim, Pending
from mtpd.proxy.beside import Uncounted
from mtpd.proxy.changes import Changes
from mtpd.proxy.engines import Terms
from mtpd.proxy.errands import Errands
from mtpd.proxy.feasibility import Feasibility
from mtpd.proxy.hold import Hold
from mtpd.proxy.lanes import Lanes
from mtpd.proxy.outcomes import RejectedError
from mtpd.proxy.turns import DRAIN_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from mtpd.clock import Clock
    from mtpd.proxy.actors import Actor
    from mtpd.proxy.beside import Account
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.lane import Lane
    from mtpd.proxy.limits import Limits
    from mtpd.proxy.outcomes import Renewal
    from mtpd.proxy.seats import Seating
    from mtpd.types import Endpoint, EngineKey, LaunchPlan
    from mtpd.views import EngineView, FailureView, QueueView
    from tuner.types import Arm, Decision

__all__ = ["Switchboard"]

log = structlog.get_logger()

C = TypeVar("C")


async def _unwritten(decision: Decision) -> None:
    """Leave a decision to the log of who took it."""
    log.info("decision.made", act=decision.act.value, reason=decision.reason)


class Switchboard(Generic[C]):
    """Owns the engine set and admission.

    Args:
        make_actor: Makes the supervisor of an engine key; called once per key.
        plan_for: Plans the start of an arm; raises MtpdError if it cannot.
        arm_for: The arm that is chosen for a profile.
        seating: Which engines may run at once.
        slots_for: How many requests a profile's engine works on at once.
        connect: Opens the client that operations use (``EngineClient``).
        limits: Length and patience of the queue.
        clock: Source of time.
        feasible: What is known to fit, and what not; nothing if left out.
        is_current: Whether a plan still says what is configured; always if left out.
        asking: Held while a request of a profile waits or runs.
        account: Counts memory where several engines share a device; nothing if left out.
        decide: Writes down a decision of the switchboard's own.
    """

    def __init__(
        self,
        *,
        make_actor: Callable[[EngineKey], Actor],
        plan_for: Callable[[Arm], LaunchPlan],
        arm_for: Callable[[str], Arm],
        seating: Seating,
        slots_for: Callable[[str], int],
        connect: Callable[[Endpoint], AbstractAsyncContextManager[C]],
        limits: Limits,
        clock: Clock,
        feasible: Feasibility | None = None,
        is_current: Callable[[LaunchPlan], bool] = lambda _plan: True,
        asking: Callable[[str], AbstractContextManager[None]] = lambda _profile: nullcontext(),
        account: Account | None = None,
        decide: Callable[[Decision], Awaitable[object]] = _unwritten,
    ) -> None:
        self._asking = asking
        self._plan_for, self._arm_for, self._seating = plan_for, arm_for, seating
        self._lanes = Lanes(seating=seating, limits=limits, clock=clock, on_want=self._want)
        self._changes = Changes(
            lanes=self._lanes,
            make_actor=make_actor,
            seating=seating,
            account=account or Uncounted(),
            decide=decide,
            plan_for=plan_for,
            arm_for=arm_for,
            slots_for=slots_for,
            connect=connect,
            clock=clock,
            feasible=feasible or Feasibility(),
            is_current=is_current,
            on_degraded=lambda lane: self._errands.post(
                partial(self._changes.leave_degraded, lane)
            ),
        )
        self._engines, self._turns = self._changes.engines, self._changes.turns
        self._holding = anyio.Lock()
        self._errands = Errands()

    # For the owner -----------------------------------------------------------------

    async def run(self) -> None:
        """Own the engines until cancelled; then turn everybody away and stop them."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._engines.run)
            tasks.start_soon(self._lanes.keep_time)
            try:
                await self._errands.run(tasks)
            finally:
                self.close("the daemon is stopping")

    def close(self, reason: str) -> None:
        """Turn away everybody who waits or comes, and cut what runs."""
        self._lanes.close(reason)

    async def answer(self) -> None:
        """Return once the owner has taken what was posted before; not while it is stuck."""
        await self._errands.answer()

    def tick(self) -> None:
        """Turn away those who have waited too long; ``run`` does it when it is due."""
        self._lanes.tick()

    # For requests ------------------------------------------------------------------

    @asynccontextmanager
    async def lease(
        self, profile: str, *, request_id: str, claim: Claim = ORDINARY
    ) -> AsyncIterator[Lease]:
        """Use a ready engine of this profile while the block runs.

        Raises:
            RejectedError: The queue is full, the time is up, or there is no engine.
        """
        with self._asking(profile):
            async with self._served(profile, request_id, claim) as lease:
                yield lease

    @asynccontextmanager
    async def _served(self, profile: str, request_id: str, claim: Claim) -> AsyncIterator[Lease]:
        lane = self._lanes.of(profile)
        ticket = lane.arrive(profile, claim, request_id)
        try:
            await lane.admitted(ticket)
            running = self._engines.running(lane.seat)
            if running is None or running.profile != profile:
                # It was lost between the admission and this task's turn.
                msg = f"the engine of {profile} has just gone"
                raise RejectedError(msg, kind="engine", retry_after_s=1)
            yield running.lease(ticket.cut)
        finally:
            lane.end(ticket)

    def ahead(self, request_id: str) -> int:
        """How many requests that wait rank before one that waits, too."""
        return self._lanes.ahead(request_id)

    def beside(self, profile: str) -> Lease | None:
        """The ready engine of a profile, for a request that needs none of its slots.

        Nobody waits for such a request: a change of engine breaks it off. None where no
        engine of the profile is ready, or one is being measured and must not be disturbed.
        """
        lane = self._lanes.of(profile)
        running = self._engines.ready(lane.seat)
        taken = lane.state.held is not None or lane.state.closed is not None
        if taken or running is None or running.profile != profile:
            return None
        return running.lease(anyio.CancelScope())

    async def recheck(self, lease: Lease) -> FailureView | None:
        """An engine broke off: give its supervisor a moment to say so; of what it died.

        At the end it is we who break off, and nobody's client waits for that moment.
        """
        if self.closed:
            return None
        return await self._engines.why_gone(self._seating.seat(lease.arm.profile), lease.engine_id)

    @property
    def closed(self) -> bool:
        """Whether everybody is turned away."""
        return self._lanes.closed is not None

    def queue(self) -> QueueView:
        """Who waits and who runs."""
        return self._lanes.queue()

    async def until_waited_for(self) -> None:
        """Return as soon as a request waits for an engine."""
        await self._lanes.until_waited_for()

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine that was ever asked for, by key."""
        return self._engines.views()

    def plans(self) -> tuple[LaunchPlan, ...]:
        """How every engine is started that runs, is about to, or failed last."""
        return self._engines.plans()

    # For operations ----------------------------------------------------------------

    async def switch(
        self, arm: Arm, *, reason: str, force: bool = False, drain_timeout_s: float | None = None
    ) -> EngineView:
        """Drain, stop what runs on the arm's seat, start the arm; force cuts at once.

        Raises:
            EngineError: It did not become ready; what served before was brought back.
            NoRoomError: It does not fit beside other engines that stay.
            DrainTimeoutError: Requests still ran; nothing was changed.
            MtpdError: The arm cannot be planned; nothing was changed.
        """
        lane = self._lanes.of(arm.profile)
        if (running := self._engines.ready(lane.seat)) is not None and running.plan.arm == arm:
            plan = self._plan_for(arm)  # the model file may be another one since
            if running.is_as_planned(plan):
                if force:
                    running.terms = Terms.FORCE
                return running.actor.view()
        log.info("switch.began", arm=str(arm), reason=reason)
        patience = _patience(drain_timeout_s, force=force)
        async with self._turns.alone(lane, reason, force=force, timeout_s=patience):
            return await self._changes.change(lane, arm, reason, force=force)

    async def bring_up(self, profile: str, reason: str) -> EngineView:
        """Have the engine of a profile ready although no request asks for it.

        Raises:
            ConflictError: Requests for another model of its seat have come first.
            MtpdError: See ``switch``.
        """
        lane = self._lanes.of(profile)
        running = self._engines.running(lane.seat)
        if lane.is_busy and (running is None or running.profile != profile):
            msg = f"{profile} is not brought up: requests use its place for another model"
            raise ConflictError(msg)
        return await self.switch(self._arm_for(profile), reason=reason)

    async def stop_engine(
        self,
        profile: str | None,
        reason: str,
        *,
        force: bool = False,
        drain_timeout_s: float | None = None,
        agreed: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Drain and stop the engine of a profile, or every engine; force cuts at once.

        ``agreed`` is asked once nothing runs any more; what it says no to goes on serving.

        Raises:
            DrainTimeoutError: Requests still ran; nothing was changed.
            EngineError: The kernel does not let go of the process.
        """
        lanes = self._lanes.there() if profile is None else (self._lanes.of(profile),)
        patience = _patience(drain_timeout_s, force=force)
        for lane in lanes:
            running = self._engines.running(lane.seat)
            if profile is not None and (running is None or running.profile != profile):
                continue
            async with self._turns.alone(lane, reason, force=force, timeout_s=patience):
                if agreed is None or await agreed():
                    await self._changes.halt(lane, reason)

    @asynccontextmanager
    async def hold(
        self, *, reason: str, drain_timeout_s: float = DRAIN_S
    ) -> AsyncIterator[Hold[C]]:
        """Have the devices alone while the block runs; requests wait.

        Persistent engines that were stopped for it are brought back afterwards.

        Raises:
            DrainTimeoutError: Requests still ran; they are never cut for a hold.
        """
        async with self._holding, AsyncExitStack() as stack:
            hold = Hold(
                lane_of=self._lanes.of,
                attempt=self._changes.attempt,
                halt=self._changes.halt,
                stack=stack,
                reason=reason,
                drain_timeout_s=drain_timeout_s,
            )
            lanes = self._lanes.every()
            for lane in lanes:
                await hold.take(lane)
            await stack.enter_async_context(self._turns.of(*lanes))
            persistent = [p for p in self._ready() if self._is_persistent(p)]
            try:
                yield hold
            finally:
                await hold.end(self._changes.end_hold)
                for profile in persistent:
                    self._errands.post(partial(self._bring_back, profile))

    def serving(self) -> Arm | None:
        """The arm that is ready now; of several, the one that was used last."""
        ready = [one for lane in self._lanes.there() if (one := self._engines.ready(lane.seat))]
        last = max(ready, key=lambda one: self._lanes.of(one.profile).used_at, default=None)
        return None if last is None else last.plan.arm

    # For the reload ----------------------------------------------------------------

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """Nobody starts or stops an engine while the block runs; requests go on."""
        async with self._holding, AsyncExitStack() as stack:
            lanes = self._lanes.every()
            for lane in lanes:
                await stack.enter_async_context(lane.owned())
                lane.park(parked=True)
            await stack.enter_async_context(self._turns.of(*lanes))
            yield

    def bound(self, limits: Limits) -> None:
        """Let other limits hold for requests that come from now on."""
        self._lanes.bound(limits)

    def forget(self, profile: str, why: str) -> None:
        """Turn away those who wait for a profile that is not served any more."""
        self._engines.dismiss(profile)
        self._lanes.forget(profile, why)

    def mend(self, profile: str) -> None:
        """Try a profile again that failed to start: it is configured otherwise now."""
        self._lanes.mend(profile)

    async def renew(self, reason: str) -> tuple[Renewal, ...]:
        """Drain and renew every engine that runs otherwise than is configured.

        One whose requests last longer than the patience, or than the caller waits, is
        renewed when they have ended.
        """
        try:
            found = [await self._changes.renew(lane, reason) for lane in self._lanes.there()]
        finally:
            for lane in self._lanes.there():
                if self._changes.outdated(lane) is not None:
                    self._errands.post(partial(self._changes.leave_outdated, lane, reason))
        return tuple(renewal for renewal in found if renewal is not None)

    def _ready(self) -> tuple[str, ...]:
        return tuple(one.profile for _, one in self._engines.all_running() if one.is_ready)

    def _is_persistent(self, profile: str) -> bool:
        return self._seating.group(self._seating.seat(profile)).persistent

    async def _bring_back(self, profile: str) -> None:
        """Serve a persistent model again after a hold; its next request tries once more."""
        if profile in self._ready():
            return
        try:
            await self.bring_up(profile, f"{profile} is persistent and was stopped for a hold")
        except MtpdError as error:
            log.warning("hold.not_brought_back", profile=profile, reason=str(error))

    def _want(self, lane: Lane, profile: str) -> None:
        self._errands.post(partial(self._bring_up_for_requests, lane, profile))

    async def _bring_up_for_requests(self, lane: Lane, profile: str) -> None:
        async with lane.owned():
            if lane.state.engine != Pending(profile):
                return  # a hold in between has changed what is wanted
            async with self._turns.of(lane):
                if lane.state.engine == Pending(profile):
                    await self._changes.for_requests(lane, profile)


def _patience(asked: float | None, *, force: bool) -> float:
    """How long running requests are waited for: whoever forces has decided not to wait."""
    return (0.0 if force else DRAIN_S) if asked is None else asked
