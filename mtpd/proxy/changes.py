"""What serves on each seat: brings arms up, rolls back, leaves what has degraded.

Every change is made by whoever has the lane's lock and the device's turn. An arm that does
not stay on the device is never served unless its profile or an operator accepts that: what
served before comes back, or the next arm of the same profile that fits, and requests wait
meanwhile.
Not covered: queueing and draining (``lane``), and who asks (``switch``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from mtpd.errors import EngineError, MtpdError, NoModelFileError, NotFoundError
from mtpd.proxy.actors import READY
from mtpd.proxy.admission_types import (
    Failed,
    Forget,
    Lost,
    Ready,
    Recovering,
    Serving,
    Stopped,
)
from mtpd.proxy.beside import Beside, NoRoomError
from mtpd.proxy.engines import Engines, Terms, failure_of
from mtpd.proxy.feasibility import Feasibility, MisfitError
from mtpd.proxy.outcomes import DrainTimeoutError, Renewal, Renewed
from mtpd.proxy.turns import Turns
from mtpd.types import EngineKey, FailureClass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from mtpd.clock import Clock
    from mtpd.proxy.actors import Actor
    from mtpd.proxy.beside import Account
    from mtpd.proxy.engines import Running
    from mtpd.proxy.lane import Lane
    from mtpd.proxy.lanes import Lanes
    from mtpd.proxy.seats import Seat, Seating
    from mtpd.types import Endpoint, LaunchPlan, Verdict
    from mtpd.views import EngineView
    from tuner.types import Arm, Decision

__all__ = ["Changes"]

log = structlog.get_logger()

C = TypeVar("C")

RETRY_S = 60.0
"""How long a profile that failed to start is not tried again for requests."""

PASSING = (NoRoomError, DrainTimeoutError, NoModelFileError)
"""Failures for what others hold or do, and for a file that may be put back; see ``_passes``."""


class Changes(Generic[C]):
    """Owns the engine set, and what the lanes are told of it.

    Args:
        lanes: What is told of it.
        make_actor: Makes the supervisor of an engine key; called once per key.
        seating: Which engines may run at once.
        account: Counts memory where several do.
        decide: Writes down what was unloaded for another, and why.
        plan_for: Plans the start of an arm; raises MtpdError if it cannot.
        arm_for: The arm that is chosen for a profile.
        slots_for: How many requests a profile's engine works on at once.
        connect: Opens the client that operations use.
        clock: Source of time.
        feasible: What is known to fit.
        is_current: Whether a plan still says what is configured.
        on_degraded: Told of a lane whose engine has lost its residency; must see to it
            that ``leave_degraded`` is run in a task of its own.
    """

    def __init__(
        self,
        *,
        lanes: Lanes,
        make_actor: Callable[[EngineKey], Actor],
        seating: Seating,
        account: Account,
        decide: Callable[[Decision], Awaitable[object]],
        plan_for: Callable[[Arm], LaunchPlan],
        arm_for: Callable[[str], Arm],
        slots_for: Callable[[str], int],
        connect: Callable[[Endpoint], AbstractAsyncContextManager[C]],
        clock: Clock,
        feasible: Feasibility,
        is_current: Callable[[LaunchPlan], bool],
        on_degraded: Callable[[Lane], None],
    ) -> None:
        self._plan_for, self._arm_for, self._slots_for = plan_for, arm_for, slots_for
        self._clock, self._feasible, self._on_degraded = clock, feasible, on_degraded
        self._is_current = is_current
        self.engines = Engines(
            make_actor=make_actor,
            connect=connect,
            seat_for=seating.seat,
            on_change=self.observe,
            on_judged=self._judged,
            ran_out=feasible.ran_out,
        )
        self._lanes = lanes
        self.turns = Turns()
        self._last_plan: dict[Seat, LaunchPlan] = {}
        self._leaving: set[Seat] = set()
        self._beside = Beside(
            engines=self.engines,
            lanes=lanes.by_seat,
            seating=seating,
            account=account,
            halt=self.halt,
            decide=decide,
        )

    # What is asked for --------------------------------------------------------------

    async def for_requests(self, lane: Lane, profile: str) -> None:
        """Bring a profile up because requests wait for it."""
        try:
            arm = self._arm_for(profile)
        except NotFoundError as error:
            lane.post(Forget(profile, str(error)))  # it was removed after the request was routed
            return
        try:
            await self._fitting(lane, arm, "a request asks for another model")
        except MtpdError as error:
            await self._fall_back(lane, arm, error)
            log.warning("engine.not_available", profile=profile, error=str(error))

    async def change(self, lane: Lane, arm: Arm, reason: str, *, force: bool) -> EngineView:
        """Bring an arm up, or back what served before."""
        try:
            running = await self.attempt(
                lane, arm, reason, terms=Terms.FORCE if force else Terms.SERVE
            )
        except MtpdError as error:
            await self._fall_back(lane, arm, error)
            raise
        return running.actor.view()

    async def attempt(
        self,
        lane: Lane,
        arm: Arm,
        reason: str,
        *,
        fresh: bool = False,
        terms: Terms = Terms.MEASURE,
    ) -> Running[C]:
        """Bring an arm up and let requests know.

        Raises:
            MisfitError: It does not fit; one that is known not to is not even started.
            NoRoomError: It does not fit beside other engines that stay.
        """
        plan = self._plan_for(arm)
        if terms is not Terms.FORCE:
            self._feasible.check(plan)
        present = self.engines.ready(lane.seat)
        serves = present is not None and present.is_as_planned(plan) and not fresh
        if not serves and await self._beside.make_room(lane, plan, terms):
            plan = self._plan_for(arm)  # what is free is another amount now
        if lane.state.held is not None:
            lane.post(Stopped())
        running = await self.engines.bring_up(plan, reason, fresh=fresh, terms=terms)
        self._serve(lane, running)
        return running

    async def halt(self, lane: Lane, reason: str) -> None:
        """Stop what runs on a lane that is held; nothing is brought back by itself."""
        self._last_plan.pop(lane.seat, None)
        lane.post(Stopped())
        await self.engines.stop(lane.seat, reason)

    async def end_hold(self, lane: Lane) -> None:
        """Leave nothing running on a lane that may be measured, but not served."""
        running = self.engines.ready(lane.seat)
        if running is None:
            return
        if running.is_degraded:
            await self.halt(lane, f"{running.plan.arm} does not fit")
        elif running.terms is Terms.MEASURE:
            running.terms = Terms.SERVE

    async def leave_degraded(self, lane: Lane) -> None:
        """Put an arm that fits in the place of one that has lost its residency.

        Running requests end first, however long they take; those that come meanwhile wait.
        """
        try:
            while (running := self._degraded(lane)) is not None:
                reason = f"{running.plan.arm} is {running.verdict.label}"
                with suppress(DrainTimeoutError):
                    async with self.turns.alone(lane, reason):
                        await self._replace(lane)
        finally:
            self._leaving.discard(lane.seat)

    def outdated(self, lane: Lane) -> Running[C] | None:
        """The engine of a lane that runs otherwise than is configured, or None."""
        running = self.engines.running(lane.seat)
        return running if running is not None and not self._is_current(running.plan) else None

    async def renew(self, lane: Lane, reason: str) -> Renewal | None:
        """Drain and stop an outdated engine, then serve its profile as it is configured now.

        None where nothing was outdated.
        """
        if (found := self.outdated(lane)) is None:
            return None
        try:
            async with self.turns.alone(lane, reason):
                running = self.outdated(lane)
                return None if running is None else await self._renewed(lane, running, reason)
        except DrainTimeoutError as error:
            return Renewal(found.profile, Renewed.WAITS, str(error))

    async def leave_outdated(self, lane: Lane, reason: str) -> None:
        """Renew an outdated engine once its requests have ended, however long they take."""
        while self.outdated(lane) is not None:
            await self.renew(lane, reason)

    # Inside -------------------------------------------------------------------------

    async def _renewed(self, lane: Lane, running: Running[C], reason: str) -> Renewal:
        profile = running.profile
        arm = running.plan.arm
        try:
            await self.halt(lane, reason)
            arm = self._arm_for(profile)
            if running.terms is Terms.FORCE:
                await self.attempt(lane, arm, reason, terms=Terms.FORCE)
            else:
                await self._fitting(lane, arm, reason)
        except NotFoundError:
            self.engines.dismiss(profile)
            return Renewal(profile, Renewed.UNLOADED, reason)
        except MtpdError as error:
            await self._fall_back(lane, arm, error)
            log.warning("engine.not_renewed", profile=profile, error=str(error))
            return Renewal(profile, Renewed.FAILED, str(error))
        return Renewal(profile, Renewed.RESTARTED, reason)

    async def _fitting(self, lane: Lane, arm: Arm, reason: str) -> Running[C]:
        """Bring an arm up, or the next one of its profile that fits."""
        while True:
            try:
                return await self.attempt(lane, arm, reason, terms=Terms.SERVE)
            except MisfitError as error:
                instead = self._next(error)
                if instead is None:
                    raise
                log.warning("residency.shallower", arm=str(arm), to=str(instead), why=str(error))
                arm = instead

    def _next(self, misfit: MisfitError) -> Arm | None:
        return self._feasible.instead(misfit.plan.fingerprint, misfit.plan.arm)

    def _degraded(self, lane: Lane) -> Running[C] | None:
        running = self.engines.ready(lane.seat)
        return running if running is not None and running.is_degraded else None

    async def _replace(self, lane: Lane) -> None:
        """Roll back a degraded engine; with the lane held."""
        running = self._degraded(lane)
        if running is None:
            return
        arm, error = running.plan.arm, MisfitError(running.plan, running.verdict)
        instead = self._next(error)
        log.warning("residency.rolled_back", arm=str(arm), back=str(instead), error=str(error))
        try:
            if instead is None:
                raise error
            await self._fitting(lane, instead, str(error))
        except MtpdError as failed:
            self._give_up(lane, arm, failed, None)
            with suppress(MtpdError):
                await self.engines.stop(lane.seat, str(error))

    def _judged(self, plan: LaunchPlan, verdict: Verdict) -> None:
        self._feasible.note(plan.fingerprint, plan.arm, verdict)

    def _serve(self, lane: Lane, running: Running[C]) -> None:
        if not running.is_degraded:
            self._last_plan[lane.seat] = running.plan
        lane.post(Ready(running.profile, max(1, self._slots_for(running.profile))))

    async def _fall_back(self, lane: Lane, arm: Arm, error: MtpdError) -> None:
        """After a failed attempt: wait for its supervisor, or bring back what served before."""
        last = self._last_plan.get(lane.seat)
        before = None if last is None or not self._is_current(last) else last.arm
        key = EngineKey(lane.seat.device, arm.profile)
        if before is None and lane.state.held is None and self.engines.retrying(key):
            await self.engines.adopt(key)
            lane.post(Lost())
            self.observe(lane.seat)  # it may have come up in the meantime
            return
        if (present := self.engines.ready(lane.seat)) is not None:
            # The arm could not even be planned: what served still does.
            self._give_up(lane, arm, error, present.plan.arm)
            if not self._react(lane, present):
                self._serve(lane, present)
            return
        back = None if before == arm else before
        self._give_up(lane, arm, error, back)
        if back is None:
            with suppress(MtpdError):  # a wedged process is reported by its own view
                await self.engines.stop(lane.seat, "it did not become ready")
            return
        log.warning("switch.rolled_back", arm=str(arm), back=str(back), error=str(error))
        try:
            await self.attempt(lane, back, f"{arm} did not become ready", terms=Terms.SERVE)
        except MtpdError as second:
            self._give_up(lane, back, second, None)

    def _give_up(self, lane: Lane, arm: Arm, error: MtpdError, back: Arm | None) -> None:
        """Turn away those who wait for an arm, unless its profile can still be served."""
        if back is None:
            self._last_plan.pop(lane.seat, None)
        elif back.profile == arm.profile:
            return
        if isinstance(error, MisfitError) and self._next(error) is not None:
            if back is None:  # those who wait ask anew, for a shallower arm of the profile
                lane.post(Stopped())
            return
        lane.post(
            Failed(
                profile=arm.profile,
                why=str(error),
                now=self._clock.now(),
                retry_after_s=0.0 if _passes(error) else RETRY_S,
                restoring=None if back is None else back.profile,
            )
        )

    def observe(self, seat: Seat) -> None:
        """An engine of a seat has changed by itself: its state, or its residency."""
        lane, running = self._lanes.by_seat.get(seat), self.engines.running(seat)
        if lane is None or running is None:
            return
        view = running.actor.view()
        if view.state == READY:
            self._judged(running.plan, running.verdict)
        if running.is_ready and isinstance(lane.state.engine, Serving):
            self._react(lane, running)
            return
        if isinstance(lane.state.engine, Serving):
            lane.post(Lost())
        if view.state == READY:
            running.engine_id = view.id
            if not self._react(lane, running):
                self._serve(lane, running)
        elif view.state == "stopping":
            # llama-server does not end before its connections are closed.
            lane.cut()
        elif view.state not in {"backoff", "ready"} and _at_an_end(view.state, lane):
            self._ended(lane, running.plan, view)

    def _ended(self, lane: Lane, plan: LaunchPlan, view: EngineView) -> None:
        """Its supervisor has given up on an engine; those who wait may have another arm of it."""
        short = self._feasible.ran_out(plan, view)
        if short is None:
            self._give_up(lane, plan.arm, failure_of(view), None)
            return
        self._judged(plan, short)
        self._give_up(lane, plan.arm, MisfitError(plan, short), None)

    def _react(self, lane: Lane, running: Running[C]) -> bool:
        """Have a degraded engine left, once nobody holds its lane; whether it is one."""
        if not running.is_degraded:
            return False
        if lane.seat not in self._leaving:
            self._leaving.add(lane.seat)
            self._on_degraded(lane)
        return True


_OTHERS_FAULT = frozenset({FailureClass.STORE, FailureClass.WEDGED})
"""Nothing was started: the disk took no row, or an earlier process is still there."""


def _at_an_end(state: str, lane: Lane) -> bool:
    """Whether requests that wait for a restart wait in vain."""
    ended = state in {"failed", "wedged", "vram_unrecovered", "gpu_failed"}
    return ended and isinstance(lane.state.engine, Recovering)


def _passes(error: MtpdError) -> bool:
    """Whether it is for no fault of the engine: asking costs no load, so the next request may."""
    other = isinstance(error, EngineError) and error.failure in _OTHERS_FAULT
    return other or isinstance(error, PASSING)
