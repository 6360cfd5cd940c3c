"""When a loaded model has not been asked for long enough to be unloaded; pure.

A model is asked for as long as a request of it waits or runs, a stream until its end. The
time without one counts from the end of the last, or from when its engine became ready if
none has come since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

__all__ = ["Idle", "Ttl"]

Ttl = Callable[[str], float]
"""Seconds that a profile may stay loaded without a request; 0 means for ever."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Who is asked for, and who is loaded.

    Attributes:
        asked: Requests that wait or run, by profile; nobody with none.
        since: Profiles with a ready engine, each with when it was last of use.
    """

    asked: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)

    def came(self, profile: str) -> Self:
        """A request has come."""
        return replace(self, asked={**self.asked, profile: self.asked.get(profile, 0) + 1})

    def went(self, profile: str, now: float) -> Self:
        """A request has ended, wherever it was."""
        left = self.asked.get(profile, 0) - 1
        asked = {name: count for name, count in self.asked.items() if name != profile}
        if left > 0:
            asked[profile] = left
        since = {**self.since, profile: now} if profile in self.since else self.since
        return replace(self, asked=asked, since=since)

    def loaded(self, profile: str, now: float) -> Self:
        """Its engine is ready."""
        return replace(self, since={**self.since, profile: now})

    def gone(self, profile: str) -> Self:
        """Its engine does not serve any more."""
        return replace(self, since={name: at for name, at in self.since.items() if name != profile})

    def due(self, now: float, ttl_s: Ttl) -> tuple[str, ...]:
        """Those whose time is up, the longest unused first."""
        up = [(at, name) for name, at in self._ends(ttl_s) if at <= now]
        return tuple(name for _, name in sorted(up))

    def next_due(self, ttl_s: Ttl) -> float | None:
        """When the next one's time is up; None if nobody's will be without further news."""
        return min((at for _, at in self._ends(ttl_s)), default=None)

    def _ends(self, ttl_s: Ttl) -> list[tuple[str, float]]:
        return [
            (name, at + limit_s)
            for name, at in self.since.items()
            if name not in self.asked and (limit_s := ttl_s(name)) > 0
        ]
