"""Turns a memory forecast into what the API shows and what sentences say. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.control.memory import Budget
from mtpd.memory_views import (
    AdviceView,
    DepthMemoryView,
    JointView,
    MemoryPartsView,
    MemoryView,
    NeedView,
    OptionView,
    PrintedMemoryView,
)
from mtpd.proxy.room import Source
from mtpd.types import Absent, NotApplicable
from tuner.advisor import Speed
from tuner.memory import Evicts, Fits
from tuner.select import cost_of, does_not_fit
from tuner.types import Evicted, Unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mtpd.config.model import HardwareProfile
    from mtpd.control.memory import ArmMemory, ArmVerdict, MemoryForecast
    from mtpd.control.printed import StartSums
    from mtpd.proxy.room import Need
    from tuner.advisor import Advice
    from tuner.memory import Predicted
    from tuner.summary import ArmSummary
    from tuner.types import Arm

__all__ = [
    "ADVICE",
    "depth_memory",
    "memory_view",
    "need_view",
    "notes",
    "printed_memory",
    "seen_notes",
    "speed_of",
]

ADVICE = "to make it fit: "
"""How the evidence about an arm begins that a start showed not to fit."""

_MIB = 2**20


def memory_view(
    forecast: MemoryForecast, *, wanted: int | None = None, speed: Speed | None = None
) -> MemoryView:
    """A forecast as the API shows it.

    Args:
        forecast: Every depth of a profile.
        wanted: A depth about which advice is given if it does not stay on the device,
            beside the shallowest one that does not.
        speed: What was measured of the acceptance and the row cost, if anything.
    """
    budget, shape = forecast.budget, forecast.shape
    best = None if speed is None else forecast.best(speed)
    there = budget if isinstance(budget, Budget) else None
    return MemoryView(
        free_bytes=None if there is None else there.free_bytes,
        headroom_bytes=None if there is None else there.headroom_bytes,
        margin_bytes=None if there is None else forecast.margin_bytes,
        source=budget.source if isinstance(budget, Budget) else budget.reason,
        forecast=there is not None and there.forecast,
        calibration=None if isinstance(shape, Unknown) else shape.calibration.source,
        depths=tuple(depth_memory(one) for one in forecast.arms),
        advice=tuple(
            _advice(depth, advice)
            for depth in _asked(forecast, wanted)
            if (advice := forecast.advice(depth, speed)) is not None and advice.options
        ),
        joint=tuple(
            JointView(
                context=load.plan.context,
                slots=load.plan.slots,
                depth=load.plan.depth,
                left_bytes=load.verdict.left_bytes,
            )
            for load in forecast.joint()
            if isinstance(load.verdict, Fits)
        ),
        best=None if best is None else best.reason,
    )


def depth_memory(one: ArmMemory) -> DepthMemoryView:
    """One depth as the API shows it."""
    return DepthMemoryView(
        depth=one.arm.depth,
        predicted=None if isinstance(one.predicted, Unknown) else _parts(one.predicted),
        verdict=_name(one.verdict),
        reason=_reason(one.verdict),
        left_bytes=_left_bytes(one.verdict),
        engine_fit=_name(one.engine),
    )


_RESTS_ON = {
    Source.MEASURED: "what a start of it was seen to take",
    Source.FORECAST: "predicted from the model file's header, at the upper end of the error",
    Source.BOUND: "by the model file's header; maybe much less",
    Source.DECLARED: "vram_mib in its profile says so",
    Source.MISFIT: "a start that was given less did not fit",
}


def printed_memory(sums: StartSums | None) -> PrintedMemoryView | None:
    """What an engine's log lists of the device; None where it lists nothing there."""
    if sums is None or not sums.weights_mib:
        return None
    compute = sums.compute_mib
    return PrintedMemoryView(
        weights_bytes=_bytes(sums.weights_mib),
        kv_bytes=_bytes(sums.kv_mib),
        recurrent_bytes=_bytes(sums.recurrent_mib),
        draft_bytes=_bytes(sums.draft_kv_mib + (sums.draft_compute_mib or 0.0)),
        compute_bytes=None if compute is None else _bytes(compute),
    )


def _bytes(mib: float) -> int:
    return round(mib * _MIB)


def need_view(need: Need | Absent) -> NeedView:
    """What an engine takes beside others as the API shows it."""
    if isinstance(need, Absent):
        return NeedView(count_bytes=None, source="unknown", reason=need.reason)
    source = need.source
    return NeedView(count_bytes=need.count, source=source.name.lower(), reason=_RESTS_ON[source])


def _parts(predicted: Predicted) -> MemoryPartsView:
    return MemoryPartsView(
        weights_bytes=predicted.weights.size,
        kv_bytes=predicted.kv.size,
        recurrent_bytes=predicted.recurrent.size,
        draft_bytes=predicted.draft_kv.size + predicted.draft_compute.size,
        compute_bytes=predicted.compute.size,
        overhead_bytes=predicted.overhead.size,
        total_bytes=predicted.total,
        low_bytes=predicted.low,
        high_bytes=predicted.high,
    )


def _name(verdict: ArmVerdict) -> str:
    """fits, evicts, unknown or not_applicable."""
    match verdict:
        case Fits():
            return "fits"
        case Evicts():
            return "evicts"
        case NotApplicable():
            return "not_applicable"
        case Unknown():
            return "unknown"


def _reason(verdict: ArmVerdict) -> str:
    """What is left or lacking, or why it is not known."""
    match verdict:
        case Fits(left_bytes=left):
            return f"{left / _MIB:.0f} MiB left"
        case Evicts(missing_bytes=missing):
            return f"{missing / _MIB:.0f} MiB lacking"
        case NotApplicable(reason=reason) | Unknown(reason=reason):
            return reason


def _left_bytes(verdict: ArmVerdict) -> int | None:
    match verdict:
        case Fits(left_bytes=left):
            return left
        case Evicts(missing_bytes=missing):
            return -missing
        case _:
            return None


def speed_of(rows: Iterable[ArmSummary], hardware: HardwareProfile | None) -> Speed | None:
    """What is known of the speed at other depths; None where it takes a guess.

    Args:
        rows: What was measured of one profile; the deepest row with its acceptance by
            position counts.
        hardware: Its row cost stands in where fewer than two depths were measured.
    """
    measured = sorted(rows, key=lambda row: row.arm.depth)
    cost = cost_of(measured)
    if isinstance(cost, Unknown):
        row_cost = None if hardware is None else hardware.row_cost
    else:
        row_cost = cost.c
    for row in reversed(measured):
        if row.arm.depth and not isinstance(row.alphas, Unknown) and row_cost is not None:
            return Speed(alphas=tuple(alpha.mid for alpha in row.alphas), row_cost=row_cost)
    return None


def notes(forecast: MemoryForecast, arms: Collection[Arm]) -> tuple[str, ...]:
    """One sentence per arm that is predicted not to fit, for a decision's evidence."""
    said = ((arm, forecast.advice(arm.depth)) for arm in arms)
    return tuple(
        f"{arm}: does not fit (predicted: {advice.reason})"
        for arm, advice in said
        if advice is not None
    )


def seen_notes(forecast: MemoryForecast, rows: Iterable[ArmSummary]) -> tuple[str, ...]:
    """What would make the arms fit that a start showed not to; one sentence per arm."""
    out: list[str] = []
    for row in rows:
        if does_not_fit(row.residency) is None:
            continue
        layers = row.residency.layers if isinstance(row.residency, Evicted) else None
        advice = forecast.advice(row.arm.depth, evicted_layers=layers)
        if advice is not None and advice.options:
            out.append(f"{row.arm}: {ADVICE}{advice.reason}")
    return tuple(out)


def _asked(forecast: MemoryForecast, wanted: int | None) -> list[int]:
    """The shallowest depth that does not stay, and the wanted one."""
    not_there = [
        one.arm.depth for one in forecast.arms if not isinstance(one.verdict, Fits | NotApplicable)
    ]
    return sorted({*not_there[:1], *(depth for depth in not_there if depth == wanted)})


def _advice(depth: int, advice: Advice) -> AdviceView:
    return AdviceView(
        depth=depth,
        reason=advice.reason,
        options=tuple(
            OptionView(
                lever=option.lever.value,
                setting=str(option),
                gained_bytes=option.gained_bytes,
                enough=option.enough,
                tps_ratio=option.tps_ratio,
                cost=option.cost,
            )
            for option in advice.options
        ),
        together=tuple(str(option) for option in advice.together),
    )
