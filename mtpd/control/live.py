"""What live requests have taught, by model; the one writer of that.

Covers learning from finished requests and engine starts, drift, and remembering all of it
across lives of the daemon. It takes no decision (``mtpd.control.loop``).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from mtpd.control.calibration import UNCALIBRATED
from mtpd.control.observed import to_request, with_counters
from mtpd.control.remembered import STATE_SCHEMA, Remembered, dump, load
from mtpd.errors import StoreError
from mtpd.proxy.route import EXACTLY, Asked
from mtpd.types import Absent
from tuner.carry import recalibrated, restarted
from tuner.demand import Demand
from tuner.drift import Direction
from tuner.handover import handed_over, left_behind
from tuner.live import KEPT, Live, push
from tuner.moment import DOUBTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.calibration import Calibration
    from mtpd.engine.prom import SpecCounters
    from mtpd.events import EngineTransition, MemoryCreeps, RequestFinished
    from mtpd.gpu.window import Around
    from mtpd.store.live_states import LiveStates
    from tuner.live import Alarm
    from tuner.moment import Growth

__all__ = ["LiveTraffic", "Watched"]

log = structlog.get_logger()

SAVE_S: Final = 10.0
"""What a kill of the daemon may lose; every end of a request would be a write of its own."""

MOVED: Final = 3
"""Latest drifts that are shown."""


class Counters(Protocol):
    """Reads the engines' own counters; ``Meter`` is the real one."""

    async def moved(self, profile: str, engine_id: str) -> SpecCounters | Absent:
        """What they moved by since they were last read."""


@dataclass(slots=True, eq=False, kw_only=True)
class Watched:
    """One model, and what is known of it only in this life of the daemon.

    Attributes:
        state: What is remembered.
        drifted: Whether its acceptance drifted since the loop last looked.
        doubts: Why its calibration must not be trusted.
        moved: The latest drifts, each one clause.
        growth: Device memory that its engine gains, or None.
        began_s: When its engine was last spawned.
        asked: When it was last asked for, by the name and tags that were used.
    """

    state: Remembered
    drifted: bool = False
    doubts: tuple[str, ...] = ()
    moved: deque[str] = field(default_factory=lambda: deque(maxlen=MOVED))
    growth: Growth | None = None
    began_s: float | None = None
    asked: dict[Asked, float] = field(default_factory=dict)


class LiveTraffic:
    """Learns from what the daemon relays.

    Args:
        config: The models.
        states: Where it is remembered.
        meter: Reads the engines' counters.
        around: What the card's readings between two moments say of it.
        on_card: Whether engines run on a card; where there is none, no layer can leave it, and
            a slow step is a busy machine.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        states: LiveStates,
        meter: Counters,
        around: Callable[[float, float], Around],
        on_card: bool,
        clock: Clock,
    ) -> None:
        self._config, self._states, self._meter = config, states, meter
        self._around, self._on_card, self._clock = around, on_card, clock
        self._watched: dict[str, Watched] = {}
        self._unsaved: set[str] = set()
        self._later: set[str] = set()
        self._saved_s = clock.now()
        self._woke_s: float | None = None
        self._proven: dict[str, float] = {}

    async def restore(self) -> None:
        """Take over what earlier lives of the daemon learnt."""
        try:
            found = await self._states.all(schema=STATE_SCHEMA)
        except StoreError as error:
            log.warning("live.not_restored", reason=str(error))
            return
        for name, text in found.items():
            profile, state = self._config.profiles.get(name), load(text)
            if isinstance(state, Absent):
                log.warning("live.forgotten", model=name, reason=state.reason)
            elif profile is not None and _is_of(state, profile):
                # Times are those of an engine start that is over.
                state = replace(state, live=restarted(state.live))
                self._watched[name] = Watched(state=state)

    def of(self, profile: Profile) -> Watched:
        """What is known of a model; nothing yet, if it was never seen."""
        known = self._watched.get(profile.name)
        if known is None or not _is_of(known.state, profile):
            known = self._watched[profile.name] = Watched(state=Remembered(live=_fresh(profile)))
        return known

    def seen(self) -> tuple[tuple[Profile, Watched], ...]:
        """Every configured model that had traffic, in the order of the configuration."""
        return tuple(
            (profile, self._watched[name])
            for name, profile in self._config.profiles.items()
            if name in self._watched and _is_of(self._watched[name].state, profile)
        )

    def asked_by(self, profile: Profile, pool: str) -> float:
        """Tokens per second that a model is expected to be asked for by a pool's name."""
        demand = self.of(profile).state.by_pool.get(pool, Demand())
        return demand.look(self._clock.now()).tokens_per_s

    def needs(self, profile: Profile, other: str, *, within_s: float) -> str | None:
        """Which request of the last seconds another model could not have answered, or None."""
        for asked, at_s in self.of(profile).asked.items():
            ago_s = self._clock.now() - at_s
            if ago_s < within_s and not self._answers(other, asked):
                tags = ":" + ",".join(asked.tags) if asked.tags else ""
                name = "its own name" if asked == EXACTLY else f"{asked.pool}{tags}"
                return f"{profile.name} was asked for by {name} {ago_s:.0f} s ago"
        return None

    def _answers(self, other: str, asked: Asked) -> bool:
        """Whether a request by this name may be answered by a model."""
        profile = self._config.profiles.get(other)
        if asked == EXACTLY or profile is None or not set(asked.tags) <= set(profile.tags):
            return False
        pool = self._config.pools.get(asked.pool)
        return pool is None or other in pool.members

    def handed_over(self, left: Profile, to: str, pool: str) -> None:
        """Another model of a pool answers for it now: what binds the policy goes with that."""
        target = self._config.profiles.get(to)
        if target is None:
            return  # a reload has taken it away meanwhile
        before, own, now_s = self.of(left).state, self.of(target).state, self._clock.now()
        demand = before.by_pool.get(pool, Demand())
        self.remember(
            target,
            replace(
                own,
                policy=handed_over(before.policy, own.policy, now_s),
                by_pool=own.by_pool | {pool: demand},
                said=None,
            ),
        )
        rest = {name: one for name, one in before.by_pool.items() if name != pool}
        self.remember(left, replace(before, policy=left_behind(before.policy), by_pool=rest))

    def remember(self, profile: Profile, state: Remembered, *, worth: bool = True) -> None:
        """Put another state in the place of a model's; one not worth a write waits for the end."""
        self.of(profile).state = state
        (self._unsaved if worth else self._later).add(profile.name)

    # What happens -------------------------------------------------------------------

    async def finished(self, event: RequestFinished, at_s: float, *, latest: bool = True) -> None:
        """Learn from a request that ended at a moment of the clock.

        Args:
            event: The request.
            at_s: When it ended.
            latest: Whether no other request of its engine has ended since; else what the
                engine's counters have moved by is not of this request alone.
        """
        profile = self._config.profiles.get(event.profile)
        if profile is None or event.depth > profile.drafter.max_depth:
            return  # the configuration has changed meanwhile
        slowed = self._around(at_s - event.duration_s, at_s).slowed is not None
        suspended = bool(event.suspended_s) or self._unproven(event, at_s)
        one = to_request(event, profile.arm(event.depth), throttled=slowed, suspended=suspended)
        if event.outcome != "rejected":
            self.of(profile).asked[Asked(event.pool, event.tags)] = at_s
        if one is None:
            return
        countable = latest and profile.opaque is None
        if countable and (one.arm.depth or event.generated is None):
            moved = await self._meter.moved(profile.name, event.engine_id)
            told = event.completion_tokens
            one = one if isinstance(moved, Absent) else with_counters(one, moved, told)
        known = self.of(profile)
        live, alarms = push(known.state.live, one)
        tokens = event.generated or event.completion_tokens or 0
        demand = known.state.demand.look(at_s, tokens)
        by_pool = known.state.by_pool
        if event.pool:
            own = by_pool.get(event.pool, Demand())
            by_pool = by_pool | {event.pool: own.look(at_s, tokens)}
        cache_s = None if suspended else _cache_s(event)
        self.remember(
            profile,
            replace(
                known.state,
                live=live,
                demand=demand,
                by_pool=by_pool,
                cache_s=known.state.cache_s if cache_s is None else cache_s,
            ),
        )
        for alarm in alarms:
            self._alarmed(profile.name, known, alarm)

    async def moved_on(self, event: EngineTransition, at_s: float) -> None:
        """An engine's lifecycle moved; a new start has times of its own."""
        profile = self._config.profiles.get(event.profile)
        if profile is None:
            return
        known = self.of(profile)
        if event.new == "spawning":
            known.began_s = at_s
        elif event.new == "ready" and event.old != "ready":
            known.growth = None
            took_s = known.state.start_s if known.began_s is None else at_s - known.began_s
            state = replace(known.state, live=restarted(known.state.live), start_s=took_s)
            self.remember(profile, state)
            if profile.opaque is None:
                await self._meter.moved(profile.name, event.engine_id)

    def resumed(self, at_s: float) -> None:
        """The machine was suspended: nothing counts before an engine is seen to serve as before."""
        self._woke_s = at_s
        self._proven.clear()  # each was, when it became ready
        for known in self._watched.values():
            known.began_s = None  # a start that was slept through was not timed

    def proven(self, profile: str, at_s: float) -> None:
        """An engine answers, and its residency was judged."""
        self._proven[profile] = at_s

    def _unproven(self, event: RequestFinished, at_s: float) -> bool:
        """Whether an engine began a request before it was asked again after a suspend."""
        if self._woke_s is None:
            return False
        began_s = at_s - event.duration_s + (event.waited_s or 0.0)
        return began_s < max(self._woke_s, self._proven.get(event.profile, math.inf))

    def grows(self, event: MemoryCreeps, growth: Growth) -> None:
        """An engine's device memory grows while it serves."""
        profile = self._config.profiles.get(event.profile)
        if profile is not None:
            self.of(profile).growth = growth

    def calibrated(self, profile: Profile, found: Calibration, *, same_texts: bool) -> None:
        """Go on from other measurements than before, if these are others."""
        known = self.of(profile)
        if known.state.calibration == found.name:
            return
        keep = 1.0 if same_texts else KEPT
        live = recalibrated(
            known.state.live,
            (found.baseline,),
            found.step_s(profile),
            keep=keep if known.state.calibration else 0.0,  # what was learnt against nothing
        )
        known.doubts = ()
        self.remember(profile, replace(known.state, live=live, calibration=found.name))

    # Remembering --------------------------------------------------------------------

    async def save(self, *, now: bool = False) -> None:
        """Write down what has changed, at most every ``SAVE_S`` seconds."""
        at_s = self._clock.now()
        names = self._unsaved | (self._later if now else set())
        if not names or (not now and at_s - self._saved_s < SAVE_S):
            return
        states = {name: dump(self._watched[name].state) for name in sorted(names)}
        self._saved_s, self._unsaved = at_s, self._unsaved - names
        try:
            await self._states.put(states, schema=STATE_SCHEMA)
        except StoreError as error:
            self._unsaved |= names
            log.warning("live.not_saved", reason=str(error))

    def _alarmed(self, name: str, known: Watched, alarm: Alarm) -> None:
        """Something has moved: it is told, and what it voids is doubted."""
        says = str(alarm)
        log.info("live.moved", model=name, says=says)
        known.moved.append(says)
        known.drifted = known.drifted or alarm.acceptance is not Direction.NONE
        if alarm.voids and self._on_card:
            known.doubts = (*known.doubts, says)[:DOUBTS]


def _fresh(profile: Profile) -> Live:
    return Live(
        profile=profile.name, drafter=profile.drafter.kind, baselines=(UNCALIBRATED,), step_s=()
    )


def _is_of(state: Remembered, profile: Profile) -> bool:
    live = state.live
    return (live.profile, live.drafter) == (profile.name, profile.drafter.kind)


def _cache_s(event: RequestFinished) -> float | None:
    """Seconds that the cached part of the prompt would have taken; None if it is not told."""
    cached, prompt = event.cached_tokens, event.prompt_tokens
    took_s = event.prompt_s
    if cached is None or prompt is None or took_s is None or prompt <= cached:
        return None
    return cached * took_s / (prompt - cached)
