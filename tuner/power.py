"""Power of a card over a window: energy, whether its cap held, whether heat slowed it.

Pure. Covers the arithmetic of facts/gpu.md section 6. Times are seconds of one monotonic
clock, power is in watts, energy in joules. What cannot be said is ``Unknown`` with its
reason: a gap in the samples is not a stretch without power.
"""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BUSY_PERCENT",
    "MAX_GAP_S",
    "MIN_WINDOW_S",
    "CapHeld",
    "Energy",
    "PowerSample",
    "Slowed",
    "Throttle",
    "cap_held",
    "counted",
    "integrated",
    "mean_w",
    "measured",
    "slowed",
    "token_j",
]

MAX_GAP_S: Final = 1.0
"""Longest stretch between two samples; at 2 Hz with open edges a sum was 8 % short."""

MIN_WINDOW_S: Final = 5.0
"""Shortest window that is summed; the drivers average power over about a second."""

BUSY_PERCENT: Final = 90.0
"""Load from which a card is taken to be limited by its cap, not by its work."""

_BUSY_GAP_S: Final = 2.5
"""A card that is read once a second and was busy both times was busy in between."""

_MEAN_OVER: Final = 1.03
_PEAK_OVER: Final = 1.15
_SLOWED_SHARE: Final = 0.05
_JUNCTION_MARGIN_C: Final = 3.0
_CLOCK_KEPT: Final = 0.95
_EQUAL_POWER: Final = 0.05
_FEWEST_SAMPLES: Final = 6


class Throttle(enum.Flag):
    """Why a card runs slower than it could; several may hold at once.

    Attributes:
        NONE: It does not.
        POWER: At its power limit: what a cap is for, not a fault.
        CURRENT: At a current limit.
        THERMAL: Too hot: core, hottest spot, memory or voltage regulators.
        FIRMWARE: For a reason of the firmware's own.
        UNSPECIFIED: The source says that it does, but not why.
    """

    NONE = 0
    POWER = enum.auto()
    CURRENT = enum.auto()
    THERMAL = enum.auto()
    FIRMWARE = enum.auto()
    UNSPECIFIED = enum.auto()


_HINDERED: Final = Throttle.THERMAL | Throttle.CURRENT | Throttle.FIRMWARE


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSample:
    """One look at a card; None is unknown.

    Attributes:
        at_s: When.
        power_w: What it draws.
        energy_j: Joules that it has counted itself.
        busy_percent: How much of the time it computes.
        core_mhz: Clock of its cores.
        edge_c: Its edge, degrees Celsius.
        junction_c: Its hottest spot, degrees Celsius.
        throttle: Why it is slowed.
    """

    at_s: float
    power_w: float | None = None
    energy_j: float | None = None
    busy_percent: float | None = None
    core_mhz: float | None = None
    edge_c: float | None = None
    junction_c: float | None = None
    throttle: Throttle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of a window.

    Attributes:
        joules: All that the card drew.
        duration_s: Over how long.
        source: counter, integrated or mean power.
    """

    joules: float
    duration_s: float
    source: str

    def net_j(self, idle_w: float) -> float:
        """Joules beyond what the idle card would have drawn; never below 0."""
        return max(0.0, self.joules - idle_w * self.duration_s)

    @property
    def mean_w(self) -> float:
        """Mean power."""
        return self.joules / self.duration_s

    def per_token_j(self, tokens: int, *, idle_w: float = 0.0) -> float | Unknown:
        """Joules per generated token, beyond what a card that idles at ``idle_w`` draws."""
        if tokens <= 0:
            return Unknown("no token was generated")
        return self.net_j(idle_w) / tokens


def token_j(
    power_w: float | None, *, decode_s: float, tokens: int, idle_w: float = 0.0
) -> float | None:
    """Joules per token of a reply by the mean power meanwhile; None where that is not known.

    The mean may be that of the whole repetition, its prompt included; a card at its cap draws
    the same for both.
    """
    if power_w is None:
        return None
    energy = Energy(joules=power_w * decode_s, duration_s=decode_s, source="mean power")
    found = energy.per_token_j(tokens, idle_w=idle_w)
    return found if isinstance(found, float) else None


def measured(samples: Sequence[PowerSample]) -> Energy | Unknown:
    """Energy by the counter where there is a real one, else the area under power."""
    by_counter = counted(samples)
    return integrated(samples) if isinstance(by_counter, Unknown) else by_counter


def counted(samples: Sequence[PowerSample]) -> Energy | Unknown:
    """Energy by the card's own counter, from the first sample to the last.

    A counter that stands still while time passes is not a real one (gfx906 shows
    2**32 - 1 for ever); one that runs backwards was reset or has wrapped.
    """
    duration = _duration(samples)
    if isinstance(duration, Unknown):
        return duration
    first, last = samples[0].energy_j, samples[-1].energy_j
    if first is None or last is None:
        return Unknown("the card has no energy counter")
    if last < first:
        return Unknown("the energy counter ran backwards: it was reset or has wrapped")
    if last == first:
        return Unknown("the energy counter stands still: it is not a real one")
    return Energy(joules=last - first, duration_s=duration, source="counter")


def integrated(samples: Sequence[PowerSample]) -> Energy | Unknown:
    """Energy as the area under power, from the first sample to the last (trapezoids).

    The first and the last sample must lie on the edges of what is measured. A window
    with a gap above ``MAX_GAP_S`` or shorter than ``MIN_WINDOW_S`` is refused.
    """
    duration = _duration(samples)
    if isinstance(duration, Unknown):
        return duration
    if samples[0].power_w is None or samples[-1].power_w is None:
        return Unknown("the power at an edge of the window is unknown")
    known = [(one.at_s, one.power_w) for one in samples if one.power_w is not None]
    if any(later - before > MAX_GAP_S for (before, _), (later, _) in pairwise(known)):
        return Unknown(f"the power was unknown for more than {MAX_GAP_S:g} s")
    return Energy(joules=_area(known), duration_s=duration, source="integrated")


def _duration(samples: Sequence[PowerSample]) -> float | Unknown:
    if any(later.at_s <= before.at_s for before, later in pairwise(samples)):
        return Unknown("the samples are not in order of time")
    duration = samples[-1].at_s - samples[0].at_s if samples else 0.0
    if duration < MIN_WINDOW_S:
        return Unknown(f"the window of {duration:.1f} s is shorter than {MIN_WINDOW_S:g} s")
    return duration


def mean_w(samples: Sequence[PowerSample]) -> float | None:
    """Mean power over the time that the samples span; None where it is unknown at all."""
    known = [(one.at_s, one.power_w) for one in samples if one.power_w is not None]
    return _area(known) / _span(known) if _span(known) > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapHeld:
    """Whether a power cap really limits the card, seen in a busy window.

    Attributes:
        held: False where the card drew more than it allows.
        mean_w: Mean power of the window.
        peak_w: Highest sample.
        duration_s: Length of the window.
    """

    held: bool
    mean_w: float
    peak_w: float
    duration_s: float


def cap_held(samples: Sequence[PowerSample], *, cap_w: float) -> CapHeld | Unknown:
    """Judge a cap by the longest stretch of work: at least 5 s at 90 % load or more.

    It holds while the mean stays within 3 % above it and no sample exceeds 15 %. Below
    full load the power says nothing about the cap.
    """
    points = _longest_busy(samples)
    if _span(points) < MIN_WINDOW_S:
        return Unknown(f"the card was not busy for {MIN_WINDOW_S:g} s without a gap")
    mean, peak = _area(points) / _span(points), max(watts for _, watts in points)
    return CapHeld(
        held=mean <= cap_w * _MEAN_OVER and peak <= cap_w * _PEAK_OVER,
        mean_w=mean,
        peak_w=peak,
        duration_s=_span(points),
    )


def _longest_busy(samples: Sequence[PowerSample]) -> list[tuple[float, float]]:
    """Time and power of the longest stretch of busy samples with known power and no gap."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for one in samples:
        if one.busy_percent is None or one.busy_percent < BUSY_PERCENT or one.power_w is None:
            stretches.append([])
            continue
        last = stretches[-1]
        if last and not 0 < one.at_s - last[-1][0] <= _BUSY_GAP_S:
            stretches.append([])
        stretches[-1].append((one.at_s, one.power_w))
    return max(stretches, key=_span)


def _span(points: Sequence[tuple[float, float]]) -> float:
    return points[-1][0] - points[0][0] if points else 0.0


def _area(points: Sequence[tuple[float, float]]) -> float:
    """Joules under the line through (seconds, watts)."""
    return sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in pairwise(points))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowed:
    """What slowed a card during a window.

    Attributes:
        at_cap_share: Share of the samples at the power limit; None where no sample says.
        reason: Why the window is not comparable with a cool one, or None where it is.
    """

    at_cap_share: float | None
    reason: str | None


def slowed(samples: Sequence[PowerSample], *, junction_limit_c: float | None = None) -> Slowed:
    """Tell the power cap from heat.

    Args:
        samples: Of one repetition, oldest first.
        junction_limit_c: Critical temperature of the hottest spot, or None.
    """
    bits = [one.throttle for one in samples if one.throttle is not None]
    share = sum(Throttle.POWER in one for one in bits) / len(bits) if bits else None
    hindered = sum(bool(one & _HINDERED) for one in bits)
    if bits and hindered / len(bits) > _SLOWED_SHARE:
        reason = f"heat or current throttled {hindered} of {len(bits)} samples"
        return Slowed(at_cap_share=share, reason=reason)
    hottest = max((one.junction_c for one in samples if one.junction_c is not None), default=None)
    if (
        hottest is not None
        and junction_limit_c is not None
        and hottest >= junction_limit_c - _JUNCTION_MARGIN_C
    ):
        reason = f"the junction was at {hottest:g} °C, {junction_limit_c:g} °C is critical"
        return Slowed(at_cap_share=share, reason=reason)
    return Slowed(at_cap_share=share, reason=_clock_fell(samples))


def _clock_fell(samples: Sequence[PowerSample]) -> str | None:
    """Whether the clock fell at equal power: the last third against the first."""
    known = [
        (one.core_mhz, one.power_w)
        for one in samples
        if one.core_mhz is not None and one.power_w is not None
    ]
    if len(known) < _FEWEST_SAMPLES:
        return None
    third = len(known) // 3
    (first_mhz, first_w), (last_mhz, last_w) = (
        (statistics.median(c for c, _ in part), statistics.median(p for _, p in part))
        for part in (known[:third], known[-third:])
    )
    if abs(last_w - first_w) > _EQUAL_POWER * first_w or last_mhz >= _CLOCK_KEPT * first_mhz:
        return None
    return f"the clock fell from {first_mhz:g} to {last_mhz:g} MHz at equal power"
