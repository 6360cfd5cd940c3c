"""The engine set: one supervisor per device and profile, one running engine per seat.

Covers starting, stopping and watching; what to start, and who may use it, is decided in
``mtpd.proxy.switch``. Methods that change engines need the turn of their device.
"""

from __future__ import annotations

import enum
from contextlib import AsyncExitStack
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from mtpd.errors import EngineError
from mtpd.proxy.actors import AT_REST, READY, WEDGED
from mtpd.proxy.feasibility import MisfitError, degraded
from mtpd.proxy.upstream import EndpointUpstream
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup

    from mtpd.proxy.actors import Actor
    from mtpd.proxy.seats import Seat
    from mtpd.proxy.upstream import Upstream
    from mtpd.types import Endpoint, EngineKey, LaunchPlan, Verdict
    from mtpd.units import DeviceKey
    from mtpd.views import EngineView, FailureView
    from tuner.types import Arm

__all__ = ["Engines", "Lease", "Running", "Terms", "failure_of"]

C = TypeVar("C")

_WEDGED_HINT = (
    "nothing is started in its place until it has ended, which a reset of the card or a reboot "
    "brings about; see the kernel log"
)
DEATHS_KEPT = 64
RECHECK_S = 1.0
"""How long the supervisor of an engine that broke off may take to say so."""

STOP_S = 30.0
"""Bound of a stop that is made while being cancelled; a supervisor takes less."""


class Terms(enum.Enum):
    """On which terms an arm is brought up."""

    SERVE = "serve"
    """It must stay on the device, unless its profile accepts that it does not."""
    MEASURE = "measure"
    """It may turn out not to, for as long as the device is held."""
    FORCE = "force"
    """An operator wants it all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The use of one engine by one request.

    Attributes:
        endpoint: Where it listens.
        upstream: How to reach it.
        arm: What it runs.
        engine_id: This start of it.
        cut: Cancelled when the request must let go of the engine at once.
    """

    endpoint: Endpoint
    upstream: Upstream
    arm: Arm
    engine_id: str
    cut: anyio.CancelScope


@dataclass(slots=True, eq=False, kw_only=True)
class Running(Generic[C]):
    """An engine that was brought up.

    Attributes:
        plan: How it was started.
        actor: Its supervisor.
        engine_id: The start that was last seen ready; "" before the first.
        client: What operations talk to it with.
        terms: On which it was brought up.
    """

    plan: LaunchPlan
    actor: Actor
    engine_id: str
    client: C
    upstream: EndpointUpstream
    opened: AsyncExitStack
    terms: Terms

    @property
    def profile(self) -> str:
        """The profile it serves."""
        return self.plan.key.profile

    @property
    def verdict(self) -> Verdict:
        """Its residency."""
        return self.actor.verdict

    @property
    def is_degraded(self) -> bool:
        """Whether it is not on the device as it should be, and nobody wants it so."""
        wanted = self.terms is Terms.FORCE or self.plan.accept_offload
        return not wanted and degraded(self.verdict)

    @property
    def is_ready(self) -> bool:
        """Whether it serves now, and it is the start that was last announced."""
        view = self.actor.view()
        return view.state == READY and view.id == self.engine_id

    def is_as_planned(self, plan: LaunchPlan) -> bool:
        """Whether a start of this plan would run the same: a replaced model file would not."""
        mine = self.plan
        return (mine.key, mine.arm, mine.fingerprint) == (plan.key, plan.arm, plan.fingerprint)

    def lease(self, cut: anyio.CancelScope) -> Lease:
        """Hand it to a request."""
        return Lease(
            endpoint=self.plan.endpoint,
            upstream=self.upstream,
            arm=self.plan.arm,
            engine_id=self.engine_id,
            cut=cut,
        )


class Engines(Generic[C]):
    """Every engine of the daemon, by key."""

    def __init__(
        self,
        *,
        make_actor: Callable[[EngineKey], Actor],
        connect: Callable[[Endpoint], AbstractAsyncContextManager[C]],
        seat_for: Callable[[str], Seat],
        on_change: Callable[[Seat], None],
        on_judged: Callable[[LaunchPlan, Verdict], None] = lambda _plan, _verdict: None,
        ran_out: Callable[[LaunchPlan, EngineView], Verdict | None] = lambda _plan, _view: None,
    ) -> None:
        self._make_actor, self._connect, self._seat_for = make_actor, connect, seat_for
        self._on_change, self._on_judged, self._ran_out = on_change, on_judged, ran_out
        self._actors: dict[EngineKey, Actor] = {}
        self._lives: dict[EngineKey, anyio.CancelScope] = {}
        self._running: dict[Seat, Running[C]] = {}
        self._deaths: dict[str, FailureView] = {}
        self._tasks: TaskGroup | None = None
        self._began, self._over = anyio.Event(), False

    async def run(self) -> None:
        """Own the supervisors until cancelled; each stops its engine on the way out."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._began.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    self._over = True
        finally:
            with anyio.CancelScope(shield=True):
                for seat in tuple(self._running):
                    await self._retire(seat)

    def running(self, seat: Seat) -> Running[C] | None:
        """What was brought up on a seat, also while it recovers from a crash."""
        return self._running.get(seat)

    def all_running(self) -> tuple[tuple[Seat, Running[C]], ...]:
        """What was brought up, with its seat, in their order."""
        return tuple(sorted(self._running.items(), key=itemgetter(0)))

    def wedged(self, device: DeviceKey) -> tuple[tuple[Seat, LaunchPlan], ...]:
        """What the kernel does not let go of, also where it is not what was brought up any more."""
        return tuple(
            (self._seat_for(key.profile), actor.plan)
            for key, actor in sorted(self._actors.items(), key=itemgetter(0))
            if key.device == device and actor.view().state == WEDGED and actor.plan is not None
        )

    def ready(self, seat: Seat) -> Running[C] | None:
        """What serves on a seat now."""
        running = self._running.get(seat)
        return running if running is not None and running.is_ready else None

    def views(self) -> tuple[EngineView, ...]:
        """Every engine that was ever asked for, by key."""
        return tuple(self._actors[key].view() for key in sorted(self._actors))

    def plans(self) -> tuple[LaunchPlan, ...]:
        """How every engine is started that runs, is about to, or failed last."""
        actors = (self._actors[key] for key in sorted(self._actors))
        return tuple(plan for actor in actors if (plan := actor.plan) is not None)

    async def bring_up(
        self, plan: LaunchPlan, reason: str, *, fresh: bool = False, terms: Terms = Terms.SERVE
    ) -> Running[C]:
        """Start a plan; what else runs on its seat is stopped first.

        Args:
            plan: What to start.
            reason: Why the others are stopped.
            fresh: Start anew even if the same serves already.
            terms: Whether it may lie outside device memory although the plan does not
                accept that.

        Raises:
            MisfitError: It does not fit: device memory ran out while it was loaded, or it was
                stopped before any request could reach it.
            EngineError: It did not become ready, or another engine could not be stopped.
                Its supervisor may still be trying (``retrying``).
        """
        seat = self._seat_for(plan.key.profile)
        present = self.ready(seat)
        if present is not None and present.is_as_planned(plan) and not fresh:
            if terms is Terms.SERVE and present.is_degraded:
                await self.stop(seat, "it does not fit")
                raise MisfitError(plan, present.verdict)
            present.terms = terms
            return present
        await self.stop(seat, reason)
        actor = await self._actor(plan.key)
        view = await _start(actor, plan)
        if view.state == READY:
            self._on_judged(plan, actor.verdict)
            if terms is Terms.SERVE and not plan.accept_offload:
                await _refuse_misfit(plan, actor)
            running = await self._install(plan, actor, terms)
            view = actor.view()
            if view.state == READY:
                running.engine_id = view.id
                return running
            await self._retire(seat)  # it died while it was being connected to
        if (short := self._ran_out(plan, view)) is not None:
            self._on_judged(plan, short)
            raise MisfitError(plan, short)
        raise failure_of(view)

    async def adopt(self, key: EngineKey) -> None:
        """Count a start that its supervisor still tries as what runs on its seat."""
        actor = await self._actor(key)
        if actor.plan is not None:
            await self._install(actor.plan, actor, Terms.SERVE)

    def retrying(self, key: EngineKey) -> bool:
        """Whether the supervisor goes on trying after a failure."""
        return key in self._actors and self._actors[key].view().state == "backoff"

    async def stop(self, seat: Seat, reason: str) -> None:
        """Stop whatever runs on a seat.

        Raises:
            EngineError: The kernel does not let go of a process.
        """
        was = await self._retire(seat)
        for key, actor in tuple(self._actors.items()):
            if actor is was or self._seat_for(key.profile) == seat:
                await _rest(actor, reason)

    def dismiss(self, profile: str) -> None:
        """Forget the supervisors of a profile that are at rest."""
        for key, actor in tuple(self._actors.items()):
            if key.profile == profile and actor.view().state in AT_REST:
                del self._actors[key]
                self._lives.pop(key).cancel()

    async def until_gone(self, seat: Seat, engine_id: str) -> None:
        """Wait until a start is no longer the one that serves."""
        running = self._running.get(seat)
        if running is not None:
            revision = running.actor.revision
            while running.engine_id == engine_id and running.is_ready:
                revision = await running.actor.wait_change(revision)
        self._on_change(seat)

    async def why_gone(self, seat: Seat, engine_id: str) -> FailureView | None:
        """Of what a start has died; None if it lives, or was stopped on purpose.

        Its supervisor is given a moment to say so.
        """
        with anyio.move_on_after(RECHECK_S):
            await self.until_gone(seat, engine_id)
        for actor in self._actors.values():
            self._note_death(actor)
        return self._deaths.get(engine_id)

    def _note_death(self, actor: Actor) -> None:
        """Keep why a start has died: its supervisor only knows it until the next one."""
        view = actor.view()
        if view.failure is not None:
            self._deaths[view.id] = view.failure
            for oldest in tuple(self._deaths)[:-DEATHS_KEPT]:
                del self._deaths[oldest]

    async def _actor(self, key: EngineKey) -> Actor:
        await self._began.wait()
        if self._over:
            raise EngineError("the daemon is stopping", failure=FailureClass.KILLED_BY_OPERATOR)
        if key not in self._actors:
            assert self._tasks is not None  # noqa: S101 - set before the event
            actor = self._actors[key] = self._make_actor(key)
            self._lives[key] = anyio.CancelScope()
            self._tasks.start_soon(self._own, key, actor)
        return self._actors[key]

    async def _own(self, key: EngineKey, actor: Actor) -> None:
        with self._lives[key]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(actor.run)
                tasks.start_soon(self._watch, key.profile, actor)

    async def _watch(self, profile: str, actor: Actor) -> None:
        revision = actor.revision
        while True:
            revision = await actor.wait_change(revision)
            self._note_death(actor)
            self._on_change(self._seat_for(profile))

    async def _install(self, plan: LaunchPlan, actor: Actor, terms: Terms) -> Running[C]:
        async with AsyncExitStack() as opening:
            upstream = EndpointUpstream(plan.endpoint)
            opening.callback(upstream.close)
            client = await opening.enter_async_context(self._connect(plan.endpoint))
            opened = opening.pop_all()
        running = self._running[self._seat_for(plan.key.profile)] = Running(
            plan=plan,
            actor=actor,
            engine_id="",
            client=client,
            upstream=upstream,
            opened=opened,
            terms=terms,
        )
        return running

    async def _retire(self, seat: Seat) -> Actor | None:
        """Close what is connected to the engine of a seat, before it is stopped; its supervisor."""
        running = self._running.pop(seat, None)
        if running is None:
            return None
        await running.opened.aclose()
        return running.actor


async def _start(actor: Actor, plan: LaunchPlan) -> EngineView:
    """Start a plan on an actor at rest and wait for the outcome; undone if cancelled."""
    actor.start(plan)
    try:
        return await actor.settled()
    except BaseException:
        actor.stop("the start was cancelled")
        with anyio.move_on_after(STOP_S, shield=True):
            await actor.settled()
        raise


async def _refuse_misfit(plan: LaunchPlan, actor: Actor) -> None:
    """Stop an engine that is not resident, before any request can reach it."""
    verdict = actor.verdict
    if degraded(verdict):
        await _rest(actor, "it does not fit")
        raise MisfitError(plan, verdict)


async def _rest(actor: Actor, reason: str) -> None:
    if actor.view().state in AT_REST:
        return
    actor.stop(reason)
    try:
        view = await actor.settled()
    except BaseException:  # nobody would know that it is still there, and start beside it
        with anyio.move_on_after(STOP_S, shield=True):
            await actor.settled()
        raise
    if view.state not in AT_REST:
        raise failure_of(view)


def failure_of(view: EngineView) -> EngineError:
    """The error that says why an engine does not serve."""
    if view.state == WEDGED:
        said = f"{view.profile} is wedged: the kernel does not let go of its process {view.pid}"
        return EngineError(said, failure=FailureClass.WEDGED, hint=_WEDGED_HINT)
    if view.failure is None:
        return EngineError(f"{view.profile} is {view.state}", failure="crash")
    return EngineError(view.failure.reason, failure=view.failure.failure, hint=view.failure.hint)
