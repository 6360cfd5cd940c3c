"""The members of the running model's pools, side by side as they were measured.

Covers finding each member's newest measurements that hold today, and the member that they name
by the pool's rules. It takes no decision and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from anyio import to_thread

from mtpd.config.model import Offload
from mtpd.control.choices import never_tuned
from mtpd.control.pooling import Field
from mtpd.control.rivals import named
from mtpd.control.tasks import member_of, pool_rules
from mtpd.errors import MtpdError
from tuner.candidates import Candidate
from tuner.select import choose
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Config, Pool, Profile
    from mtpd.control.choices import Choices
    from mtpd.control.deciding import Member, PoolInputs
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.rivals import Named
    from mtpd.control.standing import Standing
    from mtpd.store.journal import Journal
    from mtpd.views import MeasurementView
    from tuner.plan import History
    from tuner.types import Arm

__all__ = ["Contest", "Contests"]

log = structlog.get_logger()

EVERY_S: Final = 5.0
"""How old a comparison may be: what is stored seldom changes, requests end all the time."""


class Stood(Protocol):
    """Finds what decisions rest on; ``StoreRecorder`` is the real one."""

    async def standing(self, decision_id: int) -> Standing | None:
        """What a decision about a depth rests on; None where that was not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A pool's members, for one that runs.

    Attributes:
        pool: The pool.
        inputs: All that the comparison rests on.
        measurements: The stored repetitions in it.
        named: The member that is better by the pool's rules, or None.
        unmeasured: Members that nothing is stored of under today's fingerprint, by the arm
            that would be started first.
    """

    pool: Pool
    inputs: PoolInputs
    measurements: tuple[MeasurementView, ...] = ()
    named: Named | None = None
    unmeasured: tuple[Arm, ...] = ()


@dataclass(slots=True)
class _Entry:
    """A member that was measured."""

    member: Member
    told: History
    measurements: tuple[MeasurementView, ...]


@dataclass(slots=True)
class _Look:
    """A comparison, of what model and in which configuration it was made."""

    profile: Profile
    config: Config
    at_s: float
    found: tuple[Contest, ...] = field(default=())


class Contests:
    """Compares the members of pools by what is stored.

    Args:
        config: Models and pools.
        choices: At which arm a member is served.
        digest: A profile's fingerprint as it would be started now; blocks.
        memory: Predicts device memory.
        misfit: Something where an arm is known not to fit.
        journal: Finds the decision that measured last.
        recorder: Finds what it rests on.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        choices: Choices,
        digest: Callable[[Profile], str],
        memory: Callable[[Profile], Awaitable[MemoryForecast]],
        misfit: Callable[[Profile, Arm], object | None],
        journal: Journal,
        recorder: Stood,
        clock: Clock,
    ) -> None:
        self._config, self._choices, self._digest = config, choices, digest
        self._memory, self._misfit = memory, misfit
        self._journal, self._recorder, self._clock = journal, recorder, clock
        self._stood: dict[str, tuple[int, Standing | None]] = {}
        self._looks: dict[tuple[str, Arm], _Look] = {}

    async def of(self, profile: Profile, running: Arm) -> tuple[Contest, ...]:
        """The pools of a model that runs, in the order of the configuration."""
        now_s, config = self._clock.now(), self._config.now
        self._looks = {
            key: look
            for key, look in self._looks.items()
            if now_s - look.at_s < EVERY_S and look.config is config
        }
        known = self._looks.get((profile.name, running))
        if known is None or known.profile != profile:
            pools = [
                (p, Field.of(p, config)) for p in config.pools.values() if profile.name in p.members
            ]
            found = [await self._contest(p, among, profile, running) for p, among in pools]
            known = _Look(profile, config, now_s, tuple(found))
            self._looks[profile.name, running] = known
        return known.found

    async def _contest(self, pool: Pool, among: Field, profile: Profile, running: Arm) -> Contest:
        entries: list[_Entry] = []
        unmeasured: list[Arm] = []
        for one in among.members:
            if never_tuned(one) is not None:
                continue
            digest = await self._today(one)
            if digest is None:
                continue
            standing = await self._standing(one, digest)
            if standing is None:
                unmeasured.append(one.initial_arm())
            elif (entry := await self._entry(one, standing)) is not None:
                entries.append(entry)
        unmeasured.sort(key=lambda arm: arm.profile != profile.name)
        home = next((e for e in entries if e.member.arm.profile == profile.name), None)
        inputs = replace(
            pool_rules(pool),
            incumbent=None if home is None else home.member.arm,
            members=tuple(entry.member for entry in entries),
        )
        return Contest(
            pool=pool,
            inputs=inputs,
            measurements=tuple(one for entry in entries for one in entry.measurements),
            named=None if home is None else await to_thread.run_sync(_named, inputs, home, running),
            unmeasured=tuple(unmeasured),
        )

    async def _today(self, profile: Profile) -> str | None:
        """The fingerprint as of now; None where the model could not be started."""
        try:
            return await to_thread.run_sync(self._digest, profile, abandon_on_cancel=True)
        except MtpdError as error:
            log.debug("live.no_fingerprint", model=profile.name, reason=str(error))
            return None

    async def _standing(self, profile: Profile, digest: str) -> Standing | None:
        """What was measured of a model and holds today; None where nothing was."""
        number = await self._journal.latest_measured(profile.name, digest)
        if number is None:
            return None
        known = self._stood.get(profile.name)
        if known is None or known[0] != number:
            known = self._stood[profile.name] = number, await self._recorder.standing(number)
        standing = known[1]
        return standing if standing is not None and standing.told.observations else None

    async def _entry(self, profile: Profile, standing: Standing) -> _Entry | None:
        """A member at the arm at which it would be served; None where nothing says which."""
        told = standing.told
        arm = await self._arm(profile, told)
        if arm is None or self._misfit(profile, arm) is not None:
            return None
        forecast = await self._memory(profile)
        return _Entry(member_of(profile, arm, told, forecast), told, standing.measurements)

    async def _arm(self, profile: Profile, told: History) -> Arm | None:
        """What is served, if that was chosen and measured; else what the measurements name."""
        held = self._choices.of_profile(profile)
        if held.measured or held.pinned:
            return held.arm if any(one.arm == held.arm for one in told.observations) else None
        accept = profile.offload is Offload.ACCEPT
        chosen = partial(choose, told, subject=profile.name, accept_offload=accept)
        arm = (await to_thread.run_sync(chosen)).arm
        return arm if arm is not None and profile.allows(arm) else None


def _named(inputs: PoolInputs, home: _Entry, running: Arm) -> Named | None:
    rows = [member.candidate() for member in inputs.members]
    own = next(row for row in rows if row.arm == home.member.arm)
    summaries = summarise(home.told.observations, home.told.starts)
    now = next((row for row in summaries if row.arm == running), None)
    return None if now is None else named(inputs, rows, own, Candidate.of(now))
