"""What the daemon tells the world: every event type and the envelope around it.

The envelope is fixed: ``seq`` grows by one per event of one daemon life (``boot``),
``cause`` names the event that led to this one, and the ids say what it is about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, get_args

from mtpd.units import Seq  # noqa: TC001  # the schema resolves it
from mtpd.views import (  # noqa: TC001  # the schema resolves them
    DecisionView,
    MeasurementView,
    OperationView,
    ResidencyView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EVENT_TYPES",
    "STREAMED",
    "ConfigRefused",
    "ConfigReloaded",
    "DaemonStarted",
    "DaemonStopping",
    "DecisionMade",
    "DeviceCapChanged",
    "DeviceStateChanged",
    "DeviceThrottled",
    "EngineLoadProgress",
    "EngineTransition",
    "Envelope",
    "Event",
    "MachineResumed",
    "MeasurementTaken",
    "MemoryCreeps",
    "OperationChanged",
    "RequestFinished",
    "ResidencyJudged",
    "StoreChanged",
    "StreamDropped",
    "StreamOpen",
    "StreamReset",
    "type_name",
]

_WORD = re.compile(r"[A-Z][a-z0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStarted:
    """The API answers."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStopping:
    """The daemon was told to end."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReloaded:
    """The configuration was read again, and what can be applied is in force.

    Attributes:
        added: Models that are new.
        removed: Models that are gone.
        changed: Models whose engine runs otherwise from now on.
        needs_restart: Keys that take effect after a restart of the daemon.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRefused:
    """The configuration was read again and has errors: all of the old one stays in force.

    Attributes:
        problems: Every one, as ``FILE:LINE: KEY: what is wrong``.
    """

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResumed:
    """The machine was suspended and is awake again; what was measured meanwhile is discarded.

    Attributes:
        suspended_s: For how long, seconds.
        reason: The same as one sentence.
    """

    suspended_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTransition:
    """An engine's lifecycle moved.

    Attributes:
        failure: Class of the failure that moved it, told once for each; None where it was none.
    """

    engine_id: str
    profile: str
    arm: str
    old: str
    new: str
    reason: str
    failure: str | None = None


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
class MemoryCreeps:
    """A serving engine's device memory grows slowly; it will spill if it goes on.

    Attributes:
        grown_bytes: By how much within the window.
        window_s: Length of the window, seconds.
        full_in_s: When the card is full at this rate, None where its size is unknown.
    """

    engine_id: str
    profile: str
    arm: str
    grown_bytes: int
    window_s: float
    full_in_s: float | None


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
        engine_id: The start that served it, "" for none.
        generated: Tokens that the engine says it generated in ``decode_s`` seconds.
        cached_tokens: Of the prompt's tokens, taken from the cache.
        prompt_s: Seconds that the others took.
        kind: What its text mostly is: code, prose or mixed.
        sampling: greedy or sampled.
        reasoning: Whether a reasoning trace was written.
        truncated: Whether the engine dropped a part of the context.
        alone: Whether the engine worked on no other request meanwhile.
        pool: The pool by whose name it was asked for, or "auto" where no pool is meant by that;
            "" for the model's own name.
        tags: What it required of the pool's members.
        refused: Why it was rejected: full, deadline, engine, closed, removed, caller, model
            or poison; None where it was not.
        waited_s: Seconds in the queue, of all its attempts; None where no engine took it.
        suspended_s: Seconds for which the machine was suspended meanwhile, of which no other time
            holds any.
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
    engine_id: str = ""
    generated: int | None = None
    decode_s: float | None = None
    cached_tokens: int | None = None
    prompt_s: float | None = None
    kind: str = "mixed"
    sampling: str = "sampled"
    reasoning: bool = False
    truncated: bool = False
    alone: bool = True
    pool: str = ""
    tags: tuple[str, ...] = ()
    refused: str | None = None
    waited_s: float | None = None
    suspended_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStateChanged:
    """A device answers otherwise than before.

    Attributes:
        device: PCI address, or "host".
        old: unseen, answering, silent (its memory answers, no sensor does), gone or stale
            (the driver does not return).
        new: The same.
        reason: What could not be read, or "".
    """

    device: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCapChanged:
    """A device's power limit is another than at the last look.

    Attributes:
        device: PCI address.
        old_w: Before, watts.
        new_w: Now.
        wanted_w: What the hardware profile declares, or None.
    """

    device: str
    old_w: float
    new_w: float
    wanted_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceThrottled:
    """A device began or ceased to be throttled by something else than its power cap.

    Attributes:
        device: PCI address.
        reasons: current, thermal, firmware, unspecified; empty when it ceased.
    """

    device: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanged:
    """The state database's disk began to refuse what is written, or takes it again.

    Attributes:
        degraded: Why what is decided and measured is not kept now; None where it is.
    """

    degraded: str | None


Event = (
    DaemonStarted
    | ConfigReloaded
    | ConfigRefused
    | DaemonStopping
    | MachineResumed
    | EngineTransition
    | EngineLoadProgress
    | ResidencyJudged
    | MemoryCreeps
    | MeasurementTaken
    | DecisionMade
    | OperationChanged
    | RequestFinished
    | DeviceStateChanged
    | DeviceCapChanged
    | DeviceThrottled
    | StoreChanged
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


def type_name(kind: type[Event]) -> str:
    """An event class in dotted form: ``EngineLoadProgress`` is ``engine.load_progress``."""
    subject, *rest = _WORD.findall(kind.__name__)
    return f"{subject}.{'_'.join(rest)}".lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpen:
    """The stream itself, first: where it is.

    Attributes:
        boot: This life of the daemon.
        seq: The latest event there is.
    """

    type: ClassVar[str] = "stream.open"
    boot: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReset:
    """The stream itself: events before the next one are lost, so the state is to be read anew.

    Attributes:
        boot: This life of the daemon.
        seq: The last event that is lost.
        reason: One clause.
    """

    type: ClassVar[str] = "stream.reset"
    boot: str
    seq: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDropped:
    """The stream itself, last: connect again with the last id.

    Attributes:
        reason: One clause.
    """

    type: ClassVar[str] = "stream.dropped"
    reason: str


EVENT_TYPES: tuple[str, ...] = tuple(sorted(type_name(kind) for kind in get_args(Event)))
"""Every type that an envelope may have."""

STREAMED: Final[Mapping[str, type]] = {
    **{type_name(kind): kind for kind in get_args(Event)},
    **{kind.type: kind for kind in (StreamOpen, StreamReset, StreamDropped)},
}
"""What the event stream holds, by the type of the event."""
