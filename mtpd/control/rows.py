"""Turns what the tuner returns into what the API shows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.views import (
    AcceptanceView,
    ArmView,
    DepthRowView,
    IntervalView,
    QualityView,
)
from tuner.speed import speed_interval
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.config.model import Quality
    from tuner.summary import ArmSummary

__all__ = ["depth_row", "depth_rows", "quality_view"]


def quality_view(quality: Quality | None) -> QualityView | None:
    """A perplexity as the API shows it; None stays None."""
    if quality is None:
        return None
    return QualityView(
        perplexity=quality.perplexity,
        stderr=quality.stderr,
        corpus=quality.corpus,
        chunks=quality.chunks,
    )


def depth_rows(summaries: Iterable[ArmSummary]) -> tuple[DepthRowView, ...]:
    """Rows of the depth table, by profile and depth."""
    return tuple(
        depth_row(s) for s in sorted(summaries, key=lambda s: (s.arm.profile, s.arm.depth))
    )


def depth_row(summary: ArmSummary) -> DepthRowView:
    """One row of the depth table."""
    speed, energy = speed_interval(summary), summary.tokens_per_joule
    return DepthRowView(
        arm=ArmView.of(summary.arm),
        workloads=dict(summary.workload_tps),
        decode_tps=summary.tps,
        tps_interval=None if speed is None else IntervalView.of(speed),
        tokens_per_step=summary.expected,
        acceptance=_acceptance(summary),
        residency=type(summary.residency).__name__.lower(),
        same_text=summary.same_text,
        repetitions=summary.used,
        excluded=sum(e.count for e in summary.excluded),
        outliers=summary.outliers,
        note=_note(summary),
        tokens_per_joule=None if isinstance(energy, Unknown) else energy,
        energy_note=energy.reason if isinstance(energy, Unknown) else "",
    )


def _acceptance(summary: ArmSummary) -> tuple[AcceptanceView, ...]:
    if isinstance(summary.alphas, Unknown) or isinstance(summary.counts, Unknown):
        return ()
    offered = summary.counts.reached
    return tuple(
        AcceptanceView(
            position=index + 1,
            alpha=IntervalView.of(a),
            accepted=summary.counts.accepted[index],
            offered=offered[index],
        )
        for index, a in enumerate(summary.alphas)
    )


def _note(summary: ArmSummary) -> str:
    notes = [summary.failure] if summary.failure else []
    if isinstance(summary.residency, Unknown):
        notes.append(f"residency unknown: {summary.residency.reason}")
    if summary.arm.depth and isinstance(summary.alphas, Unknown) and not summary.failure:
        notes.append(f"acceptance unknown: {summary.alphas.reason}")
    notes += [f"left out: {e.reason}" for e in summary.excluded]
    return "; ".join(notes)
