"""What the control API shows of a decision's reasons, from the cells to the sentence. Pure.

Unknown is null with a sentence beside it, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtpd.views import (  # noqa: TC001  # decoders resolve them
    ArmView,
    DecisionView,
    DepthRowView,
    EvidenceView,
    IntervalView,
    MeasurementView,
)

__all__ = [
    "AskView",
    "CellView",
    "CostView",
    "DepthSpeedView",
    "ExplanationView",
    "ModelChainView",
    "OutView",
    "ReplayView",
    "StartView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskView:
    """What the search asked for, and why.

    Attributes:
        number: Which start of the model this was, from 1.
        reason: One clause.
        short_steps: Single steps wanted per number of rows; 0 for none.
    """

    number: int
    arm: ArmView
    reason: str
    repetitions: int
    short_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """One engine start.

    Attributes:
        residency: resident, evicted, spilled, host or unknown.
        reason: Why; null where it was not recorded then.
        evidence: The lines that decided; empty where they were not recorded then.
        failure: Why it never became ready, or null.
        repetitions: Measured on it, the excluded ones too.
        short_steps: Single steps that were timed on it.
    """

    start_id: str
    arm: ArmView
    residency: str
    reason: str | None
    evidence: tuple[EvidenceView, ...]
    failure: str | None
    repetitions: int
    short_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One prompt on one arm.

    Attributes:
        median_tps: Over its repetitions.
        repetitions: That were used.
        outliers: Repetitions that are marked as outliers; they stay in the median.
        digest: Of the text; null if the repetitions made different texts.
    """

    arm: ArmView
    workload: str
    prompt: int
    repetitions: int
    median_tps: float
    outliers: int
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """What a verification row costs, as a share of a plain step.

    Attributes:
        source: What shows it.
        context_cost: What 1000 tokens of context cost, likewise; null where no start shows it.
        measured: Whether measured step times show it; else it was assumed beforehand.
    """

    row_cost: IntervalView
    source: str
    context_cost: IntervalView | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSpeedView:
    """The way from tokens and step time to a speed, for one depth.

    Attributes:
        tokens_per_step: Mean over workloads; predicted beyond the depths that were counted.
        step_ms: Time of a step by all starts together.
        cost: That time over the plain step's.
        tps: What follows from both, by all starts together.
        forecast_tps: What was expected before its first start; null for the first one.
        measured_tps: Mean over workloads of the medians; null if it was not measured.
        misfit: Its step time over that of the straight line t0 (1 + c k), less 1.
        memory_bytes: Predicted device memory; null where it was not predicted.
    """

    depth: int
    tokens_per_step: float
    step_ms: IntervalView
    cost: float
    tps: IntervalView
    forecast_tps: IntervalView | None
    measured_tps: float | None
    misfit: float
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutView:
    """An arm that is out.

    Attributes:
        verdict: "does not fit" (memory), "does not pay" (speed) or "not measured".
        reason: One clause.
    """

    arm: ArmView
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChainView:
    """Everything that was told of one model, in the order of the argument.

    Attributes:
        asks: In order; null where the search's inputs were not recorded then, and for a
            pool, whose members have decisions of their own.
        stop: Why the search ended; null as ``asks``.
        cost: What a row costs; null where fewer than two depths are known, and for a pool.
        speeds: Per depth; empty where the counts or step times are not known, and for a pool.
        out: Arms that are out, shallow to deep; null as ``asks``.
        note: What is not known of all this and why, or where it is told; empty if all is here.
    """

    profile: str
    asks: tuple[AskView, ...] | None
    stop: str | None
    starts: tuple[StartView, ...]
    cells: tuple[CellView, ...]
    cost: CostView | None
    speeds: tuple[DepthSpeedView, ...]
    out: tuple[OutView, ...] | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """Whether the recorded inputs give the recorded decision again.

    Attributes:
        state: same, differs or not_recorded.
        sentence: What that rests on, or what differs.
    """

    state: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationView:
    """A decision with all that it stands on.

    Attributes:
        decision: The journal row.
        models: What was told of each model, from what was asked to the speeds.
        rows: The depth rows that were compared, by profile and depth.
        measurements: The stored repetitions behind the rows, oldest first.
        rule: The rule that decides between what was measured.
        replay: Whether the same decision follows again.
        chain: How the decision follows in short, one sentence per step.
    """

    decision: DecisionView
    models: tuple[ModelChainView, ...]
    rows: tuple[DepthRowView, ...]
    measurements: tuple[MeasurementView, ...]
    rule: str
    replay: ReplayView
    chain: tuple[str, ...]
