"""What the control API shows of everything that was measured of a set of models. Pure.

Unknown is null, and ``unknown`` or a note says why; it is never 0. What must not be compared
carries the trap that forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtpd.explanation_views import CostView  # noqa: TC001  # decoders resolve it
from mtpd.views import (  # noqa: TC001  # decoders resolve them
    AcceptanceView,
    ArmView,
    ChoiceView,
    DepthRowView,
    IntervalView,
    QualityView,
)

__all__ = [
    "BalanceView",
    "EconomicsView",
    "MatrixRowView",
    "MeasuredDepthView",
    "PairView",
    "RecommendationView",
    "ReportModelView",
    "ReportView",
    "TrapView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapView:
    """Why a number must not be compared with the others.

    Attributes:
        column: Which number it is about: perplexity, acceptance or speed.
        trap: Its name, e.g. chunks, corpus, text, cells.
        sentence: What differs.
    """

    column: str
    trap: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRowView:
    """One model at the depth at which it is served: a row of study 000's matrix.

    Attributes:
        quality: Its perplexity: the newest measured one, else the declared one.
        perplexity_id: The stored perplexity; null where the configuration declares it.
        arm: What is served.
        decode_tps: Measured at that arm; null where it was not.
        acceptance: Of ``acceptance_arm``.
        acceptance_arm: The served arm, or the shallowest deeper one that tells two positions.
        residency: Of the served arm; unknown where it was not measured.
        measurement_ids: The stored repetitions behind speed, residency and acceptance.
        traps: Numbers of this row that must not be compared with the others'.
        unknown: What is not known and why, one clause each.
    """

    model: str
    tags: tuple[str, ...]
    size_bytes: int | None
    quality: QualityView | None
    perplexity_id: int | None
    arm: ArmView
    measured: bool
    pinned: bool
    decode_tps: float | None
    tps_interval: IntervalView | None
    acceptance: tuple[AcceptanceView, ...]
    acceptance_arm: ArmView | None
    tokens_per_joule: float | None
    residency: str
    measurement_ids: tuple[int, ...]
    traps: tuple[TrapView, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDepthView:
    """A row of a model's depth table with the repetitions behind it.

    Attributes:
        traps: What of it must not be compared with the first measured row.
    """

    row: DepthRowView
    served: bool
    measurement_ids: tuple[int, ...]
    traps: tuple[TrapView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceView:
    """What one depth earns and costs: E(k), t(k) / t(0), and their quotient.

    Attributes:
        gain: Tokens per step over cost: speed over that without drafting by the formula.
        measured: The same from the measured speeds; null where one was not measured, or
            ``trap`` forbids it.
        misfit: ``measured`` over ``gain``, less 1; null as ``measured``.
    """

    depth: int
    tokens_per_step: float
    cost: float
    gain: float
    measured: float | None
    misfit: float | None
    trap: TrapView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicsView:
    """What a verification row costs and whether the depths pay.

    Attributes:
        cost: The row's cost; null where ``unknown`` says why.
        balance: Per depth, from 1; empty where the cost or the tokens are not known.
        decision_id: The decision whose cells these are; null: the cells of the depth table.
        unknown: Why there is no measured row cost; empty where there is.
    """

    cost: CostView | None
    balance: tuple[BalanceView, ...]
    decision_id: int | None
    unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportModelView:
    """What was measured of one model: its depths, and what they earn and cost."""

    model: str
    depths: tuple[MeasuredDepthView, ...]
    economics: EconomicsView


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Two models against each other: variant over base.

    Attributes:
        perplexity_change: The variant's perplexity over the base's, less 1; null where one
            was not measured or ``traps`` forbids it.
        z: That difference in standard errors; null also where no error is known.
        verdict: better, worse or tie; null as ``perplexity_change``.
        speed_ratio: The variant's tokens per second over the base's; null likewise.
        speed_interval: 95 % interval of it; null where nothing repeats.
        traps: What forbids a comparison, and for a ratio that is given what it mixes.
        unknown: What is missing, one clause each.
    """

    base: str
    variant: str
    perplexity_change: float | None
    z: float | None
    verdict: str | None
    speed_ratio: float | None
    speed_interval: IntervalView | None
    traps: tuple[TrapView, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationView:
    """What the rules say of these rows for one purpose.

    Attributes:
        purpose: What is asked for, e.g. "balanced, with the tag uncensored".
        arm: The answer; null where no row qualifies.
        reason: One sentence.
    """

    purpose: str
    arm: ArmView | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """Everything that was measured of a pool, a model or all models.

    Attributes:
        subject: The pool or model; null for all models.
        at: When it was made; RFC 3339, UTC.
        version: Of mtpd.
        hardware: Name of the hardware profile, or null.
        engine: The engine binary.
        matrix: One row per model.
        pairs: Every two models.
        models: Depth tables and economics.
        recommendations: By the rules, from the matrix; empty for a single model.
        choices: What is in force.
        left_out: Configured models that are not measured by tokens, each with why.
    """

    subject: str | None
    at: str
    version: str
    hardware: str | None
    engine: str
    matrix: tuple[MatrixRowView, ...]
    pairs: tuple[PairView, ...]
    models: tuple[ReportModelView, ...]
    recommendations: tuple[RecommendationView, ...]
    choices: tuple[ChoiceView, ...]
    left_out: tuple[str, ...]
