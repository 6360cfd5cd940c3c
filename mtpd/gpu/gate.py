"""Conditions of measuring: a cool card and the declared power cap.

Covers the verdicts on readings, as pure functions. Waiting for a card to cool is the
caller's business. An unknown reading passes nothing; a question that does not arise
(no GPU, no cap wanted) passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.types import Absent, GateResult, NotApplicable, Value
from mtpd.views import GateView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.types import Reading

__all__ = ["HOLD", "cap", "cooling", "result"]

HOLD: Final = 3
"""Samples in a row, a second apart, that must be cool."""

_WHOLE_WATT: Final = 0.5
"""The driver keeps whole watts."""


def cooling(samples: Sequence[Reading[float]], *, limit_c: float, hold: int = HOLD) -> GateView:
    """Whether the last ``hold`` edge temperatures are at or below the limit.

    Args:
        samples: Edge temperatures, oldest first.
        limit_c: Degrees Celsius.
        hold: Samples in a row that must be cool.
    """
    last = samples[-hold:]
    if last and isinstance(last[-1], NotApplicable):
        return _view("cooling", "not_applicable", last[-1].reason)
    for sample in reversed(last):
        if isinstance(sample, Absent):
            return _view("cooling", "unknown", f"the edge temperature is unknown: {sample.reason}")
        if isinstance(sample, Value) and not sample.value <= limit_c:
            reason = f"the edge is at {sample.value:g} °C, above {limit_c:g} °C"
            return _view("cooling", "failed", reason)
    cool = [sample for sample in last if isinstance(sample, Value)]
    if len(cool) < hold:
        return _view("cooling", "unknown", f"{len(cool)} of {hold} samples taken")
    reason = f"the edge was at or below {limit_c:g} °C for {hold} samples"
    return _view("cooling", "passed", reason)


def cap(reading: Reading[float], *, wanted_w: float | None) -> GateView:
    """Whether the power cap in force is the one that the hardware profile declares.

    Args:
        reading: The cap, watts.
        wanted_w: What the profile declares, or None where it declares none.
    """
    match reading:
        case NotApplicable(reason):
            return _view("power_cap", "not_applicable", reason)
        case _ if wanted_w is None:
            return _view("power_cap", "not_applicable", "no power cap is configured")
        case Absent(reason):
            return _view("power_cap", "unknown", f"the power cap is unknown: {reason}")
        case Value(value):
            if abs(value - wanted_w) <= _WHOLE_WATT:
                return _view("power_cap", "passed", f"the power cap is {value:g} W")
            reason = f"the power cap is {value:g} W, not the {wanted_w:g} W that are configured"
            return _view("power_cap", "failed", reason)


def result(*gates: GateView) -> GateResult:
    """Whether all gates pass: the first that does not gives the reason."""
    for gate in gates:
        if gate.state not in {"passed", "not_applicable"}:
            return GateResult(passed=False, reason=gate.reason)
    return GateResult(passed=True, reason="; ".join(gate.reason for gate in gates))


def _view(name: str, state: str, reason: str) -> GateView:
    return GateView(name=name, state=state, reason=reason)
