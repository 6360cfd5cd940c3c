"""The readings of one measurement: its energy, its cap, its heat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mtpd.types import Value
from tuner import power
from tuner.power import PowerSample
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.gpu.base import GpuReading
    from mtpd.types import Reading
    from tuner.types import Observation

__all__ = ["Around", "Window", "around", "power_sample"]

MOST: Final = 36_000
"""Readings of one window: an hour at 10 Hz."""


class Window:
    """What was read while something was measured.

    Args:
        idle_w: What the card draws while it computes nothing.
    """

    def __init__(self, *, idle_w: Reading[float]) -> None:
        self.closed = False
        """Whether the last edge was read."""
        self._idle_w = idle_w
        self._samples: list[PowerSample] = []
        self._lost: str | None = None

    @property
    def samples(self) -> tuple[PowerSample, ...]:
        """The readings, oldest first."""
        return tuple(self._samples)

    def add(self, sample: PowerSample) -> None:
        """Take a reading that is later than the last; beyond an hour of them none is kept."""
        if self._samples and sample.at_s <= self._samples[-1].at_s:
            return
        if len(self._samples) >= MOST:
            self._lost = "the window has no last edge"
            return
        self._samples.append(sample)

    def spoil(self, why: str) -> None:
        """It has a hole: nothing of it counts any more."""
        self._lost = why

    def energy(self) -> power.Energy | Unknown:
        """Joules from edge to edge."""
        if not self.closed or self._lost is not None:
            return Unknown(self._lost or "the window has no last edge")
        return power.measured(self._samples)

    def net_j(self) -> float | Unknown:
        """Joules beyond what the idle card would have drawn."""
        energy = self.energy()
        if isinstance(energy, Unknown):
            return energy
        if not isinstance(self._idle_w, Value):
            return Unknown(f"the idle power is unknown: {self._idle_w.reason}")
        return energy.net_j(self._idle_w.value)

    def cap_held(self, cap_w: float) -> power.CapHeld | Unknown:
        """Whether the cap limited the card."""
        return power.cap_held(self._samples, cap_w=cap_w)

    def slowed(self, *, junction_limit_c: float | None = None) -> power.Slowed:
        """What slowed the card."""
        return power.slowed(self._samples, junction_limit_c=junction_limit_c)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The card's state around one repetition; None is unknown or does not apply.

    Attributes:
        edge_start_c: Edge temperature at its begin, degrees Celsius.
        edge_end_c: Edge temperature at its end.
        junction_max_c: Highest temperature of the hottest spot.
        power_mean_w: Mean power, by the card's counter where it has a real one.
        power_cap_w: Power limit.
        power_idle_w: What the card draws while it computes nothing.
        slowed: Why it is not comparable with one on a cool card, or None where it is.
    """

    edge_start_c: float | None = None
    edge_end_c: float | None = None
    junction_max_c: float | None = None
    power_mean_w: float | None = None
    power_cap_w: float | None = None
    power_idle_w: float | None = None
    slowed: str | None = None

    def told_of(self, observation: Observation) -> Observation:
        """A repetition with its energy, and left out where heat slowed it."""
        joules = power.token_j(
            self.power_mean_w, decode_s=observation.decode_s, tokens=observation.tokens
        )
        excluded = observation.excluded if self.slowed is None else f"throttled: {self.slowed}"
        return replace(observation, excluded=excluded, joules_per_token=joules)


def around(
    samples: Sequence[PowerSample],
    *,
    cap_w: float | None,
    junction_limit_c: float | None,
    idle_w: float | None = None,
) -> Around:
    """What the readings of one repetition say of the card.

    Args:
        samples: Oldest first.
        cap_w: The power limit, or None.
        junction_limit_c: Critical temperature of the hottest spot, or None.
        idle_w: What the card draws while it computes nothing, or None.
    """
    energy = power.measured(samples)
    edges = [one.edge_c for one in samples if one.edge_c is not None]
    slowed = power.slowed(samples, junction_limit_c=junction_limit_c).reason
    held = None if cap_w is None else power.cap_held(samples, cap_w=cap_w)
    if slowed is None and isinstance(held, power.CapHeld) and not held.held:
        slowed = f"the card drew {held.mean_w:.0f} W under a cap of {cap_w:g} W"
    return Around(
        edge_start_c=edges[0] if edges else None,
        edge_end_c=edges[-1] if edges else None,
        junction_max_c=max(
            (one.junction_c for one in samples if one.junction_c is not None), default=None
        ),
        power_mean_w=power.mean_w(samples) if isinstance(energy, Unknown) else energy.mean_w,
        power_cap_w=cap_w,
        power_idle_w=idle_w,
        slowed=slowed,
    )


def power_sample(at_s: float, reading: GpuReading) -> PowerSample:
    """The part of a reading that says something of power and heat; absent becomes None."""
    return PowerSample(
        at_s=at_s,
        power_w=_known(reading.power_w),
        energy_j=_known(reading.energy_j),
        busy_percent=_known(reading.busy_percent),
        core_mhz=_known(reading.core_mhz),
        edge_c=_known(reading.edge_c),
        junction_c=_known(reading.junction_c),
        throttle=_known(reading.throttle),
    )


def _known(reading: Reading[Any]) -> Any:
    return reading.value if isinstance(reading, Value) else None
