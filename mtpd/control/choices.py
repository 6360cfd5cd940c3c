"""Which arm each model and pool is served at; the one writer of that.

Covers what was chosen (from the journal), what an operator pinned, and what holds while
nothing was measured. It takes no decision itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from mtpd.errors import NotFoundError
from mtpd.views import ArmView, ChoiceView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool, Profile
    from mtpd.views import DecisionView
    from tuner.types import Arm

__all__ = ["Choice", "Choices"]

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
    """

    def __init__(
        self,
        config: Configuration,
        files: Callable[[Profile], object] = lambda _: None,
        instead: Callable[[Profile, Arm], tuple[Arm, str] | None] = lambda _profile, _arm: None,
    ) -> None:
        self._config = config
        self._files, self._instead = files, instead
        self._chosen: dict[str, Choice] = {}
        self._chosen_for: dict[str, object] = {}
        self._pinned: dict[str, Choice] = {}

    def adopt(self, decision: DecisionView, *, keep_pin: bool = False) -> None:
        """Serve the decision's subject at its arm from now on; drops an operator's pin."""
        if decision.arm is None:
            return
        profile = self._config.profiles.get(decision.arm.profile)
        arm = None if profile is None else _allowed(profile, decision.arm)
        if arm is None:
            log.info("choice.void", subject=decision.subject, reason="not in the configuration")
            return
        if not keep_pin:
            self._pinned.pop(decision.subject, None)
        self._chosen[decision.subject] = Choice(
            arm=arm, reason=decision.reason, decision_id=decision.id, measured=True
        )
        self._chosen_for[decision.subject] = self._files(self._config.profiles[arm.profile])

    def forget(self, subjects: Iterable[str]) -> None:
        """Drop what was chosen for models and pools, and pins that are not allowed any more."""
        for subject in subjects:
            self._chosen.pop(subject, None)
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
        why = _CHANGED if profile.name in self._chosen else "not measured yet"
        origin = "its profile names this depth" if profile.drafter.depth else "no speculation"
        return Choice(arm=arm, reason=f"{why}: {origin} until mtpctl tune {profile.name} has run")

    def of_pool(self, pool: Pool) -> Choice:
        """The arm of a pool: the chosen member's as it is served now, else the first's."""
        choice = self._valid(pool.name)
        if choice is not None and choice.arm.profile in pool.members:
            held = self.of_profile(self._config.profiles[choice.arm.profile])
            if held.arm == choice.arm:
                return choice
            # A pin or a later tuning of the member alone moved its depth, not the pool's model.
            reason = f"{choice.reason}; at depth {held.arm.depth} since: {held.reason}"
            return replace(
                choice,
                arm=held.arm,
                reason=reason,
                measured=held.measured,
                pinned=held.pinned,
            )
        first = self._config.profiles[pool.members[0]]
        held = self.of_profile(first)
        return Choice(
            arm=held.arm,
            reason=f"the members of {pool.name} were not compared yet: its first one, "
            f"until mtpctl tune {pool.name} has run",
            pinned=held.pinned,
        )

    def chosen(self, subject: str) -> Choice | None:
        """What measurements chose for a model or pool and still holds, pinned or not, or None."""
        return self._valid(subject)

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


def _allowed(profile: Profile, wanted: ArmView) -> Arm | None:
    """The arm, if the profile as it is now makes exactly this one; the depth is not all."""
    if not 0 <= wanted.depth <= profile.drafter.max_depth:
        return None
    arm = profile.arm(wanted.depth)
    return arm if ArmView.of(arm) == wanted else None
