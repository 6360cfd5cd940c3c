"""What the daemon tells the world: every event type and the envelope around it.

The envelope is fixed: ``seq`` grows by one per event of one daemon life (``boot``),
``cause`` names the event that led to this one, and the ids say what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.units import Seq
    from mtpd.views import DecisionView, MeasurementView, OperationView, ResidencyView

__all__ = [
    "DaemonStarted",
    "DaemonStopping",
    "DecisionMade",
    "EngineLoadProgress",
    "EngineTransition",
    "Envelope",
    "Event",
    "MeasurementTaken",
    "OperationChanged",
    "RequestFinished",
    "ResidencyJudged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStarted:
    """The API answers."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStopping:
    """The daemon was told to end."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTransition:
    """An engine's lifecycle moved."""

    engine_id: str
    profile: str
    arm: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoadProgress:
    """An engine printed more of its load log."""

    engine_id: str
    profile: str
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyJudged:
    """The evidence of an engine start was judged."""

    engine_id: str
    profile: str
    arm: str
    residency: ResidencyView


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementTaken:
    """One repetition of a cell was stored."""

    measurement: MeasurementView


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMade:
    """A decision was journalled."""

    decision: DecisionView


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChanged:
    """An operation was created, progressed or ended."""

    operation: OperationView


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished:
    """A relayed request ended.

    Attributes:
        outcome: complete, client_gone, upstream_lost, rejected or failed.
    """

    request_id: str
    profile: str
    depth: int
    path: str
    outcome: str
    status: int
    duration_s: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    decode_tps: float | None = None
    drafted: int | None = None
    accepted: int | None = None


Event = (
    DaemonStarted
    | DaemonStopping
    | EngineTransition
    | EngineLoadProgress
    | ResidencyJudged
    | MeasurementTaken
    | DecisionMade
    | OperationChanged
    | RequestFinished
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An event with its place in the stream.

    Attributes:
        boot: Identifies one life of the daemon; sequences restart with it.
        seq: Position within this boot, from 1.
        at: Wall time, RFC 3339 in UTC; for display.
        cause: Sequence of the event that led to this one, or None.
        type: The event class in dotted form, e.g. ``engine.transition``.
        ids: What the event is about, e.g. ``{"engine": "...", "operation": "..."}``.
        event: The payload.
    """

    boot: str
    seq: Seq
    at: str
    cause: Seq | None
    type: str
    event: Event
    ids: dict[str, str] = field(default_factory=dict)
