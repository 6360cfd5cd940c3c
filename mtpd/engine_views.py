"""What the control API shows of an engine, its queue and its gates: plain values.

Parts of ``mtpd.views``, which offers them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from tuner.types import Interval

__all__ = [
    "ArmView",
    "EngineView",
    "EvidenceView",
    "FailureView",
    "GateView",
    "IntervalView",
    "Json",
    "QuarantineView",
    "QueueRowView",
    "QueueView",
    "RequestView",
    "ResidencyView",
    "SpentView",
]

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmView:
    """An arm: profile, drafter, depth, p_min."""

    profile: str
    drafter: str
    depth: int
    p_min: float

    @classmethod
    def of(cls, arm: Arm) -> Self:
        """The view of an arm."""
        return cls(profile=arm.profile, drafter=arm.drafter.value, depth=arm.depth, p_min=arm.p_min)

    def arm(self) -> Arm:
        """The arm that is shown; ValueError where the view contradicts itself."""
        drafter = Drafter(self.drafter)
        return Arm(profile=self.profile, drafter=drafter, depth=self.depth, p_min=self.p_min)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalView:
    """A value with its bounds."""

    low: float
    mid: float
    high: float
    level: float

    @classmethod
    def of(cls, interval: Interval) -> Self:
        """The view of an interval."""
        return cls(low=interval.low, mid=interval.mid, high=interval.high, level=interval.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """A quoted line and what it shows."""

    line: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyView:
    """Where the model lies.

    Attributes:
        state: resident, evicted, spilled, host or unknown.
        layers: Evicted layers where the log counts them.
        spilled_bytes: Bytes in host memory where they were measured.
        reason: One sentence.
        evidence: The lines and readings that decided.
        confidence: measured, reported or suspected: what it rests on.
        contradiction: What speaks against it, or null.
    """

    state: str
    layers: int | None
    spilled_bytes: int | None
    reason: str
    evidence: tuple[EvidenceView, ...]
    confidence: str = "reported"
    contradiction: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """Why an engine is not serving.

    Attributes:
        breaker_open: Whether it is not started again since too many starts failed.
    """

    failure: str
    reason: str
    hint: str | None
    exit_code: int | None
    retry_in_s: float | None
    breaker_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One engine slot of the daemon."""

    id: str
    device: str
    profile: str
    state: str
    arm: ArmView | None
    residency: ResidencyView
    pid: int | None
    endpoint: str | None
    since: str
    starts: int
    failure: FailureView | None
    log_tail: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineView:
    """A request that is refused because its engine died of it.

    Attributes:
        id: The beginning of its fingerprint (SHA-256 of the model and the body).
        size_bytes: Of its body.
        reason: One sentence.
        deaths: The cause of each, oldest first.
        left_s: Seconds after which it may try again.
    """

    id: str
    profile: str
    path: str
    size_bytes: int
    reason: str
    deaths: tuple[str, ...]
    left_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Requests that wait for an engine, and those that run."""

    waiting: int
    limit: int
    timeout_s: float
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRowView:
    """Open requests for one model with one priority (high, normal or low)."""

    profile: str
    priority: str
    waiting: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request that is open now.

    Attributes:
        state: waiting, for an engine, or running.
        priority: high, normal or low.
        caller: Name of the token that came with it, or null.
        depth: Draft depth of its engine; null while it waits.
        age_s: Seconds since it came.
        running_s: Seconds for which an engine has worked on it; null while it waits.
        events: Events of its stream so far, of which llama-server sends one per token; null
            where its answer is no stream, or has not begun.
        events_per_s: The same per second since the answer began.
    """

    id: str
    profile: str
    path: str
    state: str
    priority: str
    caller: str | None
    depth: int | None
    age_s: float
    running_s: float | None
    events: int | None
    events_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """A condition of measuring: passed, failed, unknown or not_applicable."""

    name: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentView:
    """What the latest choice took.

    Attributes:
        decision_id: The decision.
        subject: The model or pool that was chosen for.
        at: When it was taken.
        starts: Engine starts that its measurements took; 0 where it compares what is stored.
        seconds: Seconds that they took, starts included.
    """

    decision_id: int
    subject: str
    at: str
    starts: int
    seconds: float
