"""Conditions of measuring: a cool card and the declared power cap.

Covers the verdicts on readings, as pure functions. Waiting for a card to cool is the
caller's business. An unknown reading passes nothing; a question that does not arise
(no GPU) passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.gpu.powercap import CapState, judge
from mtpd.types import Absent, GateResult, NotApplicable, Value
from mtpd.views import GateView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.gpu.base import PowerCap
    from mtpd.types import Reading
    from tuner.power import CapHeld
    from tuner.types import Unknown

__all__ = ["HOLD", "RELATIVE_S", "cap", "cooling", "relative", "result"]

HOLD: Final = 3
"""Samples in a row, a second apart, that must be cool."""

RELATIVE_S: Final = 120.0
"""How far back the lowest temperature of a card without a fan is looked for."""

_SETTLED_S: Final = 30.0
_NEAR_C: Final = 2.0
_SLOPE_C_PER_S: Final = 0.02
"""0.2 degrees in 10 s. Over 30 s, since the sensor has whole degrees."""

_STATES: Final = {
    CapState.NOT_APPLICABLE: "not_applicable",
    CapState.UNSUPPORTED: "failed",
    CapState.UNKNOWN: "unknown",
    CapState.UNDECLARED: "failed",
    CapState.WRONG: "failed",
    CapState.DECLARED: "passed",
    CapState.OBSERVED: "passed",
}


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


def relative(samples: Sequence[tuple[float, Reading[float]]]) -> GateView:
    """Whether a card that never gets cool is as cool as it gets.

    For cards without a fan of their own: within 2 degrees of the lowest temperature of
    the last 120 s, and changing by less than 0.2 degrees in 10 s.

    Args:
        samples: Monotonic seconds and edge temperature while the card rests, oldest first.
    """
    end_s, last = samples[-1] if samples else (0.0, Absent("no sample taken"))
    if isinstance(last, NotApplicable):
        return _view("cooling", "not_applicable", last.reason)
    if isinstance(last, Absent):
        return _view("cooling", "unknown", f"the edge temperature is unknown: {last.reason}")
    known = [
        (at_s, one.value)
        for at_s, one in samples
        if isinstance(one, Value) and end_s - at_s <= RELATIVE_S
    ]
    recent = [point for point in known if end_s - point[0] <= _SETTLED_S]
    now_c, lowest_c = known[-1][1], min(edge_c for _, edge_c in known)
    if end_s - recent[0][0] < _SETTLED_S - 1.0:
        waited = end_s - recent[0][0]
        return _view("cooling", "failed", f"at rest for {waited:.0f} of {_SETTLED_S:g} s")
    if now_c > lowest_c + _NEAR_C:
        reason = f"the edge is at {now_c:g} °C, above the {lowest_c:g} °C of the last two minutes"
        return _view("cooling", "failed", reason)
    slope = _slope(recent)
    if not abs(slope) < _SLOPE_C_PER_S:
        reason = f"the edge still changes by {10 * slope:.1f} °C in 10 s, from {now_c:g} °C"
        return _view("cooling", "failed", reason)
    return _view("cooling", "passed", f"the edge rests at {now_c:g} °C (relative gate)")


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Degrees per second of the least-squares line; the points span some time."""
    mean_s = sum(at_s for at_s, _ in points) / len(points)
    mean_c = sum(edge_c for _, edge_c in points) / len(points)
    spread = sum((at_s - mean_s) ** 2 for at_s, _ in points)
    return sum((at_s - mean_s) * (edge_c - mean_c) for at_s, edge_c in points) / spread


def cap(
    limits: PowerCap, *, wanted_w: float | None, held: CapHeld | Unknown | None = None
) -> GateView:
    """Whether the power cap in force is the one that the hardware profile declares.

    A card without a declared cap does not pass: what is measured on it holds for no
    machine but the one in that hour.

    Args:
        limits: What the driver says.
        wanted_w: What the profile declares, or None where it declares none.
        held: What a busy window showed of it.
    """
    verdict = judge(limits, wanted_w=wanted_w, held=held)
    return _view("power_cap", _STATES[verdict.state], verdict.reason)


def result(*gates: GateView, kind: str = "absolute", edge_c: float | None = None) -> GateResult:
    """Whether all gates pass: the first that does not gives the reason.

    Args:
        gates: The verdicts.
        kind: How the temperature was judged, for ``GateResult.gate``.
        edge_c: Edge temperature now, or None.
    """
    for gate in gates:
        if gate.state not in {"passed", "not_applicable"}:
            return GateResult(passed=False, reason=gate.reason, gate=kind, edge_c=edge_c)
    if all(gate.state == "not_applicable" for gate in gates):
        kind = "not_applicable"
    reason = "; ".join(gate.reason for gate in gates)
    return GateResult(passed=True, reason=reason, gate=kind, edge_c=edge_c)


def _view(name: str, state: str, reason: str) -> GateView:
    return GateView(name=name, state=state, reason=reason)
