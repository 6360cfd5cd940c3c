"""The control loop: what happens is learnt from, then the policy is asked, then it is done.

One task, the only caller of the policy. Every end of a request, every engine start, memory
that grows, and a timer make it look; what it decides goes to the journal, the log and the
API as one sentence. It acts in mode idle only, and never while a request runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from mtpd.control.live_rows import profile_view
from mtpd.control.remembered import Said
from mtpd.control.sensing import Found, Use
from mtpd.control.waking import MEASURING
from mtpd.errors import MtpdError
from mtpd.events import (
    DecisionMade,
    DeviceCapChanged,
    EngineTransition,
    MachineResumed,
    MemoryCreeps,
    OperationChanged,
    RequestFinished,
    ResidencyJudged,
)
from mtpd.live_views import LiveView
from mtpd.units import MIB
from tuner.handover import recent_restarts
from tuner.moment import (
    DAY_S,
    Alert,
    Growth,
    Intent,
    Keep,
    Mode,
    Remeasure,
    Restart,
    Rules,
    SetDepth,
    SwitchModel,
)
from tuner.policy import effect, intend

if TYPE_CHECKING:
    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.effects import Board, Effects
    from mtpd.control.live import LiveTraffic
    from mtpd.control.recorder import StoreRecorder
    from mtpd.control.sensing import Sensing
    from mtpd.events import Event
    from mtpd.operations import Operations
    from tuner.moment import PolicyState
    from tuner.types import Arm

__all__ = ["ControlLoop", "rules_of"]

log = structlog.get_logger()

EVERY_S: Final = 5.0
"""Seconds between two looks while nothing happens; silence is what a switch waits for."""

PAUSE_S: Final = 0.25
"""Least time between two looks, however much happens."""

NEXT_S: Final = 0.25
"""How long the next request is waited for where some have ended since the last look."""

MEASURE_IDLE: Final = 10
"""A measurement waits for this many times the silence that a switch waits for: it takes
minutes, and is lost if a request comes."""

LAST_SAVE_S: Final = 1.0
"""Bound on the last write, which a stopping daemon waits for."""

INBOX: Final = 10_000
"""Events that may wait while something is measured; beyond them the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What the last look at a model found."""

    found: Found
    intent: Intent


class ControlLoop:
    """Learns, asks the policy, acts.

    Args:
        config: The mode, and what it permits.
        traffic: Learns.
        sensing: Puts together what the policy is told.
        effects: Does what it decides.
        recorder: Writes down what it would do.
        board: Says what serves, and who waits.
        operations: Nothing is decided while an operator's runs.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        traffic: LiveTraffic,
        sensing: Sensing,
        effects: Effects,
        recorder: StoreRecorder,
        board: Board,
        operations: Operations,
        clock: Clock,
    ) -> None:
        self._config, self._traffic, self._sensing = config, traffic, sensing
        self._effects, self._recorder = effects, recorder
        self._board, self._operations, self._clock = board, operations, clock
        self._inbox: deque[tuple[float, Event]] = deque(maxlen=INBOX)
        self._posted = anyio.Event()
        self._ended_s = clock.now()
        self._crashes: deque[float] = deque()
        self._looks: dict[str, _Look] = {}

    def hear(self, event: Event) -> None:
        """Take an event of the bus; most kinds are none of the loop's business."""
        match event:
            case RequestFinished():
                self._ended_s = self._clock.now()
                self._inbox.append((self._ended_s, event))
            case EngineTransition() | MemoryCreeps() | ResidencyJudged():
                self._inbox.append((self._clock.now(), event))
            case MachineResumed():
                self._ended_s = self._clock.now()  # whoever wakes a machine is about to use it
                self._inbox.append((self._ended_s, event))
                self._operations.abort(MEASURING, event.reason)
            case DecisionMade() | DeviceCapChanged() | OperationChanged():
                pass
            case _:
                return
        self._posted.set()

    async def run(self) -> None:
        """Look until cancelled; what was learnt is written down at the end."""
        try:
            while True:
                with anyio.move_on_after(EVERY_S):
                    await self._posted.wait()
                self._posted = anyio.Event()
                try:
                    if await self.step():
                        self._posted.set()
                except MtpdError as error:
                    log.warning("live.no_look", reason=str(error), hint=error.hint)
                await anyio.sleep(PAUSE_S)
        finally:
            with anyio.move_on_after(LAST_SAVE_S, shield=True):
                await self._traffic.save(now=True)

    async def step(self) -> bool:
        """Learn from what has happened, then look once at every engine that serves.

        Returns:
            Whether anything was done, so that another look is due at once. What could not be
            done is wanted again as it was: it waits for news, or for the timer.
        """
        acted = False
        # What comes meanwhile waits for the next step: quick traffic would have no end.
        if not await self._learn_all():
            # The counters moved by several requests. The next one, taken at once, has its own.
            await self._learn_all()
            if not self._inbox:
                self._posted = anyio.Event()
                with anyio.move_on_after(NEXT_S):
                    await self._posted.wait()
            await self._learn_all()
        if self._operations.current is None:
            serving = self._serving()
            self._looks = {name: one for name, one in self._looks.items() if name in serving}
            for name, arm in serving.items():
                profile = self._config.profiles.get(name)
                if profile is not None:  # a reload may take it away between two looks
                    acted = await self._look(profile, arm) or acted
        await self._traffic.save()
        return acted

    def view(self) -> LiveView:
        """Live traffic, and what would be done about it."""
        shown = []
        for profile, watched in self._traffic.seen():
            look = self._looks.get(profile.name)
            found = Found() if look is None else look.found
            calibration = found.calibration
            shown.append(
                profile_view(
                    profile.name,
                    watched.state,
                    calibration_id=None if calibration is None else calibration.decision_id,
                    stale=(*found.stale, *watched.doubts),
                    moved=tuple(watched.moved),
                    intent=None if look is None else look.intent,
                )
            )
        return LiveView(mode=self._config.tuning.mode.value, profiles=tuple(shown))

    # Inside -------------------------------------------------------------------------

    async def _learn_all(self) -> bool:
        """Learn from all that is there; False where a request is not the only one of its engine."""
        alone = True
        for _ in range(len(self._inbox)):
            alone = await self._learn(*self._inbox.popleft()) and alone
        return alone

    async def _learn(self, at_s: float, event: Event) -> bool:
        """Learn from an event; False of a request after which others of its engine have ended."""
        latest = True
        match event:
            case RequestFinished(engine_id=engine_id):
                since = (other for _, other in self._inbox if isinstance(other, RequestFinished))
                latest = all(other.engine_id != engine_id for other in since)
                await self._traffic.finished(event, at_s, latest=latest)
            case EngineTransition():
                await self._moved(event, at_s)
            case MemoryCreeps():
                self._traffic.grows(event, _growth(event))
            case MachineResumed():
                self._traffic.resumed(at_s)
            case ResidencyJudged():
                self._traffic.proven(event.profile, at_s)
            case _:
                pass
        return latest

    async def _moved(self, event: EngineTransition, at_s: float) -> None:
        if (event.old, event.new) == ("backoff", "spawning"):
            self._crashes.append(at_s)
        await self._traffic.moved_on(event, at_s)
        profile = self._config.profiles.get(event.profile)
        if profile is not None and event.new == "ready":
            # Before its first request is learnt from: what it is compared with.
            await self._sensing.look(profile)

    async def _look(self, profile: Profile, running: Arm) -> bool:
        watched, rules = self._traffic.of(profile), rules_of(self._config)
        contests = await self._sensing.contests(profile, running)
        found = replace(await self._sensing.look(profile), contests=contests)
        moment = await self._sensing.moment(profile, running, found, self._use(profile, rules))
        before = watched.state.policy
        after, intent = intend(rules, before, moment)
        watched.drifted = False
        self._looks[profile.name] = _Look(found, intent)
        self._traffic.remember(
            profile, replace(watched.state, policy=after), worth=_worth(before, after)
        )
        done = await self._act(profile, found, intent)
        if not done:
            self._traffic.remember(
                profile, replace(watched.state, policy=_undone(before, after)), worth=True
            )
        if rules.mode is Mode.OBSERVE:
            await self._say(profile, rules, intent)
        return done and not isinstance(effect(intent.decision), Keep)

    async def _act(self, profile: Profile, found: Found, intent: Intent) -> bool:
        """Do what was decided; False where a request came first."""
        decision = intent.decision
        match effect(decision):
            case Keep():
                return True
            case Alert():
                await self._recorder.decide(decision, inputs={"automatic": True})
                return True
            case SetDepth(arm=arm):
                return await self._effects.switch(decision, arm, found.calibration)
            case SwitchModel(arm=arm, pool=pool):
                (contest,) = (one for one in found.contests if one.pool.name == pool)
                done = await self._effects.switch_model(decision, arm, contest)
                if done and arm.profile in self._serving():
                    self._traffic.handed_over(profile, arm.profile, pool)
                return done
            case Restart(arm=arm):
                return await self._effects.restart(decision, arm)
            case Remeasure(arm=arm):
                return await self._effects.measure(decision, arm.profile)

    async def _say(self, profile: Profile, rules: Rules, intent: Intent) -> None:
        """Journal what would be done, once per change of mind and dwell time."""
        watched = self._traffic.of(profile)
        said, wish, now_s = watched.state.said, intent.wish, watched.state.policy.clock_s
        before = (None, None) if said is None else (said.act, said.arm)
        now = (None, None) if wish is None else (wish.act, wish.arm)
        if now == before or (said is not None and now_s - said.at_s < rules.dwell_s):
            return
        await self._recorder.decide(intent.decision, inputs={"automatic": True})
        say = Said(act=now[0], arm=now[1], at_s=now_s)
        self._traffic.remember(profile, replace(watched.state, said=say), worth=True)

    def _serving(self) -> dict[str, Arm]:
        """What is ready, by model; models that the configuration has no more are left alone."""
        return {
            engine.profile: engine.arm.arm()
            for engine in self._board.engines()
            if engine.state == "ready" and engine.arm and engine.profile in self._config.profiles
        }

    def _use(self, profile: Profile, rules: Rules) -> Use:
        queue, now_s = self._board.queue(), self._clock.now()
        while self._crashes and now_s - self._crashes[0] > DAY_S:
            self._crashes.popleft()
        others = sum(
            recent_restarts(watched.state.policy, now_s)
            for other, watched in self._traffic.seen()
            if other.name != profile.name
        )
        return Use(
            requests=queue.in_flight + queue.waiting,
            idle_s=now_s - self._ended_s,
            other_restarts=others + len(self._crashes),
            serving=frozenset(self._serving()),
            hopeless=self._effects.hopeless,
            dwell_s=rules.dwell_s,
        )


def rules_of(config: Configuration) -> Rules:
    """What the configuration permits."""
    tuning = config.tuning
    return Rules(
        mode=Mode(tuning.mode.value),
        dwell_s=tuning.min_dwell_s,
        restarts_per_day=tuning.max_restarts_per_day,
        idle_s=tuning.min_idle_s,
        measure_idle_s=MEASURE_IDLE * tuning.min_idle_s,
    )


def _growth(event: MemoryCreeps) -> Growth:
    says = f"it grew by {event.grown_bytes // MIB} MiB in {event.window_s / 60:.0f} min"
    if event.full_in_s is not None:
        says += f" and the card is full in {event.full_in_s / 60:.0f} min"
    return Growth(says=says, full_in_s=event.full_in_s)


def _worth(before: PolicyState, after: PolicyState) -> bool:
    """Whether a state is worth a write: more has changed than the time."""
    same_time = replace(
        after, clock_s=before.clock_s, seen_s=before.seen_s, watched_s=before.watched_s
    )
    return same_time != before


def _undone(before: PolicyState, after: PolicyState) -> PolicyState:
    """The state after a decision that came to nothing: it cost no restart."""
    return replace(
        after,
        restarts=before.restarts,
        previous=before.previous,
        returns=before.returns,
        measured_s=before.measured_s,
    )
