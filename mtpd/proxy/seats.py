"""Which engines may run at the same time: seats, one engine each, by device and group. Pure.

A group of llama-swap that swaps is one seat; in one that does not, every member has its
own. Models of no group share the default one, which swaps and is exclusive. Not covered:
whether two engines fit beside each other (``mtpd.proxy.room``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mtpd.config.model import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.config.model import Profile
    from mtpd.units import DeviceKey

__all__ = ["DEFAULT", "Grouped", "Seat", "Seating"]

DEFAULT = Group(name="(default)")
"""The group of models that no group lists, as llama-swap calls it; no file can name one so."""


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """A place for one engine at a time.

    Attributes:
        device: Where.
        group: Whose.
        member: The only profile that it is for, in a group that does not swap; else "".
    """

    device: DeviceKey
    group: str = DEFAULT.name
    member: str = ""

    def __str__(self) -> str:
        return f"{self.group}/{self.member}" if self.member else self.group


class Grouped(Protocol):
    """What a configuration says of groups."""

    @property
    def groups(self) -> Mapping[str, Group]:
        """By name."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """By name."""


class Seating:
    """Finds the seat of a profile, and the group of a seat.

    Args:
        config: The groups, read anew at each question.
        device_for: The device of a profile.
    """

    def __init__(self, config: Grouped, *, device_for: Callable[[str], DeviceKey]) -> None:
        self._config, self._device_for = config, device_for

    def seat(self, profile: str) -> Seat:
        """Where the engine of a profile runs."""
        group = self._group_of(profile)
        return Seat(self._device_for(profile), group.name, "" if group.swap else profile)

    def seats(self) -> tuple[Seat, ...]:
        """Every seat that a configured profile may take, in order."""
        return tuple(sorted({self.seat(profile) for profile in self._config.profiles}))

    def group(self, seat: Seat) -> Group:
        """The rules of a seat; those of the default group once its own is gone."""
        return self._config.groups.get(seat.group, DEFAULT)

    def _group_of(self, profile: str) -> Group:
        groups = self._config.groups.values()
        return next((group for group in groups if profile in group.members), DEFAULT)
