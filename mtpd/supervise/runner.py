"""Carries out what the machine decides; the only writer of one engine's state.

Everyone else posts: ``start``, ``stop`` and ``condemn`` return at once, ``settled`` waits.
All of it belongs to the loop's thread. Not covered: draining requests, choosing what to
start, and what to do about a verdict that does not pass.
"""

from __future__ import annotations

import signal
from collections import deque
from typing import TYPE_CHECKING, assert_never

import anyio
import structlog

from mtpd.clock import rfc3339
from mtpd.supervise import moves
from mtpd.supervise.check import Check
from mtpd.supervise.herald import Herald
from mtpd.supervise.life import Life, unheard
from mtpd.supervise.logfile import LogFile, log_path
from mtpd.supervise.machine import step
from mtpd.supervise.messages import (
    ArmTimer,
    Condemn,
    DisarmTimer,
    EndProbe,
    Healthy,
    Judged,
    Probed,
    Progress,
    Released,
    Signal,
    Spawn,
    Start,
    StartProbe,
    Stop,
    TimedOut,
    Unhealthy,
    WaitRelease,
)
from mtpd.supervise.ports import NoCard
from mtpd.supervise.present import engine_view, plan_of, verdict_of
from mtpd.supervise.starter import Starter
from mtpd.supervise.states import (
    AtRest,
    Cause,
    Engine,
    Loading,
    Ready,
    Settled,
    Spawning,
    Wedged,
    label,
)
from mtpd.supervise.stopper import Stopper
from mtpd.supervise.waiters import Waiters
from mtpd.supervise.watch import Watch, no_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from anyio.abc import TaskGroup

    from mtpd.clock import Clock
    from mtpd.engine.facts import Fact
    from mtpd.events import Event as Announcement
    from mtpd.faults import Faults
    from mtpd.supervise.life import Hear
    from mtpd.supervise.messages import Effect, Event
    from mtpd.supervise.ports import Card, LedgerWriter, Probe, Spawner
    from mtpd.supervise.pulse import Pulse
    from mtpd.supervise.states import State
    from mtpd.types import EngineKey, LaunchPlan, Verdict
    from mtpd.units import EngineId
    from mtpd.views import EngineView

__all__ = ["EngineActor"]

log = structlog.get_logger()

PROGRESS_S = 0.2
"""Output moves the stall timer at most this often: a flood must not fill the inbox."""
TAIL = 50


class EngineActor:
    """Owns the engine of one profile on one device.

    Attributes:
        key: Which profile, on which device.
    """

    def __init__(
        self,
        *,
        key: EngineKey,
        spawner: Spawner,
        ledger: LedgerWriter,
        clock: Clock,
        faults: Faults,
        probe: Probe,
        log_dir: Path | None,
        on_event: Callable[[Announcement], None],
        rng: Callable[[], float],
        new_id: Callable[[], EngineId],
        on_fact: Callable[[EngineId, Fact], None] | None = None,
        on_lines: Hear = unheard,
        card: Card | None = None,
        pulse: Pulse | None = None,
        record: Callable[[LaunchPlan], Awaitable[float | None]] = no_record,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.key = key
        self._ledger, self._card = ledger, card or NoCard()
        self._check = Check(probe, self._card)
        self._clock, self._faults, self._new_id, self._sleep = clock, faults, new_id, sleep
        self._log_dir, self._on_fact, self._on_lines = log_dir, on_fact, on_lines
        self._herald = Herald(key=key, clock=clock, on_event=on_event)
        self._starter = Starter(
            key=key,
            spawner=spawner,
            ledger=ledger,
            probe=probe,
            card=self._card,
            clock=clock,
            faults=faults,
            rng=rng,
            post=self._post,
        )
        self._stopper = Stopper(spawner)
        self._watch = Watch(
            probe=probe,
            pulse=pulse,
            card=self._card,
            record=record,
            clock=clock,
            post=self._post,
            creeps=self._herald.creeps,
        )
        self._engine = Engine()
        self._life: Life | None = None
        self._inbox: deque[Event] = deque()
        self._posted = self._processed = 0
        self._wake: anyio.Event | None = None
        self._waiters = Waiters()
        self._timer, self._probing = anyio.CancelScope(), anyio.CancelScope()
        self._watching, self._releasing = anyio.CancelScope(), anyio.CancelScope()
        self._printed_at = self._heard_at = float("-inf")
        self._since = rfc3339(clock.utc())
        self._closing = self._over = False

    # What others see ----------------------------------------------------------------

    @property
    def engine_id(self) -> EngineId | None:
        """Id of the latest start, None before the first."""
        return self._life.engine_id if self._life else None

    @property
    def plan(self) -> LaunchPlan | None:
        """What runs, is about to, or last failed; None when stopped."""
        return plan_of(self._engine.state)

    @property
    def verdict(self) -> Verdict:
        """The residency of the running engine; unknown until it is ready."""
        return verdict_of(self._engine.state)

    @property
    def revision(self) -> int:
        """Grows with every change of the state; see ``wait_change``."""
        return self._waiters.revision

    def view(self) -> EngineView:
        """The engine as the API shows it."""
        return engine_view(
            self._engine,
            key=self.key,
            engine_id=self.engine_id,
            since=self._since,
            now=self._clock.now(),
            log_tail=self._life.output.ring.tail(TAIL) if self._life else (),
        )

    # What others ask for ------------------------------------------------------------

    def start(self, plan: LaunchPlan) -> None:
        """Want this plan to serve; another one that runs is stopped first."""
        self._post(Start(plan))

    def stop(self, reason: str) -> None:
        """Want the memory back; the caller has drained the requests."""
        self._post(Stop(reason))

    def condemn(self, reason: str) -> None:
        """Say that the ready engine hangs; ``reason`` continues "the engine ..."."""
        self._post(Condemn(now=self._clock.now(), reason=reason))

    async def settled(self) -> EngineView:
        """Wait until all that was asked for so far has led to a settled state.

        Settled are ready, stopped, failed, wedged and backoff.
        """
        done = self._processed == self._posted and isinstance(self._engine.state, Settled)
        if done or self._over:
            return self.view()
        return await self._waiters.settled(after=self._posted)

    async def wait_change(self, revision: int) -> int:
        """Wait until the revision is above the given one, and return it."""
        return await self._waiters.changed(since=revision)

    # The owner task -----------------------------------------------------------------

    async def run(self) -> None:
        """Own the engine until cancelled; then stop it, in bounded time, before returning."""
        bound, guard = anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)
        async with anyio.create_task_group() as outer:
            outer.start_soon(self._await_end, bound, guard)
            try:
                with bound:
                    async with anyio.create_task_group() as tasks:
                        await self._process(tasks)
                        if isinstance(self._engine.state, Wedged):
                            tasks.cancel_scope.cancel()  # its end is not waited for
            finally:
                self._over = True
                guard.cancel()
                self._leave()
            outer.cancel_scope.cancel()

    async def _await_end(self, bound: anyio.CancelScope, guard: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._closing = True
            self._releasing.cancel()
            self._post(Stop("mtpd ends"))
            with guard:
                # Not for device memory, which nobody is going to use.
                after_s = moves.end_s(self._life.plan) if self._life else 0.0
                await anyio.sleep(after_s)
                log.error("engine.end_given_up", engine=self.engine_id, after_s=after_s)
                bound.cancel()

    def _leave(self) -> None:
        """Leave nothing behind, also where something went wrong."""
        if self._life and not isinstance(self._engine.state, AtRest):
            self._life.kill(signal.SIGKILL)
        self._waiters.wake_settled(processed=self._posted, view=self.view)
        self._waiters.wake_changed()

    async def _process(self, tasks: TaskGroup) -> None:
        while True:
            while self._inbox:
                self._handle(self._inbox.popleft(), tasks)
            if self._closing and isinstance(self._engine.state, AtRest):
                return
            self._wake = anyio.Event()
            await self._wake.wait()

    def _post(self, event: Event) -> None:
        if self._over:
            return
        self._posted += 1
        self._inbox.append(event)
        if self._wake is not None:
            self._wake.set()

    def _handle(self, event: Event, tasks: TaskGroup) -> None:
        before = self._engine
        self._engine, effects = step(before, event)
        self._processed += 1
        for effect in effects:
            self._execute(effect, tasks)
        self._announce(before, event, tasks)
        if isinstance(self._engine.state, Settled):
            self._waiters.wake_settled(processed=self._processed, view=self.view)

    # Effects ------------------------------------------------------------------------

    def _execute(self, effect: Effect, tasks: TaskGroup) -> None:
        match effect:
            case Spawn():
                self._releasing.cancel()
                self._life = life = self._new_life(effect)
                tasks.start_soon(
                    self._starter.live, life, lambda: isinstance(self._engine.state, Spawning)
                )
            case StartProbe(start=start):
                self._probing = anyio.CancelScope()
                tasks.start_soon(self._look_whether, self._probing, start)
            case EndProbe():
                self._probing.cancel()
            case Signal(name=name):
                self._faults.hit(f"stop.before_{name.lower()}")
                if self._life is not None:
                    self._stopper.signal(self._life, name, tasks)
            case ArmTimer():
                self._timer.cancel()
                self._timer = anyio.CancelScope()
                tasks.start_soon(self._time, self._timer, effect)
            case DisarmTimer():
                self._timer.cancel()
            case WaitRelease():
                self._releasing.cancel()
                self._releasing = anyio.CancelScope()
                tasks.start_soon(self._await_release, self._releasing, effect)
            case _:
                assert_never(effect)

    async def _time(self, scope: anyio.CancelScope, effect: ArmTimer) -> None:
        with scope:
            await self._sleep(effect.seconds)
            self._post(TimedOut(timer=effect.timer, now=self._clock.now()))

    async def _await_release(self, scope: anyio.CancelScope, effect: WaitRelease) -> None:
        """Nobody is going to use the memory any more once the daemon ends."""
        held: Cause | None = None
        life = self._life
        with scope:
            if life is not None and self._closing:
                self._card.withdrawn(life.engine_id)
            elif life is not None:
                held = await self._card.released(
                    life.engine_id, life.pid, life.before, reset=effect.reset
                )
                await self._starter.returned(life, held=held is not None)
        if not scope.cancelled_caught or self._closing:
            self._post(Released(start=effect.start, now=self._clock.now(), held=held))

    async def _look_whether(self, scope: anyio.CancelScope, start: int) -> None:
        """Post what comes of a probe, unless it is ended first."""
        life = self._life
        if life is None:
            return
        with scope:
            found = await self._check.outcome(life, lambda: self._post(Healthy(start=start)))
            if isinstance(found, Cause):
                self._post(Unhealthy(start=start, cause=found))
            else:
                self._post(Probed(start=start, now=self._clock.now(), verdict=found))

    # One process --------------------------------------------------------------------

    def _new_life(self, spawn: Spawn) -> Life:
        folder, key = self._log_dir, self.key
        file = LogFile(log_path(folder, key.profile, key.device)) if folder else None
        return Life(
            start=spawn.start,
            engine_id=self._new_id(),
            plan=spawn.plan,
            file=file,
            on_fact=self._on_fact,
            on_lines=self._on_lines,
            on_output=self._heard,
        )

    def _heard(self, life: Life) -> None:
        """Tell the machine that the loading engine printed something, but not every time."""
        self._printed_at = now = self._clock.now()
        if isinstance(self._engine.state, Loading) and now - self._heard_at >= PROGRESS_S:
            self._heard_at = now
            self._post(Progress(start=life.start, now=now, lines=life.output.ring.total))

    # News ---------------------------------------------------------------------------

    def _announce(self, before: Engine, event: Event, tasks: TaskGroup) -> None:
        state, life = self._engine.state, self._life
        if life and isinstance(event, Progress) and isinstance(state, Loading):
            self._herald.progress(state.lines, life.engine_id)
        if life and isinstance(event, Judged) and state is not before.state:
            self._judged(life, state, tasks)
            self._waiters.wake_changed()
        if label(before.state) == label(state):
            return
        self._since = rfc3339(self._clock.utc())
        self._waiters.wake_changed()
        self._herald.moved(before, self._engine, self.engine_id)
        if life and isinstance(state, Wedged):
            self._card.withdrawn(life.engine_id)  # whoever starts next must not wait for it
        if life and isinstance(state, Ready):
            self._judged(life, state, tasks)
            self._watching = anyio.CancelScope()
            tasks.start_soon(self._look_after, self._watching, life, state.verdict)
        else:
            self._watching.cancel()

    def _judged(self, life: Life, state: State, tasks: TaskGroup) -> None:
        if isinstance(state, Ready):
            self._herald.judged(state, life.engine_id)
            entry = self._ledger.judged(life.engine_id, state.verdict)
            tasks.start_soon(self._starter.note, life, entry)

    async def _look_after(self, scope: anyio.CancelScope, life: Life, verdict: Verdict) -> None:
        with scope:
            await self._watch.over(life, verdict, printed_at=lambda: self._printed_at)
