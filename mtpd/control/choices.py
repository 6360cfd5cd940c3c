"""Which arm each model and pool is served at; the one writer of that.

Covers what was chosen (from the journal), what an operator pinned, and what holds while
nothing was measured. It takes no decision itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from mtpd.config.model import Purpose
from mtpd.control.pooling import Comparison, Field
from mtpd.errors import NotFoundError
from mtpd.views import ArmView, ChoiceView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool, Profile
    from mtpd.control.deciding import PoolInputs
    from mtpd.views import DecisionView
    from tuner.types import Arm

__all__ = ["Choice", "Choices", "never_tuned"]

log = structlog.get_logger()

_CHANGED = "its file has changed since it was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An arm with why it is the one.

    Attributes:
        measured: Whether measurements chose it; an operator's pin and the configured
            starting depth are not measured.
        pinned: Whether an operator set it.
    """

    arm: Arm
    reason: str
    decision_id: int | None = None
    measured: bool = False
    pinned: bool = False


class Choices:
    """Answers which arm a name stands for; never starts anything.

    Args:
        config: The models and pools.
        files: What tells a model's files from others at the same paths, as they are now;
            the one part of its fingerprint that can change while the daemon runs.
        instead: The arm to serve in place of one that is known not to fit, and why; None
            where nothing is known against it. What an operator pinned is not asked about.
        changed: Told when another choice of measurements stands, or none any more.
    """

    def __init__(
        self,
        config: Configuration,
        files: Callable[[Profile], object] = lambda _: None,
        instead: Callable[[Profile, Arm], tuple[Arm, str] | None] = lambda _profile, _arm: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._changed = config, changed
        self._files, self._instead = files, instead
        self._chosen: dict[str, Choice] = {}
        self._chosen_for: dict[str, object] = {}
        self._pinned: dict[str, Choice] = {}
        self._compared: dict[str, Comparison] = {}

    def adopt(
        self, decision: DecisionView, compared: PoolInputs | None = None, *, keep_pin: bool = False
    ) -> None:
        """Serve the decision's subject at its arm from now on; drops an operator's pin.

        Args:
            decision: The choice.
            compared: Of a pool, the members as they were measured: requests that require
                tags are chosen for among them.
            keep_pin: Leave what an operator set.
        """
        if decision.arm is None:
            return
        profile = self._config.profiles.get(decision.arm.profile)
        arm = None if profile is None else _allowed(profile, decision.arm)
        if profile is None or arm is None:
            log.info("choice.void", subject=decision.subject, reason="not in the configuration")
            return
        if not keep_pin:
            self._pinned.pop(decision.subject, None)
        self._chosen[decision.subject] = Choice(
            arm=arm, reason=decision.reason, decision_id=decision.id, measured=True
        )
        self._chosen_for[decision.subject] = self._files(profile)
        self._compared.pop(decision.subject, None)
        if compared is not None:
            profiles = self._config.profiles
            known = tuple(one for one in compared.members if one.arm.profile in profiles)
            self._compared[decision.subject] = Comparison.of(
                replace(compared, members=known), lambda name: self._files(profiles[name])
            )
        self._changed()

    @contextmanager
    def proposed(self, decision: DecisionView, compared: PoolInputs) -> Iterator[None]:
        """Serve a pool's decision while the block brings it up; as before where that fails.

        Requests by the pool's name that come meanwhile wait for the new model, and do not
        bring the old one back.
        """
        held: tuple[dict[str, Any], ...] = (self._chosen, self._chosen_for, self._compared)
        before = [table.get(decision.subject) for table in held]
        self.adopt(decision, compared)
        try:
            yield
        except BaseException:
            for table, value in zip(held, before, strict=True):
                table.pop(decision.subject, None)
                if value is not None:
                    table[decision.subject] = value
            self._changed()
            raise

    def forget(self, subjects: Iterable[str]) -> None:
        """Drop what was chosen for models and pools, and pins that are not allowed any more."""
        for subject in subjects:
            self._chosen.pop(subject, None)
            self._compared.pop(subject, None)
        self._changed()
        for name, choice in tuple(self._pinned.items()):
            profile = self._config.profiles.get(name)
            if profile is None or not profile.allows(choice.arm):
                del self._pinned[name]

    def pin(self, arm: Arm, *, reason: str, decision_id: int | None) -> None:
        """Serve a model at an operator's depth, until it is tuned or the daemon ends."""
        self._pinned[arm.profile] = Choice(
            arm=arm, reason=reason, decision_id=decision_id, pinned=True
        )

    def unpin(self, profile: str) -> None:
        """Serve a model again as if no operator had set its depth."""
        self._pinned.pop(profile, None)

    def of_profile(self, profile: Profile) -> Choice:
        """The arm of a model: pinned, else chosen, else the configured starting depth."""
        pinned = self._pinned.get(profile.name)
        return self.of_unpinned(profile) if pinned is None else pinned

    def of_unpinned(self, profile: Profile) -> Choice:
        """The arm of a model whatever an operator set: chosen, else the starting depth.

        One that is known not to fit is not served.
        """
        choice = self._valid(profile.name) or self._initial(profile)
        other = self._instead(profile, choice.arm)
        if other is None:
            return choice
        arm, reason = other
        return replace(choice, arm=arm, reason=f"{reason}; {choice.reason}", measured=False)

    def _initial(self, profile: Profile) -> Choice:
        arm = profile.initial_arm()
        never = never_tuned(profile)
        if never is not None:
            return Choice(arm=arm, reason=f"nothing is tuned: {profile.name} {never}")
        why = _CHANGED if profile.name in self._chosen else "not measured yet"
        if not profile.drafter.max_depth:
            only = "its profile has no drafter, so depth 0 is the only one"
            return Choice(arm=arm, reason=f"{why}: {only}")
        origin = "its profile names this depth" if profile.drafter.depth else "no speculation"
        return Choice(arm=arm, reason=f"{why}: {origin} until mtpctl tune {profile.name} has run")

    def of_pool(self, pool: Pool) -> Choice:
        """The arm of a pool: the chosen member's as it is served now, else the first's.

        The first is that of the members that meet what the pool requires.
        """
        one = Field.of(pool, self._config.now)
        choice = self._valid(pool.name)
        if choice is None or choice.arm.profile not in pool.members:
            return self._uncompared(one, one.members[0])
        return self._as_served(choice)

    def among(self, one: Field, tags: frozenset[str]) -> Choice | None:
        """The choice among the members that have all of these tags; None where none has."""
        members = one.with_tags(tags)
        if not members:
            return None
        pool = self._config.pools.get(one.name)
        whole = None if pool is None else self.of_pool(pool)
        if whole is not None and not tags:
            return whole
        best = self._best(one, tags)
        if best is not None:
            return best
        if whole is not None and whole.arm.profile in {member.name for member in members}:
            return whole
        return self._uncompared(one, members[0], tags)

    def _best(self, one: Field, tags: frozenset[str]) -> Choice | None:
        """What the measurements say of some members of a pool; None where they say nothing."""
        found, standing = self._compared.get(one.name), self._valid(one.name)
        if found is None or standing is None:
            return None
        same = [m for m in one.members if found.files.get(m.name) == self._files(m)]
        decision = found.best(same, tags, standing.arm)
        if decision.arm is None:
            return None
        return self._as_served(
            Choice(
                arm=decision.arm,
                reason=decision.reason,
                decision_id=standing.decision_id,
                measured=True,
            )
        )

    def _as_served(self, choice: Choice) -> Choice:
        """The choice of a pool at the depth at which its member is served now."""
        held = self.of_profile(self._config.profiles[choice.arm.profile])
        if held.arm == choice.arm:
            return choice
        # A pin or a later tuning of the member alone moved its depth, not the pool's model.
        reason = f"{choice.reason}; at depth {held.arm.depth} since: {held.reason}"
        return replace(
            choice, arm=held.arm, reason=reason, measured=held.measured, pinned=held.pinned
        )

    def _uncompared(
        self, one: Field, profile: Profile, tags: frozenset[str] = frozenset()
    ) -> Choice:
        """A member that stands first, because the members were not compared."""
        held = self.of_profile(profile)
        which = (
            f"its first one with the tag {' and '.join(sorted(tags))}" if tags else "its first one"
        )
        until = f", until mtpctl tune {one.name} has run" if one.name in self._config.pools else ""
        return Choice(
            arm=held.arm,
            reason=f"the members of {one.name} were not compared yet: {which}{until}",
            pinned=held.pinned,
        )

    def chosen(self, subject: str) -> Choice | None:
        """What measurements chose for a model or pool and still holds, pinned or not, or None."""
        return self._valid(subject)

    def standing(self) -> dict[str, Choice]:
        """What measurements chose and still holds, by model and pool, whatever is pinned."""
        found = {subject: self._valid(subject) for subject in tuple(self._chosen)}
        return {subject: choice for subject, choice in found.items() if choice is not None}

    def measured(self, subject: str) -> Arm | None:
        """The arm that measurements chose for a model or pool, or None."""
        choice = self._valid(subject)
        return None if choice is None else choice.arm

    def arm_for(self, profile: str) -> Arm:
        """The arm at which a model is served now.

        Raises:
            NotFoundError: It is not configured any more.
        """
        found = self._config.profiles.get(profile)
        if found is None:
            msg = f"{profile} is not in the configuration any more"
            raise NotFoundError(msg, hint="mtpctl models lists what is")
        return self.of_profile(found).arm

    def pools(self) -> Mapping[str, str]:
        """Pool name to the profile it stands for now."""
        return {name: self.of_pool(pool).arm.profile for name, pool in self._config.pools.items()}

    def views(self) -> tuple[ChoiceView, ...]:
        """All choices: pools first, then models."""
        named = [(name, self.of_pool(pool)) for name, pool in self._config.pools.items()]
        named += [(name, self.of_profile(p)) for name, p in self._config.profiles.items()]
        return tuple(self.view(subject, choice) for subject, choice in named)

    def _valid(self, subject: str) -> Choice | None:
        """What was chosen, unless the model's files are not those any more that were measured."""
        choice = self._chosen.get(subject)
        if choice is None:
            return None
        profile = self._config.profiles.get(choice.arm.profile)
        if profile is None:
            return None
        return choice if self._files(profile) == self._chosen_for[subject] else None

    def view(self, subject: str, choice: Choice) -> ChoiceView:
        """One choice as the API shows it."""
        measured = self.measured(choice.arm.profile)
        return ChoiceView(
            subject=subject,
            arm=ArmView.of(choice.arm),
            reason=choice.reason,
            decision_id=choice.decision_id,
            measured=choice.measured,
            pinned=choice.pinned,
            measured_arm=None if measured is None else ArmView.of(measured),
        )


def never_tuned(profile: Profile) -> str | None:
    """Why nothing of a model is measured or chosen, to be read after its name, or None."""
    if profile.opaque is not None:
        return "is no llama-server (kind = 'opaque')"
    if profile.purpose is not Purpose.TEXT:
        return f"generates no text (purpose = {profile.purpose.value!r})"
    return None


def _allowed(profile: Profile, wanted: ArmView) -> Arm | None:
    """The arm, if the profile as it is now makes exactly this one; the depth is not all."""
    if not 0 <= wanted.depth <= profile.drafter.max_depth:
        return None
    arm = profile.arm(wanted.depth)
    return arm if ArmView.of(arm) == wanted else None
