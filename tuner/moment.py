"""What the policy is told at a moment, what it remembers, and what it may ask for.

Plain frozen values only: a state can be stored as JSON and a recorded moment replayed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tuner.outlook import Prospect  # noqa: TC001 - a stored moment resolves its hints
from tuner.rivals import Rival  # noqa: TC001 - a stored moment resolves its hints
from tuner.types import Act, Arm, Decision  # noqa: TC001 - a stored moment resolves its hints

__all__ = [
    "DAY_S",
    "DOUBTS",
    "Alert",
    "Effect",
    "Growth",
    "Intent",
    "Keep",
    "Mode",
    "Moment",
    "PolicyState",
    "Remeasure",
    "Restart",
    "Rules",
    "SetDepth",
    "SwitchModel",
    "Wish",
]

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S

DOUBTS: Final = 4
"""Doubts about one calibration that are kept, the first ones: one is enough to void it."""


class Mode(enum.StrEnum):
    """What the policy may do."""

    OFF = "off"
    OBSERVE = "observe"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The policy's parameters; the defaults are those of docs/benchmarks_live.md.

    Attributes:
        mode: Off, only say, or act when idle.
        least_gain: Relative gain below which a switch is never worth it.
        sure: Probability with which the gain must exceed what is required.
        dwell_s: Seconds between two restarts that the policy asks for.
        back_off: Factor on the dwell time for each return to the arm before.
        forgive_s: Quiet seconds after which one return is forgotten.
        restarts_per_day: Restarts within any 24 h, those of others included.
        idle_s: Seconds without a request before a switch.
        measure_idle_s: Seconds without a request before a measurement, which takes minutes
            and is lost if a request comes in.
        first_horizon_s: Expected time between changes before any was seen.
        longest_horizon_s: Longest horizon over which a gain counts, and longest back-off.
        remember_s: Seconds watched after which what was seen before counts half.
        measure_every_s: Seconds between two measurements made only to know more.
        longest_step_s: Longest time that may pass between two moments; more is a jump.
        urgent_s: Seconds until memory is full below which a restart waits for no idle time.
    """

    mode: Mode = Mode.OBSERVE
    least_gain: float = 0.05
    sure: float = 0.95
    dwell_s: float = 1800.0
    back_off: float = 4.0
    forgive_s: float = DAY_S
    restarts_per_day: int = 6
    idle_s: float = 120.0
    measure_idle_s: float = 1200.0
    first_horizon_s: float = 8 * HOUR_S
    longest_horizon_s: float = DAY_S
    remember_s: float = 30 * DAY_S
    measure_every_s: float = 7 * DAY_S
    longest_step_s: float = HOUR_S
    urgent_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Device memory of the running engine that grows slowly.

    Attributes:
        says: By how much, and when the card is full; one clause.
        full_in_s: Seconds until it is full at this rate, or None where its size is unknown.
    """

    says: str
    full_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known at a moment.

    Attributes:
        at_s: Time in seconds on a clock of the caller's choice.
        running: The arm that runs.
        prospects: Every arm that is known to fit, the running one included
            (``tuner.outlook``); empty while nothing is known.
        tokens_per_s: Tokens per second expected over the next hours, idle times included.
        switch_cost_s: Seconds that a switch costs, lost prompt caches included.
        measure_cost_s: Seconds that a calibration costs; None if none can be made.
        calibration: Names the calibration that the prospects rest on.
        stale: What is not as it was at that calibration (``tuner.stale``); it holds again
            once this is empty.
        doubts: Other reasons not to trust it: alarms that void it (``tuner.live.Alarm.voids``);
            they stay until there is another one.
        drifted: Whether drift of the acceptance was detected since the last moment.
        broken: What is wrong with the draft head, or None (``tuner.live.broken_head``).
        growth: Memory that the running engine gains while it serves, or None.
        unmeasurable: Why nothing could be measured now (heat, power cap), or None.
        requests: Requests that run or wait.
        idle_s: Seconds since the last one ended.
        other_restarts: Engine starts of the last 24 h that the policy did not ask for.
        pinned: Whether neither profile nor depth may change.
        rivals: Models that the rules of a pool name in place of the one that runs.
        unmeasured: Members of its pools that nothing is stored of, by the arm that would be
            started first.
    """

    at_s: float
    running: Arm
    prospects: tuple[Prospect, ...]
    tokens_per_s: float
    switch_cost_s: float
    measure_cost_s: float | None = None
    calibration: str = ""
    stale: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    drifted: bool = False
    broken: str | None = None
    growth: Growth | None = None
    unmeasurable: str | None = None
    requests: int = 0
    idle_s: float = 0.0
    other_restarts: int = 0
    pinned: bool = False
    rivals: tuple[Rival, ...] = ()
    unmeasured: tuple[Arm, ...] = ()

    def permits(self, arm: Arm) -> bool:
        """Whether the policy may switch to an arm of the running profile at all."""
        return not self.pinned and arm != self.running and arm.profile == self.running.profile


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """What the policy remembers, on its own clock.

    Attributes:
        clock_s: The policy's clock; never runs backwards.
        seen_s: The caller's time at the last moment.
        restarts: When restarts were asked for, within the last 24 h.
        previous: The arm before the last switch.
        returns: How often in a row a switch went back to the arm before.
        calibration: The calibration that ``doubts`` are about.
        doubts: Why it must be made again.
        measured_s: When a measurement was last asked for.
        changed_s: When the acceptance last drifted.
        changes: Drifts seen within ``watched_s``; old ones count half.
        watched_s: Time watched.
        alerted: Arms that an alert was raised about.
    """

    clock_s: float = 0.0
    seen_s: float | None = None
    restarts: tuple[float, ...] = ()
    previous: Arm | None = None
    returns: int = 0
    calibration: str = ""
    doubts: tuple[str, ...] = ()
    measured_s: float | None = None
    changed_s: float | None = None
    changes: float = 0.0
    watched_s: float = 0.0
    alerted: tuple[Arm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What would be done if nothing stood in the way.

    Attributes:
        act: Switch (to the running arm itself: restart) or measure.
        arm: The arm to switch to, or the one in doubt.
        reason: Why; one clause.
        rival: What is known of it where it is another model.
        held: What stands in its way whatever the time is, or None.
    """

    act: Act
    arm: Arm
    reason: str
    rival: Rival | None = None
    held: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A decision with what is behind one that keeps.

    Attributes:
        decision: What to do now.
        wish: What would be done, also where it is done; None to leave all as it is.
        waits_for: What stands in the way of the wish, or None.
    """

    decision: Decision
    wish: Wish | None = None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDepth:
    """Start the same profile at another depth."""

    arm: Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start the running arm anew."""

    arm: Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchModel:
    """Start another profile of the pool, and answer for the pool with it."""

    arm: Arm
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasure:
    """Calibrate again; ``arm`` is the one in doubt."""

    arm: Arm
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Call for help."""

    message: str


Effect = Keep | SetDepth | Restart | SwitchModel | Remeasure | Alert
