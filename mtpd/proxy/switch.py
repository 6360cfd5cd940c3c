"""The one place that starts and stops engines, for requests and for operations.

A request leases an engine; an operation switches, stops, or holds the device. What a
request needs and does not find running is brought up for it; what cannot be brought up
is rolled back to what served before. One engine runs per device; the set is keyed by
device and profile all the same.

Not covered: how a process is supervised (``mtpd.supervise``), and which arm is best
(``arm_for`` is asked).
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio
import structlog

from mtpd.errors import MtpdError
from mtpd.proxy import admission
from mtpd.proxy.actors import READY
from mtpd.proxy.admission_types import (
    Close,
    Failed,
    Lost,
    Pending,
    Ready,
    Recovering,
    Serving,
    Stopped,
)
from mtpd.proxy.engines import Engines, failure_of
from mtpd.proxy.hold import Hold
from mtpd.proxy.lane import Lane
from mtpd.proxy.outcomes import RejectedError
from mtpd.types import EngineKey
from mtpd.views import QueueView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from mtpd.clock import Clock
    from mtpd.proxy.actors import Actor
    from mtpd.proxy.engines import Lease, Running
    from mtpd.types import Endpoint, LaunchPlan
    from mtpd.units import DeviceKey
    from mtpd.views import EngineView
    from tuner.types import Arm

__all__ = ["Limits", "Switchboard"]

log = structlog.get_logger()

C = TypeVar("C")

RETRY_S = 60.0
"""How long a profile that failed to start is not tried again for requests."""

DRAIN_S = 120.0
RECHECK_S = 1.0


class Limits(Protocol):
    """How many requests may wait, and how long; ``ServerConfig`` has both."""

    @property
    def max_waiting(self) -> int:
        """Requests that may wait per device."""

    @property
    def queue_timeout_s(self) -> float:
        """Seconds each may wait."""


class Switchboard(Generic[C]):
    """Owns the engine set and admission.

    Args:
        make_actor: Makes the supervisor of an engine key; called once per key.
        plan_for: Plans the start of an arm; raises MtpdError if it cannot.
        arm_for: The arm that is chosen for a profile.
        device_for: The device of a profile.
        slots_for: How many requests a profile's engine works on at once.
        connect: Opens the client that operations use (``EngineClient``).
        limits: Length and patience of the queue.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        make_actor: Callable[[EngineKey], Actor],
        plan_for: Callable[[Arm], LaunchPlan],
        arm_for: Callable[[str], Arm],
        device_for: Callable[[str], DeviceKey],
        slots_for: Callable[[str], int],
        connect: Callable[[Endpoint], AbstractAsyncContextManager[C]],
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._plan_for, self._arm_for = plan_for, arm_for
        self._device_for, self._slots_for = device_for, slots_for
        self._limits, self._clock = limits, clock
        self._engines = Engines(make_actor=make_actor, connect=connect, on_change=self._observe)
        self._lanes: dict[DeviceKey, Lane] = {}
        self._last_arm: dict[DeviceKey, Arm] = {}
        self._wants: deque[tuple[Lane, str]] = deque()
        self._wanted = anyio.Event()
        self._rearmed = anyio.Event()
        self._closed: str | None = None

    # For the owner -----------------------------------------------------------------

    async def run(self) -> None:
        """Own the engines until cancelled; then turn everybody away and stop them."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._engines.run)
            tasks.start_soon(self._keep_time)
            try:
                while True:
                    while self._wants:
                        tasks.start_soon(self._bring_up_for_requests, *self._wants.popleft())
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
            finally:
                self.close("the daemon is stopping")

    def close(self, reason: str) -> None:
        """Turn away everybody who waits or comes, and cut what runs."""
        self._closed = reason
        for lane in self._lanes.values():
            lane.post(Close(reason))
            lane.cut()

    def tick(self) -> None:
        """Turn away those who have waited too long; ``run`` does it when it is due."""
        for lane in self._lanes.values():
            lane.tick()

    # For requests ------------------------------------------------------------------

    @asynccontextmanager
    async def lease(self, profile: str, *, request_id: str) -> AsyncIterator[Lease]:
        """Use a ready engine of this profile while the block runs.

        Raises:
            RejectedError: The queue is full, the time is up, or there is no engine.
        """
        lane = self._lane(profile)
        ticket = lane.arrive(profile)
        log.debug("request.arrived", request_id=request_id, profile=profile, ticket=ticket.id)
        try:
            await lane.admitted(ticket)
            running = self._engines.running(lane.device)
            if running is None or running.profile != profile:
                # It was lost between the admission and this task's turn.
                msg = f"the engine of {profile} has just gone"
                raise RejectedError(msg, kind="engine", retry_after_s=1)
            yield running.lease(ticket.cut)
        finally:
            lane.end(ticket)

    async def recheck(self, lease: Lease) -> None:
        """An engine broke off: give its supervisor a moment to say so."""
        device = self._device_for(lease.arm.profile)
        with anyio.move_on_after(RECHECK_S):
            await self._engines.until_gone(device, lease.engine_id)

    @property
    def closed(self) -> bool:
        """Whether everybody is turned away."""
        return self._closed is not None

    def queue(self) -> QueueView:
        """Who waits and who runs."""
        states = [lane.state for lane in self._lanes.values()]
        return QueueView(
            waiting=sum(len(state.waiting) for state in states),
            limit=self._limits.max_waiting * max(1, len(states)),
            timeout_s=self._limits.queue_timeout_s,
            in_flight=sum(len(state.running) for state in states),
        )

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine that was ever asked for, by key."""
        return self._engines.views()

    # For operations ----------------------------------------------------------------

    async def switch(
        self, arm: Arm, *, reason: str, force: bool = False, drain_timeout_s: float | None = None
    ) -> EngineView:
        """Drain, stop what runs on the arm's device, start the arm; force cuts at once.

        Raises:
            EngineError: It did not become ready; what served before was brought back.
            DrainTimeoutError: Requests still ran; nothing was changed.
            MtpdError: The arm cannot be planned; nothing was changed.
        """
        lane = self._lane(arm.profile)
        if (running := self._engines.ready(lane.device)) is not None and running.plan.arm == arm:
            plan = self._plan_for(arm)  # the model file may be another one since
            if running.is_as_planned(plan):
                return running.actor.view()
        log.info("switch.began", arm=str(arm), reason=reason)
        patience = _patience(drain_timeout_s, force=force)
        async with lane.exclusive(reason, force=force, timeout_s=patience):
            return await self._change(lane, arm, reason, offload=force)

    async def stop_engine(
        self,
        profile: str | None,
        reason: str,
        *,
        force: bool = False,
        drain_timeout_s: float | None = None,
    ) -> None:
        """Drain and stop the engine of a profile, or every engine; force cuts at once.

        Raises:
            DrainTimeoutError: Requests still ran; nothing was changed.
            EngineError: The kernel does not let go of the process.
        """
        lanes = tuple(self._lanes.values()) if profile is None else (self._lane(profile),)
        patience = _patience(drain_timeout_s, force=force)
        for lane in lanes:
            running = self._engines.running(lane.device)
            if profile is not None and (running is None or running.profile != profile):
                continue
            async with lane.exclusive(reason, force=force, timeout_s=patience):
                await self._halt(lane, reason)

    @asynccontextmanager
    async def hold(
        self, *, reason: str, drain_timeout_s: float = DRAIN_S
    ) -> AsyncIterator[Hold[C]]:
        """Have the devices alone while the block runs; requests wait.

        Raises:
            DrainTimeoutError: Requests still ran; they are never cut for a hold.
        """
        async with AsyncExitStack() as stack:
            hold = Hold(
                lanes=self._lane,
                attempt=self._attempt,
                halt=self._halt,
                stack=stack,
                reason=reason,
                drain_timeout_s=drain_timeout_s,
            )
            for lane in tuple(self._lanes.values()):
                await hold.take(lane)
            yield hold

    # Inside ------------------------------------------------------------------------

    def _lane(self, profile: str) -> Lane:
        device = self._device_for(profile)
        if device not in self._lanes:
            lane = self._lanes[device] = Lane(
                device=device,
                limit=self._limits.max_waiting,
                timeout_s=self._limits.queue_timeout_s,
                clock=self._clock,
                on_want=self._want,
                on_waiting=self._rearm,
            )
            if self._closed is not None:
                lane.post(Close(self._closed))
        return self._lanes[device]

    def _want(self, lane: Lane, profile: str) -> None:
        self._wants.append((lane, profile))
        self._wanted.set()

    def _rearm(self) -> None:
        self._rearmed.set()

    async def _keep_time(self) -> None:
        while True:
            self._rearmed = anyio.Event()
            due = [admission.next_deadline(lane.state) for lane in self._lanes.values()]
            first = min((at for at in due if at is not None), default=math.inf)
            with anyio.move_on_after(max(0.0, first - self._clock.now())):
                await self._rearmed.wait()
            self.tick()

    async def _bring_up_for_requests(self, lane: Lane, profile: str) -> None:
        async with lane.lock:
            if lane.state.engine != Pending(profile):
                return  # a hold in between has changed what is wanted
            try:
                arm, why = self._arm_for(profile), "a request asks for another model"
                await self._change(lane, arm, why, offload=False)
            except MtpdError as error:
                log.warning("engine.not_available", profile=profile, error=str(error))

    async def _change(self, lane: Lane, arm: Arm, reason: str, *, offload: bool) -> EngineView:
        """Bring an arm up, or back what served before; only with the lane's lock."""
        try:
            running = await self._attempt(lane, arm, reason, offload=offload)
        except MtpdError as error:
            await self._fall_back(lane, arm, error)
            raise
        return running.actor.view()

    async def _attempt(
        self, lane: Lane, arm: Arm, reason: str, *, fresh: bool = False, offload: bool = True
    ) -> Running[C]:
        """Bring an arm up and let requests know; with ``offload`` also one that does not fit."""
        plan = self._plan_for(arm)
        if lane.state.held is not None:
            lane.post(Stopped())
        running = await self._engines.bring_up(plan, reason, fresh=fresh, offload=offload)
        self._serve(lane, running)
        return running

    async def _halt(self, lane: Lane, reason: str) -> None:
        """Stop what runs on a lane that is held; nothing is brought back by itself."""
        self._last_arm.pop(lane.device, None)
        lane.post(Stopped())
        await self._engines.stop(lane.device, reason)

    def _serve(self, lane: Lane, running: Running[C]) -> None:
        self._last_arm[lane.device] = running.plan.arm
        lane.post(Ready(running.profile, max(1, self._slots_for(running.profile))))

    async def _fall_back(self, lane: Lane, arm: Arm, error: MtpdError) -> None:
        """After a failed attempt: wait for its supervisor, or bring back what served before."""
        before = self._last_arm.get(lane.device)
        key = EngineKey(lane.device, arm.profile)
        if before is None and lane.state.held is None and self._engines.retrying(key):
            await self._engines.adopt(key)
            lane.post(Lost())
            self._observe(lane.device)  # it may have come up in the meantime
            return
        if (present := self._engines.ready(lane.device)) is not None:
            # The arm could not even be planned: what served still does.
            self._give_up(lane, arm, error, present.plan.arm)
            self._serve(lane, present)
            return
        back = None if before == arm else before
        self._give_up(lane, arm, error, back)
        if back is None:
            with suppress(MtpdError):  # a wedged process is reported by its own view
                await self._engines.stop(lane.device, "it did not become ready")
            return
        log.warning("switch.rolled_back", arm=str(arm), back=str(back), error=str(error))
        try:
            await self._attempt(lane, back, f"{arm} did not become ready")
        except MtpdError as second:
            self._give_up(lane, back, second, None)

    def _give_up(self, lane: Lane, arm: Arm, error: MtpdError, back: Arm | None) -> None:
        """Turn away those who wait for an arm, unless its profile is coming back."""
        if back is None:
            self._last_arm.pop(lane.device, None)
        elif back.profile == arm.profile:
            return
        lane.post(
            Failed(
                profile=arm.profile,
                why=str(error),
                now=self._clock.now(),
                retry_after_s=RETRY_S,
                restoring=None if back is None else back.profile,
            )
        )

    def _observe(self, device: DeviceKey) -> None:
        """An engine of a device has changed state by itself."""
        lane, running = self._lanes.get(device), self._engines.running(device)
        if lane is None or running is None:
            return
        if running.is_ready and isinstance(lane.state.engine, Serving):
            return
        view = running.actor.view()
        if isinstance(lane.state.engine, Serving):
            lane.post(Lost())
        if view.state == READY:
            running.engine_id = view.id
            self._serve(lane, running)
        elif view.state == "stopping":
            # llama-server does not end before its connections are closed.
            lane.cut()
        elif view.state in {"failed", "wedged"} and isinstance(lane.state.engine, Recovering):
            self._give_up(lane, running.plan.arm, failure_of(view), None)


def _patience(asked: float | None, *, force: bool) -> float:
    """How long running requests are waited for: whoever forces has decided not to wait."""
    if asked is not None:
        return asked
    return 0.0 if force else DRAIN_S
