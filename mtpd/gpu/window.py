"""The readings of one measurement: its energy, its cap, its heat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mtpd.types import Value
from tuner import power
from tuner.power import PowerSample
from tuner.types import Unknown

if TYPE_CHECKING:
    from mtpd.gpu.base import GpuReading
    from mtpd.types import Reading

__all__ = ["Window", "power_sample"]

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
        self._lost = False

    @property
    def samples(self) -> tuple[PowerSample, ...]:
        """The readings, oldest first."""
        return tuple(self._samples)

    def add(self, sample: PowerSample) -> None:
        """Take a reading that is later than the last; beyond an hour of them none is kept."""
        if self._samples and sample.at_s <= self._samples[-1].at_s:
            return
        if len(self._samples) >= MOST:
            self._lost = True
            return
        self._samples.append(sample)

    def energy(self) -> power.Energy | Unknown:
        """Joules from edge to edge."""
        if not self.closed or self._lost:
            return Unknown("the window has no last edge")
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


def power_sample(at_s: float, reading: GpuReading) -> PowerSample:
    """The part of a reading that says something of power and heat; absent becomes None."""
    return PowerSample(
        at_s=at_s,
        power_w=_known(reading.power_w),
        energy_j=_known(reading.energy_j),
        busy_percent=_known(reading.busy_percent),
        core_mhz=_known(reading.core_mhz),
        junction_c=_known(reading.junction_c),
        throttle=_known(reading.throttle),
    )


def _known(reading: Reading[Any]) -> Any:
    return reading.value if isinstance(reading, Value) else None
