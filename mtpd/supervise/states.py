"""What an engine can be: the states of its lifecycle.

Covers the sum types only; ``messages`` has what happens and what is asked for,
``machine`` has the rules. A process belongs to a ``start``, a number that grows with
every spawn, so that news of an earlier process cannot be taken for news of the
present one. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mtpd.supervise.backoff import Memory

if TYPE_CHECKING:
    from mtpd.types import FailureClass, LaunchPlan, Verdict

__all__ = [
    "AtRest",
    "Backoff",
    "Blocked",
    "Cause",
    "Engine",
    "Failed",
    "Halt",
    "Launch",
    "Loading",
    "Probing",
    "Ready",
    "Releasing",
    "Rest",
    "Retry",
    "Rung",
    "Settled",
    "Spawning",
    "State",
    "Stopped",
    "Stopping",
    "Then",
    "Wedged",
    "label",
]

Rung = Literal["term", "term again", "kill"]
"""How far a stop has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a start ended badly.

    Attributes:
        exit_code: What a shell would show: the exit code, 128 + signal, or None
            while the process has not ended.
        breaker_open: Whether no further start is made since too many failed.
    """

    failure: FailureClass
    reason: str
    hint: str | None = None
    exit_code: int | None = None
    breaker_open: bool = False


# What comes after a process has ended -----------------------------------------------


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing: nobody wants the engine."""

    reason: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A start of this plan, at once.

    Attributes:
        cause: The failure that it mends; None where it was ordered.
    """

    plan: LaunchPlan
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Whatever the retry rule of this cause says."""

    plan: LaunchPlan
    cause: Cause


Then = Halt | Launch | Retry


# States -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stopped:
    """No process, and none wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawning:
    """A process was asked for; its pid is not known yet."""

    plan: LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The process exists and does not answer its health check yet.

    Attributes:
        began: When the process was created.
        heard: When it last printed something.
        lines: How many lines it has printed.
    """

    plan: LaunchPlan
    pid: int
    began: float
    heard: float
    lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """The process is healthy by its own word; the canary has not come back yet."""

    plan: LaunchPlan
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The canary came back and the residency was judged (also if it does not pass)."""

    plan: LaunchPlan
    pid: int
    verdict: Verdict
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The process is being ended.

    Attributes:
        pid: None while the spawn is still under way.
    """

    plan: LaunchPlan
    pid: int | None
    rung: Rung
    then: Then


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waiting before the next attempt.

    Attributes:
        attempt: How many starts have failed in a row.
        until: When the next one is made.
    """

    plan: LaunchPlan
    cause: Cause
    attempt: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Gave up; an operator, a new configuration or another plan must act."""

    plan: LaunchPlan
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """The card is not free, or does not answer; ends by itself when it is, and does.

    Attributes:
        cause: Its class names the state: ``vram_unrecovered`` or ``gpu_failed``.
    """

    plan: LaunchPlan
    cause: Cause


Rest = Stopped | Launch | Backoff | Failed | Blocked
"""Where an ended process leads, once its retry rule has been applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """The process is gone; its device memory may not be yet."""

    plan: LaunchPlan
    then: Rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wedged:
    """The kernel does not let go of the process; nothing may start in its place."""

    plan: LaunchPlan
    pid: int
    then: Then


State = (
    Stopped
    | Spawning
    | Loading
    | Probing
    | Ready
    | Stopping
    | Releasing
    | Backoff
    | Failed
    | Blocked
    | Wedged
)


Settled = Stopped | Ready | Backoff | Failed | Blocked | Wedged
"""States in which all that was asked for has had its outcome, if only for now."""
AtRest = Stopped | Wedged
"""States that nothing leads out of but an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The whole of what the machine knows.

    Attributes:
        start: Number of the latest spawn, 0 before the first.
        timer: Number of the latest timer.
        armed: Whether that timer is running.
        memory: Failures that the retry rules look back on.
        reason: Why the state is what it is, in one sentence.
        story: The latest events, newest last; shown when something impossible happens.
    """

    state: State = field(default_factory=Stopped)
    start: int = 0
    timer: int = 0
    armed: bool = False
    memory: Memory = field(default_factory=Memory)
    reason: str = "never started"
    story: tuple[str, ...] = field(default=(), compare=False, repr=False)


def label(state: State) -> str:
    """Name for events, metrics and the API."""
    if isinstance(state, Blocked):
        return state.cause.failure.value
    return type(state).__name__.lower()
