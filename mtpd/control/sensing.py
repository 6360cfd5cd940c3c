"""What the policy is told of a model that serves: its traffic, its measurements, its card.

Covers finding the measurements that the model is compared with and whether they still hold,
and putting together one moment. It takes no decision and changes nothing but what live
traffic is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from anyio import to_thread

from mtpd.control.calibration import MEASURE_S, calibration_of, changes
from mtpd.errors import MtpdError
from mtpd.types import Value
from mtpd.views import encode
from tuner.live import broken_head
from tuner.moment import Moment
from tuner.outlook import outlook
from tuner.rivals import Rival

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mtpd.clock import Clock
    from mtpd.config.model import Profile
    from mtpd.control.calibration import Calibration
    from mtpd.control.choices import Choices
    from mtpd.control.contests import Contest, Contests
    from mtpd.control.live import LiveTraffic, Watched
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.standing import Standing
    from mtpd.engine.fingerprint import Fingerprint
    from mtpd.store.journal import Journal
    from mtpd.store.samples import Measurements
    from mtpd.types import Reading
    from mtpd.views import GateView, Json
    from tuner.outlook import Prospect
    from tuner.types import Arm

__all__ = ["Found", "Sensing", "Use"]

log = structlog.get_logger()

START_S: Final = 60.0
"""What an engine start is taken to cost until one was timed, seconds."""

NEVER: Final = ""


class Planner(Protocol):
    """Makes fingerprints; ``LaunchPlanner`` is the real one."""

    def fingerprint(self, profile: Profile) -> Fingerprint:
        """Everything that a result of this profile depends on except the depth."""


class Memory(Protocol):
    """Predicts device memory; ``MemoryPlanner`` is the real one."""

    async def forecast(self, profile: Profile) -> MemoryForecast:
        """Every depth of a profile."""


class Stood(Protocol):
    """Finds what decisions rest on; ``StoreRecorder`` is the real one."""

    async def standing(self, decision_id: int) -> Standing | None:
        """What a decision about a depth rests on; None where that was not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much the device is in use.

    Attributes:
        requests: Requests that run or wait.
        idle_s: Seconds since the last one ended.
        other_restarts: Engine starts of the last day that the policy did not ask for.
        serving: Models that serve.
        hopeless: Models that could not be started or measured when that was tried.
        dwell_s: Seconds for which a model that was asked for by its own name stays.
    """

    requests: int
    idle_s: float
    other_restarts: int = 0
    serving: frozenset[str] = frozenset()
    hopeless: frozenset[str] = frozenset()
    dwell_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The measurements that a model is compared with.

    Attributes:
        calibration: They, or None where the model was never measured.
        stale: Why they do not hold any more, one clause each.
        same_texts: Whether the acceptance is as it was when they were taken.
        contests: The model's pools, as what is stored compares their members.
    """

    calibration: Calibration | None = None
    stale: tuple[str, ...] = ()
    same_texts: bool = True
    contests: tuple[Contest, ...] = ()


class Sensing:
    """Puts moments together.

    Args:
        traffic: What live requests taught.
        choices: What an operator pinned.
        planner: Makes fingerprints.
        memory: Predicts which depths fit.
        misfit: The arm to serve in place of one that is known not to fit; None if it may.
        journal: Finds the decision that measured last.
        recorder: Finds what it rests on.
        measurements: Finds what its fingerprint stands for.
        contests: Compares the members of pools.
        cap_w: The power cap in force.
        gates: The conditions of measuring.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        traffic: LiveTraffic,
        choices: Choices,
        planner: Planner,
        memory: Memory,
        misfit: Callable[[Profile, Arm], object | None],
        journal: Journal,
        recorder: Stood,
        measurements: Measurements,
        contests: Contests,
        cap_w: Callable[[], Reading[float]],
        gates: Callable[[], Awaitable[tuple[GateView, ...]]],
        clock: Clock,
    ) -> None:
        self._traffic, self._choices = traffic, choices
        self._planner, self._memory, self._misfit = planner, memory, misfit
        self._journal, self._recorder, self._measurements = journal, recorder, measurements
        self._contests, self._cap_w, self._gates, self._clock = contests, cap_w, gates, clock
        self._read: dict[str, tuple[int, Calibration | None]] = {}

    async def look(self, profile: Profile) -> Found:
        """Find a model's measurements and compare what they hold for with what is so now."""
        if profile.opaque is not None:
            return Found()  # another program has no model file, and nothing of it is measured
        try:
            now = await to_thread.run_sync(
                self._planner.fingerprint, profile, abandon_on_cancel=True
            )
        except MtpdError as error:
            # The engine that runs has its file open; what would be started now is not known.
            log.debug("live.no_fingerprint", model=profile.name, reason=str(error))
            return Found()
        number = await self._journal.latest_measured(profile.name, now.digest)
        if number is None:
            number = await self._journal.latest_measured(profile.name)
        calibration = None if number is None else await self._calibration(profile.name, number)
        if calibration is None:
            return Found()
        before = await self._measurements.fingerprint(calibration.fingerprint)
        if before is None and calibration.fingerprint == now.digest:
            before = _fields(now)
        stale, same_texts = changes(before, self._in_force(now))
        self._traffic.calibrated(profile, calibration, same_texts=same_texts)
        return Found(calibration=calibration, stale=stale, same_texts=same_texts)

    async def moment(self, profile: Profile, running: Arm, found: Found, use: Use) -> Moment:
        """All that the policy decides from."""
        rivals = self._rivals(profile, found.contests, use)
        unmeasured = _unmeasured(found.contests, use)
        watched = self._traffic.of(profile)
        calibration, state = found.calibration, watched.state
        at_s = self._clock.now()
        doubtful = bool(found.stale or watched.doubts or state.policy.doubts)
        start_s = START_S if state.start_s is None else state.start_s
        return Moment(
            at_s=at_s,
            running=running,
            prospects=await self._prospects(profile, running, calibration, watched),
            tokens_per_s=state.demand.look(at_s).tokens_per_s,
            switch_cost_s=start_s + state.cache_s,
            measure_cost_s=MEASURE_S if calibration is None else calibration.spent_s,
            calibration=NEVER if calibration is None else calibration.name,
            stale=found.stale,
            doubts=watched.doubts,
            drifted=watched.drifted,
            broken=broken_head(state.live, running),
            growth=watched.growth,
            unmeasurable=await self._unmeasurable() if doubtful or unmeasured else None,
            requests=use.requests,
            idle_s=use.idle_s,
            other_restarts=use.other_restarts,
            pinned=self._choices.of_profile(profile).pinned,
            rivals=rivals,
            unmeasured=unmeasured,
        )

    async def contests(self, profile: Profile, running: Arm) -> tuple[Contest, ...]:
        """The pools of a model that runs, as what is stored compares their members."""
        return await self._contests.of(profile, running)

    def _rivals(self, profile: Profile, contests: Sequence[Contest], use: Use) -> tuple[Rival, ...]:
        """Models that are better by a pool's rules, with how much is asked of that pool."""
        found: list[Rival] = []
        for contest in contests:
            named, pool = contest.named, contest.pool
            if named is None or named.arm.profile in use.serving | use.hopeless:
                continue
            found.append(
                Rival(
                    pool=pool.name,
                    arm=named.arm,
                    gain=named.gain,
                    sd=named.sd,
                    counts=named.counts,
                    tps=named.tps,
                    now_tps=named.now_tps,
                    tokens_per_s=self._traffic.asked_by(profile, pool.name),
                    held=self._traffic.needs(profile, named.arm.profile, within_s=use.dwell_s),
                    reason=named.reason,
                    evidence=named.evidence,
                )
            )
        return tuple(found)

    async def _prospects(
        self, profile: Profile, running: Arm, calibration: Calibration | None, watched: Watched
    ) -> tuple[Prospect, ...]:
        if calibration is None:
            return ()
        out = {one.arm for one in (await self._memory.forecast(profile)).out}

        def fits(arm: Arm) -> bool:
            return arm not in out and self._misfit(profile, arm) is None

        costs = calibration.costs(profile, running, fits)
        return outlook(watched.state.live, costs, running) if costs else ()

    async def _calibration(self, profile: str, number: int) -> Calibration | None:
        """What a decision measured; a journalled one never changes."""
        known = self._read.get(profile)
        if known is not None and known[0] == number:
            return known[1]
        standing = await self._recorder.standing(number)
        found = None if standing is None else await to_thread.run_sync(calibration_of, standing)
        self._read[profile] = number, found
        return found

    async def _unmeasurable(self) -> str | None:
        """Why nothing could be measured at this moment; what is not known yet is no reason."""
        failed = [gate.reason for gate in await self._gates() if gate.state == "failed"]
        return failed[0] if failed else None

    def _in_force(self, now: Fingerprint) -> dict[str, Json]:
        """The fields as they are, not as they are declared: a cap may be set by anybody."""
        fields, cap_w = _fields(now), self._cap_w()
        if fields.get("power_cap_w") is not None and isinstance(cap_w, Value):
            fields["power_cap_w"] = float(cap_w.value)
        return fields


def _unmeasured(contests: Sequence[Contest], use: Use) -> tuple[Arm, ...]:
    """Members of the pools that nothing is stored of, each once."""
    arms = (arm for contest in contests for arm in contest.unmeasured)
    return tuple(dict.fromkeys(arm for arm in arms if arm.profile not in use.hopeless))


def _fields(found: Fingerprint) -> dict[str, Json]:
    return {name: encode(value) for name, value in found.describe().items()}
