"""Rebuilds the chain from stored cells to a decision's sentence. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.control.rows import depth_rows
from mtpd.views import ExplanationView
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.views import DecisionView, DepthRowView, MeasurementView
    from tuner.types import Observation

__all__ = ["explanation"]


def explanation(
    decision: DecisionView,
    measurements: Sequence[MeasurementView],
    observations: Sequence[Observation],
) -> ExplanationView:
    """A decision with the rows it compared and one sentence per step.

    Args:
        decision: The journal row.
        measurements: The stored repetitions that it rests on.
        observations: The same, as the tuner takes them.
    """
    rows = depth_rows(summarise(observations))
    notes = [f"note: {e}" for e in decision.evidence if e.startswith("the machine was busy")]
    chain = [_measured(measurements), *(_row(row) for row in rows), *notes, decision.reason]
    if decision.outcome:
        chain.append(f"then: {decision.outcome}")
    return ExplanationView(
        decision=decision,
        rows=rows,
        measurements=tuple(measurements),
        chain=tuple(chain),
    )


def _measured(measurements: Sequence[MeasurementView]) -> str:
    if not measurements:
        return "no measurement: an operator or the configuration named this"
    starts = len({m.start_id for m in measurements})
    prompts = len({(m.workload, m.prompt) for m in measurements})
    prints = len({(m.arm.profile, m.fingerprint) for m in measurements})
    models = len({m.arm.profile for m in measurements})
    text = (
        f"{_count(len(measurements), 'repetition')} of {_count(prompts, 'prompt')} on "
        f"{_count(starts, 'engine start')}, "
        f"measured from {measurements[0].at} to {measurements[-1].at}"
    )
    return text if prints == models else f"{text}, under {prints} fingerprints"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _row(row: DepthRowView) -> str:
    name = f"{row.arm.profile}@{row.arm.depth}"
    if row.decode_tps is None:
        return f"{name}: not measured ({row.note or row.residency})"
    text = f"{name}: {row.decode_tps:.1f} tok/s, {row.residency}"
    if row.tokens_per_step is not None and row.arm.depth:
        text += f", {row.tokens_per_step:.2f} tokens per step"
    for one in row.acceptance:
        text += f", alpha{one.position} {one.alpha.mid:.3f} ({one.accepted}/{one.offered})"
    return f"{text}; {row.note}" if row.note else text
