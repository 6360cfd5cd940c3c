"""What must go so that an engine fits beside the others of its device. Pure.

One step at a time: what an engine gives back is known for certain only once it is gone, so
the card is read again after each. Covers the rule of exclusive groups and the rule of
bytes; an engine that is alone on its device is left to its own start to prove.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.types import Absent, NotApplicable
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.proxy.seats import Seat

__all__ = [
    "Demand",
    "Go",
    "Holder",
    "Need",
    "Refuse",
    "Source",
    "Step",
    "Unload",
    "next_step",
]


class Source(enum.StrEnum):
    """Who says how much memory an engine takes; the words that follow the figure."""

    MEASURED = "measured"
    """Its last start, or the engine that runs now."""
    FORECAST = "forecast"
    """The model file's header and the profile, at the upper end of the error."""
    BOUND = "upper bound"
    """The header of a model that the forecast does not cover: maybe much less."""
    DECLARED = "declared"
    """``vram_mib`` in its profile."""
    MISFIT = "it did not fit into less"
    """A start that was given too little."""


@dataclass(frozen=True, slots=True)
class Need:
    """Memory that an engine takes at most.

    Attributes:
        count: Bytes.
        source: Who says so.
    """

    count: int
    source: Source

    def __str__(self) -> str:
        return f"{_mib(self.count)} {self.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """An engine that is about to be brought up.

    Attributes:
        name: Its arm, for sentences.
        need: What it takes at most, or why that is not known.
        free: Bytes that it may take now, what must stay free already left out; why that is
            not known; not applicable where memory is not counted.
        own_bytes: What the engine that it takes the place of gives back at least.
        unloads: The group for whose rule the others go, or None where it lets them be.
    """

    name: str
    need: Need | Absent
    free: int | Absent | NotApplicable
    own_bytes: int = 0
    unloads: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Another engine of the device.

    Attributes:
        seat: Where it runs.
        profile: Whose it is.
        held: What it holds, or is going to hold; or why that is not known.
        loaded: Whether it holds them already; one that starts again after a crash does not.
        busy: Whether requests run on it or wait for it.
        same_group: Whether it is in the group of what is brought up.
        persistent: Whether it stays.
        stuck: Whether the kernel does not let go of its process: it stays, too.
        used_at: When a request used it last.
    """

    seat: Seat
    profile: str
    held: Need | Absent
    loaded: bool = True
    busy: bool = False
    same_group: bool = False
    persistent: bool = False
    stuck: bool = False
    used_at: float = 0.0

    @property
    def known_bytes(self) -> int:
        """What is certain to come back when it goes."""
        return 0 if isinstance(self.held, Absent) else self.held.count

    def __str__(self) -> str:
        said = self.held.reason if isinstance(self.held, Absent) else str(self.held)
        stays = ", persistent" if self.persistent else ""
        stays += ", cannot be ended" if self.stuck else ""
        return f"{self.profile} ({said}{stays})"


@dataclass(frozen=True, slots=True)
class Go:
    """It may be started."""


@dataclass(frozen=True, slots=True)
class Unload:
    """This one goes first, drained; then ask again."""

    holder: Holder
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """It cannot be started beside what stays."""

    reason: str


Step = Go | Unload | Refuse


def next_step(demand: Demand, holders: Sequence[Holder]) -> Step:
    """What to do next so that a demand is met.

    Idle engines go before busy ones, the least recently used first, and none whose memory
    is not needed. A persistent one never goes, and a stuck one cannot.
    """
    staying = [one for one in holders if one.persistent or one.stuck]
    may_go = sorted((one for one in holders if one not in staying), key=_turn)
    ruled_out = [one for one in may_go if demand.unloads is not None and not one.same_group]
    if ruled_out:
        rule = f"{demand.name} is brought up in the group {demand.unloads}, which is exclusive"
        return Unload(ruled_out[0], rule)
    if not holders or isinstance(demand.free, NotApplicable):
        return Go()
    asked = _asked(demand, holders)
    if isinstance(asked, str):
        why = f"{demand.name} is not loaded beside others: {asked}"
        return Unload(may_go[0], why) if may_go else Refuse(f"{why}; {_listed(holders)} stays")
    need, room = asked
    if need.count <= room:
        return Go()
    needs = f"{_mib(need.count)} of memory ({need.source})"
    lacks = f"{demand.name} needs {needs} and {_mib(room)} are free"
    all_known = not any(isinstance(one.held, Absent) for one in may_go)
    most = room + sum(one.known_bytes for one in may_go)
    if not may_go or (staying and all_known and most < need.count):
        return Refuse(f"{lacks}, beside {_listed(holders)}")
    return Unload(_victim(need.count - room, may_go), lacks)


def _asked(demand: Demand, holders: Sequence[Holder]) -> tuple[Need, int] | str:
    """What is needed and bytes that there are, or why that cannot be said."""
    if isinstance(demand.need, Absent):
        return f"what it needs is not known ({demand.need.reason})"
    if not isinstance(demand.free, int):
        return f"what is free is not known ({demand.free.reason})"
    promised = 0
    for one in holders:
        if one.loaded:
            continue
        if isinstance(one.held, Absent):
            return f"what {one.profile} is going to hold is not known ({one.held.reason})"
        promised += one.held.count
    return demand.need, demand.free + demand.own_bytes - promised


def _victim(lacking: int, may_go: Sequence[Holder]) -> Holder:
    """The first of those in turn without which the lacking bytes do not come back."""
    taken: list[Holder] = []
    for one in may_go:
        taken.append(one)
        if sum(each.known_bytes for each in taken) >= lacking:
            break
    for one in reversed(taken[:-1]):
        if sum(each.known_bytes for each in taken if each is not one) >= lacking:
            taken.remove(one)
    return taken[0]


def _turn(holder: Holder) -> tuple[bool, float, str]:
    return holder.busy, holder.used_at, holder.profile


def _listed(holders: Sequence[Holder]) -> str:
    return ", ".join(str(one) for one in holders)


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
