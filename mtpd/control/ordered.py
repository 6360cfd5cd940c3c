"""The arm that an operator's order to serve a model means. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.errors import InvalidError

if TYPE_CHECKING:
    from mtpd.config.model import Profile
    from mtpd.control.choices import Choices
    from tuner.types import Arm

__all__ = ["ordered_arm"]


def ordered_arm(choices: Choices, profile: Profile, depth: int | None, *, measured: bool) -> Arm:
    """The arm to serve: the named depth, the measured choice, else what is served now.

    Raises:
        InvalidError: The profile does not allow the depth, there is no measured choice, or
            both were asked for.
    """
    if not measured:
        return choices.arm_for(profile.name) if depth is None else _arm(profile, depth)
    if depth is not None:
        msg = "a depth and the measured choice exclude each other"
        raise InvalidError(msg, hint="name one of them")
    if choices.measured(profile.name) is None:
        msg = f"{profile.name} has no measured choice to go back to"
        raise InvalidError(msg, hint=f"mtpctl tune {profile.name} makes one")
    return choices.of_unpinned(profile).arm


def _arm(profile: Profile, depth: int) -> Arm:
    try:
        return profile.arm(depth)
    except ValueError as error:
        raise InvalidError(
            str(error), hint="raise drafter.max_depth in its profile, or ask for less"
        ) from error
