"""The vocabulary of admission: what a queue holds, what happens to it, what it decides.

Values only; the machine that joins them is ``mtpd.proxy.admission``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "ORDINARY",
    "Admit",
    "Arrive",
    "Bound",
    "Broken",
    "Claim",
    "Close",
    "Done",
    "Drained",
    "Effect",
    "Engine",
    "EngineEvent",
    "Event",
    "Failed",
    "Forget",
    "GateEvent",
    "Hold",
    "Leave",
    "Lost",
    "Mended",
    "NoEngine",
    "Order",
    "Pending",
    "Priority",
    "Ready",
    "Recovering",
    "Reject",
    "RejectKind",
    "Release",
    "RequestEvent",
    "Result",
    "Serving",
    "State",
    "Stopped",
    "Tick",
    "Turn",
    "Waiter",
    "WantEngine",
]


class Priority(enum.IntEnum):
    """How urgent a request is; the smaller, the sooner."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a request asks of the queue.

    Attributes:
        priority: How urgent it is.
        alone: Nothing else may run beside it, as it may bring its engine down.
        caller: Name of the token that came with it, or None.
    """

    priority: Priority = Priority.NORMAL
    alone: bool = False
    caller: str | None = None


ORDINARY = Claim()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Who may overtake whom, and how many of one caller may wait.

    Attributes:
        batch_max_requests: How many may overtake one waiter in one turn of a model; 0 keeps
            the order of arrival.
        batch_max_s: For how long in one turn.
        age_s: After how long a waiter counts as one priority higher, and once more.
        max_waiting_per_caller: How many requests of one caller may wait; 0 for no limit.
    """

    batch_max_requests: int = 16
    batch_max_s: float = 30.0
    age_s: float = 30.0
    max_waiting_per_caller: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """The time for which a model serves without another one in between."""

    profile: str
    began: float


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request in the queue.

    Attributes:
        overtaken: By how many requests in the present turn.
    """

    id: int
    profile: str
    arrived: float
    deadline: float
    claim: Claim = Claim()
    overtaken: int = 0


@dataclass(frozen=True, slots=True)
class Broken:
    """A profile that failed to start a moment ago; it is not tried again before ``until``."""

    profile: str
    why: str
    until: float


@dataclass(frozen=True, slots=True)
class NoEngine:
    """Nothing runs on the device and nobody is starting anything."""


@dataclass(frozen=True, slots=True)
class Pending:
    """The switchboard was asked for this profile and will answer Ready or Failed."""

    profile: str


@dataclass(frozen=True, slots=True)
class Recovering:
    """The engine of this profile is down; its supervisor restarts it by itself."""

    profile: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The engine of this profile is ready for so many requests at once."""

    profile: str
    capacity: int


Engine = NoEngine | Pending | Recovering | Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The queue of one device.

    Attributes:
        limit: How many may wait.
        timeout_s: How long each may wait.
        order: Who may overtake whom.
        now: The latest time that is known.
        turn: The model that served last and since when, or None before the first.
        engine: What runs on the device, as far as requests are concerned.
        waiting: The queue, oldest first.
        running: Requests that were admitted and have not ended.
        alone: The one of them beside which nothing else may run, or None.
        held: Why nobody is admitted at present, or None.
        drained: Whether the present hold has been told that nothing runs any more.
        broken: Profiles that are not tried again for a while.
        closed: Why nobody is admitted any more, or None.
    """

    limit: int
    timeout_s: float
    order: Order = Order()
    now: float = 0.0
    turn: Turn | None = None
    engine: Engine = NoEngine()
    waiting: tuple[Waiter, ...] = ()
    running: frozenset[int] = frozenset()
    alone: int | None = None
    held: str | None = None
    drained: bool = False
    broken: tuple[Broken, ...] = ()
    closed: str | None = None


@dataclass(frozen=True, slots=True)
class Arrive:
    """A request for a profile came in; ids are never reused."""

    id: int
    profile: str
    now: float
    claim: Claim = Claim()


@dataclass(frozen=True, slots=True)
class Leave:
    """The client of a request went away, wherever the request was."""

    id: int


@dataclass(frozen=True, slots=True)
class Done:
    """An admitted request ended."""

    id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class Ready:
    """An engine of this profile serves."""

    profile: str
    capacity: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The engine died, hangs or did not come up; its supervisor goes on trying."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The engine was stopped on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An engine of this profile cannot serve.

    Attributes:
        profile: Which.
        why: One sentence for those who wait for it.
        now: When.
        retry_after_s: For how long it is not tried again.
        restoring: The profile that is being brought back instead, or None.
    """

    profile: str
    why: str
    now: float
    retry_after_s: float
    restoring: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Someone needs the device: admit nobody, say when the running requests have ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """The device is free for requests again."""


@dataclass(frozen=True, slots=True)
class Close:
    """The daemon ends: turn everybody away from now on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """A profile is not served any more: those who wait for it are turned away."""

    profile: str
    why: str


@dataclass(frozen=True, slots=True)
class Mended:
    """A profile is configured otherwise: that it failed to start says nothing any more."""

    profile: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The length and order of the queue, and the patience of those who come from now on."""

    limit: int
    timeout_s: float
    order: Order


RequestEvent = Arrive | Leave | Done | Tick
EngineEvent = Ready | Lost | Stopped | Failed
GateEvent = Hold | Release | Close | Forget | Mended | Bound
Event = RequestEvent | EngineEvent | GateEvent


class RejectKind(enum.StrEnum):
    """Why a request is turned away."""

    FULL = "full"
    DEADLINE = "deadline"
    ENGINE = "engine"
    CLOSED = "closed"
    REMOVED = "removed"
    CALLER = "caller"


@dataclass(frozen=True, slots=True)
class Admit:
    """The request may use the serving engine now."""

    id: int


@dataclass(frozen=True, slots=True)
class Reject:
    """The request ends with 503, or with 404 where its model was removed.

    Attributes:
        id: Which.
        kind: For programs.
        why: One sentence for people.
        retry_after_s: When another attempt makes sense.
    """

    id: int
    kind: RejectKind
    why: str
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class WantEngine:
    """Bring this profile up; nothing runs on the device."""

    profile: str


@dataclass(frozen=True, slots=True)
class Drained:
    """The present hold has the device to itself."""


Effect = Admit | Reject | WantEngine | Drained
Result = tuple[State, tuple[Effect, ...]]
