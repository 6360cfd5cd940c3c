"""Which requests bring their engine down again and again: a pure record.

Every request that an engine worked on when it died is a suspect. The next time it runs
alone, so that a second death is its own doing; after so many deaths it is quarantined. One
death counts once, however many requests alike the engine worked on. A suspect that is
answered whole is none any more, and both are forgotten after a while.

Not covered: whether an engine died of itself (``mtpd.proxy.switch`` knows), and what a
fingerprint is made of (``mtpd.proxy.quarantine``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.types import Arm

__all__ = [
    "CULPABLE",
    "KEPT",
    "Death",
    "Entry",
    "Rules",
    "answered",
    "any_like",
    "died",
    "find",
    "released",
]

KEPT = 256
"""Requests that are remembered; the oldest are forgotten first."""

CULPABLE = frozenset({"crash", "oom_vram", "oom_host", "hang", "gpu_hang"})
"""Failure classes that a request can bring about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a request is quarantined.

    Attributes:
        after: Deaths that it takes; 0 for never.
        hold_s: Seconds for which a suspicion or a quarantine lasts.
    """

    after: int
    hold_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """An engine that died while it worked on a request.

    Attributes:
        request_id: Which request.
        path: Where it was sent.
        size_bytes: Of its body.
        engine_id: The start of the engine that died.
        arm: What the engine ran.
        cause: The failure class and the sentence of the engine's supervisor.
    """

    request_id: str
    path: str
    size_bytes: int
    engine_id: str
    arm: Arm
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A request that is suspected or quarantined.

    Attributes:
        fingerprint: Of the model and the body.
        deaths: Oldest first, at least one.
        until: When it is forgotten.
        quarantined: Whether it is refused.
    """

    fingerprint: str
    deaths: tuple[Death, ...]
    until: float
    quarantined: bool

    @property
    def profile(self) -> str:
        """The model that was asked for."""
        return self.deaths[-1].arm.profile


Record = tuple[Entry, ...]
"""Oldest first."""


def find(record: Record, fingerprint: str, now: float) -> Entry | None:
    """What is held against a request, if anything still is."""
    return next((e for e in record if e.fingerprint == fingerprint and e.until > now), None)


def any_like(record: Record, profile: str, size_bytes: int | None, now: float) -> bool:
    """Whether anything is held against a request of this model and size."""
    return any(
        e.profile == profile and e.deaths[-1].size_bytes == size_bytes and e.until > now
        for e in record
    )


def died(record: Record, fingerprint: str, death: Death, *, now: float, rules: Rules) -> Record:
    """An engine died while it worked on this request."""
    if rules.after == 0:
        return record
    known = find(record, fingerprint, now)
    if known is not None and death.engine_id in {one.engine_id for one in known.deaths}:
        return record
    deaths = (death,) if known is None else (*known.deaths, death)
    entry = Entry(
        fingerprint=fingerprint,
        deaths=deaths,
        until=now + rules.hold_s,
        quarantined=len(deaths) >= rules.after,
    )
    others = tuple(e for e in record if e.fingerprint != fingerprint and e.until > now)
    return (*others, entry)[-KEPT:]


def answered(record: Record, fingerprint: str) -> Record:
    """The request was answered whole; a quarantine is not lifted by it."""
    return tuple(e for e in record if e.quarantined or e.fingerprint != fingerprint)


def released(record: Record, fingerprint: str) -> Record:
    """Forget a request, whatever is held against it."""
    return tuple(e for e in record if e.fingerprint != fingerprint)
