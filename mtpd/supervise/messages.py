"""What happens to an engine (events) and what the machine asks for (effects).

Every effect ends in an event, also when it fails. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mtpd.supervise.states import Cause
    from mtpd.types import LaunchPlan, Verdict

__all__ = [
    "ArmTimer",
    "Broken",
    "Condemn",
    "DisarmTimer",
    "Effect",
    "EndProbe",
    "Event",
    "Exited",
    "Healthy",
    "Judged",
    "Probed",
    "Progress",
    "Released",
    "Signal",
    "Spawn",
    "SpawnFailed",
    "Spawned",
    "Start",
    "StartProbe",
    "Stop",
    "TimedOut",
    "Unhealthy",
    "WaitRelease",
]


@dataclass(frozen=True, slots=True)
class Start:
    """Someone wants this plan to serve."""

    plan: LaunchPlan


@dataclass(frozen=True, slots=True)
class Stop:
    """Someone wants the memory back."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemn:
    """Someone saw that the running engine hangs.

    Only ``Ready`` engines can be condemned; elsewhere the probe or the ladder decides.
    """

    now: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """The process was created."""

    start: int
    pid: int
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed:
    """No process was created.

    Attributes:
        jitter: Random number in [0, 1) for the delay before the next attempt.
    """

    start: int
    now: float
    jitter: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The process printed something."""

    start: int
    now: float
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """The health check was answered with ok."""

    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The canary came back, from the process that was started."""

    start: int
    now: float
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy:
    """The probe gave up on a live process."""

    start: int
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A live process is of no use any more, although its health check may say ok.

    Its card is lost, or it is another card than the configured one.
    """

    start: int
    now: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The residency of the serving engine was judged again, and has become worse."""

    start: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The process ended.

    Attributes:
        cause: What the end would mean if nobody had asked for it.
        jitter: Random number in [0, 1) for the delay before the next attempt.
    """

    start: int
    now: float
    jitter: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The wait for the device memory of the ended process is over.

    Attributes:
        held: Why the card is not free, or None if it is, or if nobody can tell.
    """

    start: int
    now: float
    held: Cause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """A timer has run out."""

    timer: int
    now: float


Event = (
    Start
    | Stop
    | Condemn
    | Spawned
    | SpawnFailed
    | Progress
    | Healthy
    | Probed
    | Unhealthy
    | Broken
    | Judged
    | Exited
    | Released
    | TimedOut
)


# Effects ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Create the process; ends in Spawned or SpawnFailed, and then in Exited."""

    start: int
    plan: LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProbe:
    """Look whether it serves; ends in Healthy and Probed, or in Unhealthy."""

    start: int
    plan: LaunchPlan
    pid: int


@dataclass(frozen=True, slots=True)
class EndProbe:
    """Forget the probe; its outcome no longer matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Send a signal to the process group."""

    start: int
    name: Literal["TERM", "KILL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTimer:
    """Replace the one timer of this machine; ends in TimedOut."""

    timer: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DisarmTimer:
    """Forget the timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRelease:
    """Wait until the device memory of the ended process is back; ends in Released.

    Attributes:
        reset: Whether the card may be in a reset: then wait for its answers first.
    """

    start: int
    reset: bool = False


Effect = Spawn | StartProbe | EndProbe | Signal | ArmTimer | DisarmTimer | WaitRelease
