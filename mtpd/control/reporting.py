"""Puts what was measured of several models side by side, where it may be. Pure.

Covers the matrix of study 000, the pairs, the balance of each depth with the measured row
cost, and what the rules recommend. What the traps of ``tuner.compare`` forbid is marked with
the trap; what was not measured is said.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.control.rows import depth_row
from mtpd.report_views import (
    BalanceView,
    EconomicsView,
    MatrixRowView,
    MeasuredDepthView,
    PairView,
    RecommendationView,
    ReportModelView,
    TrapView,
)
from mtpd.views import ArmView, IntervalView, QualityView
from tuner.candidates import Candidate, Objective
from tuner.compare import Incomparable, PerplexityRun, Trap, comparable, compare_quality
from tuner.pools import choose_model
from tuner.speed import compare_speeds
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mtpd.explanation_views import DepthSpeedView, ModelChainView
    from mtpd.views import ModelView
    from tuner.compare import Quality
    from tuner.summary import ArmSummary
    from tuner.types import Arm

__all__ = ["ModelRecord", "Wanted", "matrix", "model_report", "pairs", "recommendations"]

_POSITIONS = 2
"""Draft positions that the matrix shows: alpha_1 and alpha_2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """All that is known of one model.

    Attributes:
        view: As the API shows it.
        served: The arm at which it is served.
        summaries: Its measured arms under today's fingerprint, shallow to deep.
        ids: The stored repetitions behind each of them.
        quality: Its perplexity as the tuner compares it, or None.
        context_tokens: Tokens that one request can hold.
        memory_bytes: Predicted device memory of the served arm, or None.
        chain: The way from the cells to the speeds.
        decision_id: The decision that the chain is of, or None.
    """

    view: ModelView
    served: Arm
    summaries: tuple[ArmSummary, ...]
    ids: Mapping[Arm, tuple[int, ...]]
    quality: Quality | None
    context_tokens: int
    memory_bytes: int | None
    chain: ModelChainView
    decision_id: int | None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.view.id

    @property
    def summary(self) -> ArmSummary | None:
        """What was measured at the served arm."""
        return next((row for row in self.summaries if row.arm == self.served), None)

    @property
    def told_by(self) -> ArmSummary | None:
        """The arm that tells the acceptance: the served one, else the next that tells both."""
        telling = [row for row in self.summaries if len(row.shown_alphas) >= _POSITIONS]
        deeper = next((row for row in telling if row.arm.depth >= self.served.depth), None)
        return deeper or next(iter(telling), self.summary)

    def candidate(self) -> Candidate:
        """The model as a pool compares it."""
        if self.summary is None:
            return Candidate(
                arm=self.served,
                tps=None,
                residency=Unknown("it was not measured"),
                quality=self.quality,
                memory_bytes=self.memory_bytes,
                context_tokens=self.context_tokens,
                tags=frozenset(self.view.tags),
            )
        return Candidate.of(
            self.summary,
            quality=self.quality,
            memory_bytes=self.memory_bytes,
            context_tokens=self.context_tokens,
            tags=frozenset(self.view.tags),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question to the rules for models, and how it is called."""

    purpose: str
    objective: Objective = Objective.BALANCED
    require: frozenset[str] = frozenset()
    accept_offload: bool = False
    least_context_tokens: int = 0
    quality_bound: float | None = None


def matrix(records: Sequence[ModelRecord]) -> tuple[MatrixRowView, ...]:
    """One row per model; numbers that do not compare with those of the others are marked."""
    runs = Counter(one.quality.run for one in records if one.quality is not None)
    # As rule R0 has it: the largest comparable group, of the most chunks where two are equal.
    common = max(runs, key=lambda run: (runs[run], run.chunks, repr(run)), default=None)
    timed = [(one.summary, one.name) for one in records if one.summary is not None]
    told = [(one.told_by, one.name) for one in records if one.told_by and one.told_by.shown_alphas]
    rows: list[MatrixRowView] = []
    for one in records:
        traps = list(_perplexity_trap(one, common))
        if one.summary is not None:
            traps += _cells_trap(one.summary, *timed[0])
        if one.told_by is not None and one.told_by.shown_alphas:
            traps += _text_trap(one.told_by, *told[0])
        rows.append(_matrix_row(one, tuple(traps)))
    return tuple(rows)


def _matrix_row(one: ModelRecord, traps: tuple[TrapView, ...]) -> MatrixRowView:
    shown = None if one.summary is None else depth_row(one.summary)
    telling = None if one.told_by is None else depth_row(one.told_by)
    acceptance = () if telling is None else telling.acceptance[:_POSITIONS]
    arms = dict.fromkeys(row.arm for row in (one.summary, one.told_by) if row is not None)
    choice = one.view.choice
    return MatrixRowView(
        model=one.name,
        tags=one.view.tags,
        size_bytes=one.view.size_bytes,
        quality=_quality_view(one),
        perplexity_id=None if one.view.perplexity is None else one.view.perplexity.id,
        arm=ArmView.of(one.served),
        measured=choice is not None and choice.measured,
        pinned=choice is not None and choice.pinned,
        decode_tps=None if shown is None else shown.decode_tps,
        tps_interval=None if shown is None else shown.tps_interval,
        acceptance=acceptance,
        acceptance_arm=telling.arm if telling is not None and acceptance else None,
        tokens_per_joule=None if shown is None else shown.tokens_per_joule,
        residency="unknown" if shown is None else shown.residency,
        measurement_ids=tuple(sorted(i for arm in arms for i in one.ids.get(arm, ()))),
        traps=traps,
        unknown=tuple(_unknown(one)),
    )


def _quality_view(one: ModelRecord) -> QualityView | None:
    """The perplexity that was measured, else the declared one."""
    measured = one.view.perplexity
    if measured is None:
        return one.view.quality
    return QualityView(
        perplexity=measured.perplexity,
        stderr=measured.stderr,
        corpus=measured.corpus,
        chunks=measured.chunks,
    )


def _unknown(one: ModelRecord) -> Iterator[str]:
    """What a row lacks, in the order of its columns."""
    if one.view.size_bytes is None:
        yield "size: the model file cannot be read"
    if one.quality is None:
        yield "perplexity: not measured"
    if one.summary is None or one.summary.tps is None:
        failed = None if one.summary is None else one.summary.failure
        yield f"speed and residency: {failed or f'{one.served} was not measured'}"
    elif isinstance(one.summary.residency, Unknown):
        yield f"residency: {one.summary.residency.reason}"
    if one.view.max_depth and (told := len(_shown(one.told_by))) < _POSITIONS:
        why = "no measured arm tells it"
        if one.told_by is not None and isinstance(one.told_by.alphas, Unknown):
            why = one.told_by.alphas.reason
        yield f"{'alpha1 and alpha2' if not told else 'alpha2'}: {why}"
    if one.summary is not None and isinstance(one.summary.tokens_per_joule, Unknown):
        yield f"energy: {one.summary.tokens_per_joule.reason}"


def _shown(row: ArmSummary | None) -> tuple[object, ...]:
    return () if row is None else row.shown_alphas


def _perplexity_trap(one: ModelRecord, common: PerplexityRun | None) -> Iterator[TrapView]:
    if one.quality is None or common is None:
        return
    verdict = comparable(common, one.quality.run)
    if isinstance(verdict, Incomparable):
        yield _trap("perplexity", verdict)


def _cells_trap(one: ArmSummary, first: ArmSummary, name: str) -> Iterator[TrapView]:
    """Speeds over other prompts than those of the first measured row."""
    mine, theirs = ({(cell.workload, cell.prompt) for cell in row.cells} for row in (one, first))
    if one.cells and mine != theirs:
        sentence = f"measured over {len(mine)} prompts, {name} over {len(theirs)}"
        if len(mine) == len(theirs):
            sentence = f"measured over other prompts than {name}"
        yield TrapView(column="speed", trap=Trap.CELLS.value, sentence=sentence)


def _text_trap(one: ArmSummary, first: ArmSummary, name: str) -> Iterator[TrapView]:
    """Acceptance on another text than that of the first row."""
    mine, theirs = (
        {(cell.workload, cell.prompt): cell.digest for cell in row.cells} for row in (one, first)
    )
    shared = [key for key in mine if key in theirs]
    other = [key for key in shared if mine[key] is None or mine[key] != theirs[key]]
    if not mine or one is first or (shared and not other):
        return
    which = f"{len(other)} of {len(shared)} prompts" if shared else "no common prompt"
    sentence = f"measured on other texts than {name} ({which}); acceptance is also of the text"
    yield TrapView(column="acceptance", trap=Trap.TEXT.value, sentence=sentence)


def _trap(column: str, found: Incomparable) -> TrapView:
    return TrapView(column=column, trap=found.trap.value, sentence=found.sentence)


def pairs(records: Sequence[ModelRecord]) -> tuple[PairView, ...]:
    """Every two models, in the order given."""
    return tuple(_pair(*two) for two in itertools.combinations(records, 2))


def _pair(base: ModelRecord, variant: ModelRecord) -> PairView:
    traps: list[TrapView] = []
    unknown: list[str] = []
    change = z = verdict = ratio = interval = None
    if base.quality is None or variant.quality is None:
        lacking = [one.name for one in (base, variant) if one.quality is None]
        unknown.append(f"perplexity of {' and '.join(lacking)}: not measured")
    elif isinstance(found := compare_quality(base.quality, variant.quality), Incomparable):
        traps.append(_trap("perplexity", found))
    else:
        change, verdict = math.expm1(found.delta_log), found.verdict.value
        z = found.z if math.isfinite(found.se) else None
    slow, fast = base.summary, variant.summary
    if slow is None or fast is None or slow.tps is None or fast.tps is None:
        lacking = [
            one.name for one in (base, variant) if one.summary is None or one.summary.tps is None
        ]
        unknown.append(f"speed of {' and '.join(lacking)}: not measured")
    elif isinstance(speeds := compare_speeds(fast, slow, own_texts=True), Incomparable):
        traps.append(_trap("speed", speeds))
    else:
        ratio, interval = speeds.ratio, speeds.interval
        places = [type(row.residency).__name__.lower() for row in (slow, fast)]
        if places[0] != places[1]:
            sentence = f"the base was measured {places[0]}, the variant {places[1]}"
            traps.append(TrapView(column="speed", trap=Trap.RESIDENCY.value, sentence=sentence))
    return PairView(
        base=base.name,
        variant=variant.name,
        perplexity_change=change,
        z=z,
        verdict=verdict,
        speed_ratio=ratio,
        speed_interval=None if interval is None else IntervalView.of(interval),
        traps=tuple(traps),
        unknown=tuple(unknown),
    )


def model_report(one: ModelRecord) -> ReportModelView:
    """A model's depth table with its repetitions, and the balance of its depths."""
    first = next((row for row in one.summaries if row.cells), None)
    return ReportModelView(
        model=one.name,
        depths=tuple(
            MeasuredDepthView(
                row=depth_row(row),
                served=row.arm == one.served,
                measurement_ids=one.ids.get(row.arm, ()),
                traps=()
                if first is None
                else (
                    *_cells_trap(row, first, str(first.arm)),
                    *_text_trap(row, first, str(first.arm)),
                ),
            )
            for row in one.summaries
        ),
        economics=_economics(one),
    )


def _economics(one: ModelRecord) -> EconomicsView:
    """The balance by the measured row cost; an assumed cost is none."""
    found = one.chain.cost
    if found is None:
        cost = None
        unknown = one.chain.note or "two measured depths, or single steps, are needed"
    elif not found.measured:
        cost, unknown = None, f"the cost of a row was not measured: {found.source}"
    else:
        cost, unknown = found, ""
    rows = {row.arm.depth: row for row in one.summaries if row.tps is not None}
    return EconomicsView(
        cost=cost,
        balance=()
        if cost is None
        else tuple(
            _balance(speed, rows.get(speed.depth), rows.get(0))
            for speed in one.chain.speeds
            if speed.depth
        ),
        decision_id=one.decision_id,
        unknown=unknown,
    )


def _balance(
    speed: DepthSpeedView, drafting: ArmSummary | None, plain: ArmSummary | None
) -> BalanceView:
    """One depth by the formula, and by the measured speeds where they compare."""
    gain = speed.tokens_per_step / speed.cost
    measured, trap = None, None
    if drafting is not None and plain is not None:
        found = compare_speeds(drafting, plain)
        if isinstance(found, Incomparable):
            trap = _trap("speed", found)
        else:
            measured = found.ratio
    return BalanceView(
        depth=speed.depth,
        tokens_per_step=speed.tokens_per_step,
        cost=speed.cost,
        gain=gain,
        measured=measured,
        misfit=None if measured is None else measured / gain - 1,
        trap=trap,
    )


def recommendations(
    records: Sequence[ModelRecord], asked: Sequence[Wanted] = ()
) -> tuple[RecommendationView, ...]:
    """What the rules say of these models, for what is asked and for each usual purpose.

    The usual purposes are study 000's: balanced, each tag, and the lowest perplexity wherever
    it lies; and efficiency where an energy is known.
    """
    rows = [one.candidate() for one in records]
    wanted = [*asked, Wanted(purpose="balanced")]
    wanted += [
        Wanted(purpose=f"balanced, with the tag {tag}", require=frozenset({tag}))
        for tag in sorted({tag for one in records for tag in one.view.tags})
    ]
    wanted.append(
        Wanted(
            purpose="quality, layers on the CPU accepted",
            objective=Objective.QUALITY,
            accept_offload=True,
        )
    )
    if any(not isinstance(row.tokens_per_joule, Unknown) for row in rows):
        wanted.append(Wanted(purpose="efficiency", objective=Objective.EFFICIENCY))
    return tuple(_recommended(rows, one) for one in wanted)


def _recommended(rows: Sequence[Candidate], wanted: Wanted) -> RecommendationView:
    decision = choose_model(
        rows,
        objective=wanted.objective,
        subject=wanted.purpose,
        require=wanted.require,
        accept_offload=wanted.accept_offload,
        least_context_tokens=wanted.least_context_tokens,
        quality_bound=wanted.quality_bound,
    )
    return RecommendationView(
        purpose=wanted.purpose,
        arm=None if decision.arm is None else ArmView.of(decision.arm),
        reason=decision.reason,
    )
