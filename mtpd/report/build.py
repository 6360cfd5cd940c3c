"""What a report says, from the API's view of what was measured. Pure.

Every number stands with the ids of its repetitions; what must not be compared bears a mark
whose note names the trap, and what is not known is said.
"""

from __future__ import annotations

import re
from itertools import chain, count
from typing import TYPE_CHECKING

from mtpd.report import plots
from mtpd.report.document import Column, Document, Figure, Section, Table
from mtpd.report.text import ALPHA, NONE, number, percent, ranges, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mtpd.report_views import (
        EconomicsView,
        MatrixRowView,
        PairView,
        RecommendationView,
        ReportModelView,
        ReportView,
        TrapView,
    )
    from mtpd.views import AcceptanceView, IntervalView

__all__ = ["document"]

_TRACED = (
    "The column ids names the stored repetitions behind a row: "
    "`mtpctl measurements --id IDS` prints them."
)
_MATRIX = (
    "Each model at the depth at which it is served. "
    f"{ALPHA}N: how often the draft's Nth token is accepted when those before it were. "
    "A row in bold is what a pool stands for now."
)
_PAIRS = (
    "Every two models, the second over the first. A perplexity differs where it is at least "
    "1.96 standard errors away, else the two tie; the speeds are compared prompt by prompt."
)
_BALANCE = (
    "tokens/step is E(k), the sum of 1, \N{GREEK SMALL LETTER ALPHA}1, "
    "\N{GREEK SMALL LETTER ALPHA}1\N{GREEK SMALL LETTER ALPHA}2, ...; cost is the time of a "
    "step over that of a plain one; a depth pays where E/cost is above 1 and grows. measured is "
    "its tok/s over those of depth 0, misfit what the formula is off."
)


class _Notes:
    """Numbers sentences in the order in which they are first needed."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def marked(self, text: str, sentences: Iterable[str]) -> str:
        """A cell with the marks of its notes."""
        marks = []
        for one in sentences:
            if one not in self._said:
                self._said.append(one)
            marks.append(f"({self._said.index(one) + 1})")
        return " ".join([text, *marks])

    def all(self) -> tuple[str, ...]:
        """The sentences, in the order of their numbers."""
        return tuple(self._said)


def document(view: ReportView) -> Document:
    """The report as sections of text, tables and drawings."""
    return Document(
        title=f"What was measured: {view.subject or 'all models'}",
        lead=tuple(_lead(view)),
        sections=(
            _matrix(view),
            *_pairs(view.pairs),
            *(
                part
                for model, file in zip(view.models, _files(view.models), strict=True)
                for part in _model(model, file)
            ),
            _recommended(view),
        ),
    )


def _lead(view: ReportView) -> Iterator[str]:
    hardware = view.hardware or "no hardware profile named"
    yield f"mtpd {view.version}, {view.at}. Hardware: {hardware}. Engine: {view.engine}."
    yield _TRACED
    if view.left_out:
        yield f"Left out, because they make no tokens that could be timed: {_list(view.left_out)}."


def _matrix(view: ReportView) -> Section:
    notes = _Notes()
    served = {
        choice.arm.profile
        for choice in view.choices
        if choice.subject not in {row.model for row in view.matrix}
    }
    energy = any(row.tokens_per_joule is not None for row in view.matrix)
    columns = (
        Column("model", right=False),
        *(Column(head) for head in ("size", "perplexity", "chunks", "depth", "tok/s")),
        *(Column(f"{ALPHA}{position}") for position in (1, 2)),
        *((Column("tok/J"),) if energy else ()),
        Column("residency", right=False),
        Column("ids", right=False),
    )
    drawn = plots.speed_quality(view.matrix, served)
    left_out = [
        row.model for row in view.matrix if any(t.column == "perplexity" for t in row.traps)
    ]
    caption = f"Speed and perplexity. {plots.LEGEND}"
    if left_out:
        caption += f" Not drawn, as their perplexity does not compare: {_list(left_out)}."
    return Section(
        title="The measurement matrix",
        paragraphs=(_MATRIX,) if view.matrix else ("No model is configured that makes tokens.",),
        table=Table(
            columns=columns,
            rows=tuple(_matrix_row(row, notes, energy=energy) for row in view.matrix),
            strong=frozenset(i for i, row in enumerate(view.matrix) if row.model in served),
            notes=notes.all(),
        )
        if view.matrix
        else None,
        remarks=(*_origins(view.matrix), *_unknown(view.matrix)),
        figures=() if drawn is None else (Figure(name="matrix", caption=caption, svg=drawn),),
    )


def _matrix_row(row: MatrixRowView, notes: _Notes, *, energy: bool) -> tuple[str, ...]:
    quality, served = row.quality, "" if row.measured else " set" if row.pinned else "?"
    traps = {
        column: [_trap(trap) for trap in row.traps if trap.column == column]
        for column in ("perplexity", "speed", "acceptance", "depth")
    }
    of = row.acceptance_arm
    if of is not None and of != row.arm:
        traps["acceptance"].append(f"measured at depth {of.depth}, not at the depth that is served")
    if served == "?":
        traps["depth"].append("this depth was not chosen by measurement")
    value = "" if quality is None else f"{quality.perplexity:.4f}"
    if quality is not None and quality.stderr is not None:
        value += f" ± {quality.stderr:.2f}"
    shown = _alphas(row.acceptance)
    return (
        row.model,
        size(row.size_bytes),
        notes.marked(value or NONE, traps["perplexity"] if value else ()),
        NONE if quality is None else str(quality.chunks),
        notes.marked(f"{row.arm.depth}{served}", traps["depth"]),
        notes.marked(number(row.decode_tps, 1), traps["speed"]),
        notes.marked(shown[0], traps["acceptance"] if shown[0] != NONE else ()),
        notes.marked(shown[1], traps["acceptance"] if shown[1] != NONE else ()),
        *((number(row.tokens_per_joule, 3),) if energy else ()),
        row.residency,
        ranges(row.measurement_ids) or NONE,
    )


def _origins(rows: Sequence[MatrixRowView]) -> Iterator[str]:
    """Where the perplexities come from."""
    known = [row for row in rows if row.quality is not None]
    if declared := [row.model for row in known if row.perplexity_id is None]:
        whose = "every model" if len(declared) == len(rows) > 1 else _list(declared)
        yield f"Perplexity as the configuration declares it, not measured here: {whose}."
    stored = [f"{row.model} {row.perplexity_id}" for row in known if row.perplexity_id is not None]
    if stored:
        yield f"Measured perplexities, by their numbers in `mtpctl ppl --json`: {_list(stored)}."


def _unknown(rows: Sequence[MatrixRowView]) -> Iterator[str]:
    """What is not known, each reason once with the models that lack it."""
    lacking: dict[str, list[str]] = {}
    for row in rows:
        for one in row.unknown:
            lacking.setdefault(one, []).append(row.model)
    for reason, models in lacking.items():
        whose = "every model" if len(models) == len(rows) > 1 else _list(models)
        yield f"Unknown of {whose}: {reason}."


def _trap(trap: TrapView) -> str:
    return f"not comparable ({trap.trap}): {trap.sentence}"


def _alphas(acceptance: Sequence[AcceptanceView]) -> tuple[str, str]:
    known = {one.position: percent(one.alpha.mid, 1) for one in acceptance}
    return known.get(1, NONE), known.get(2, NONE)


def _pairs(pairs: Sequence[PairView]) -> Iterator[Section]:
    if not pairs:
        return
    notes = _Notes()
    yield Section(
        title="Pairs",
        paragraphs=(_PAIRS,),
        table=Table(
            columns=(
                Column("base", right=False),
                Column("variant", right=False),
                Column("perplexity"),
                Column("z"),
                Column("verdict", right=False),
                Column("tok/s"),
                Column("95 % interval"),
            ),
            rows=tuple(_pair_row(pair, notes) for pair in pairs),
            notes=notes.all(),
        ),
    )


def _pair_row(pair: PairView, notes: _Notes) -> tuple[str, ...]:
    def why(column: str) -> list[str]:
        traps = [_trap(trap) for trap in pair.traps if trap.column == column]
        return traps + [f"unknown: {one}" for one in pair.unknown if one.startswith(column)]

    change = NONE if pair.perplexity_change is None else f"{pair.perplexity_change:+.1%}"
    ratio = NONE if pair.speed_ratio is None else f"{pair.speed_ratio:.3f}x"
    return (
        pair.base,
        pair.variant,
        notes.marked(change, why("perplexity")),
        number(pair.z, 2),
        pair.verdict or NONE,
        notes.marked(ratio, why("speed")),
        _interval(pair.speed_interval, 3),
    )


def _files(models: Sequence[ReportModelView]) -> Iterator[str]:
    """How the files of each model's drawings begin; ``a+b`` and ``a_b`` have two beginnings."""
    taken: set[str] = set()
    for model in models:
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", model.model)
        possible = chain((plain,), (f"{plain}-{n}" for n in count(2)))
        name = next(one for one in possible if one not in taken)
        taken.add(name)
        yield name


def _model(model: ReportModelView, file: str) -> Iterator[Section]:
    figures = []
    if (curve := plots.depth_curve(model)) is not None:
        caption = f"{model.model}: tokens per second by draft depth. {plots.LEGEND}"
        figures.append(Figure(name=f"{file}-depth", caption=caption, svg=curve))
    if (accepted := plots.acceptance(model)) is not None:
        caption = f"{model.model}: acceptance by draft position, with 95 % intervals."
        figures.append(Figure(name=f"{file}-acceptance", caption=caption, svg=accepted))
    if not model.depths:
        said = f"Not measured. `mtpctl sweep {model.model}` fills this table, tune serves the best."
        yield Section(title=model.model, paragraphs=(said,))
        return
    yield Section(title=model.model, table=_depths(model), figures=tuple(figures))
    yield _economics(model.economics)


def _depths(model: ReportModelView) -> Table:
    """Note 002's table."""
    notes = _Notes()
    rows = [one.row for one in model.depths]
    workloads = list(dict.fromkeys(name for row in rows for name in row.workloads))
    positions = max((len(row.acceptance) for row in rows), default=0)
    energy = any(row.tokens_per_joule is not None for row in rows)
    body: list[tuple[str, ...]] = []
    for one in model.depths:
        row = one.row
        alphas = {view.position: view.alpha for view in row.acceptance}
        said = [row.note] if row.note else []
        said += map(_trap, one.traps)
        if row.excluded:
            said.append(f"{row.excluded} of {row.repetitions + row.excluded} repetitions left out")
        if energy and row.decode_tps is not None and row.tokens_per_joule is None:
            said.append(f"tok/J unknown: {row.energy_note}")
        body.append(
            (
                notes.marked(f"{row.arm.depth}", said),
                *(number(row.workloads.get(name), 1) for name in workloads),
                number(row.decode_tps, 1),
                _interval(row.tps_interval, 1),
                number(row.tokens_per_step, 2),
                *(
                    percent(alphas[p].mid if p in alphas else None, 1)
                    for p in range(1, positions + 1)
                ),
                *((number(row.tokens_per_joule, 3),) if energy else ()),
                row.residency,
                ranges(one.measurement_ids) or NONE,
            )
        )
    return Table(
        columns=(
            Column("depth"),
            *(Column(name) for name in (*workloads, "mean tok/s", "95 % interval", "tok/step")),
            *(Column(f"{ALPHA}{position}") for position in range(1, positions + 1)),
            *((Column("tok/J"),) if energy else ()),
            Column("residency", right=False),
            Column("ids", right=False),
        ),
        rows=tuple(body),
        strong=frozenset(i for i, one in enumerate(model.depths) if one.served),
        notes=notes.all(),
    )


def _economics(view: EconomicsView) -> Section:
    if view.cost is None:
        return Section(title="What a row costs", level=3, paragraphs=(f"Unknown: {view.unknown}.",))
    cost, notes = view.cost.row_cost, _Notes()
    of = "" if view.decision_id is None else f" (decision {view.decision_id})"
    said = (
        f"A verification row costs {cost.mid:.3f} of a plain step "
        f"({cost.low:.3f} to {cost.high:.3f}): {view.cost.source}{of}. {_BALANCE}"
    )
    return Section(
        title="What a row costs, and what a depth earns",
        level=3,
        paragraphs=(said,),
        table=Table(
            columns=tuple(
                map(Column, ("depth", "tokens/step", "cost", "E/cost", "measured", "misfit"))
            ),
            rows=tuple(
                (
                    str(one.depth),
                    f"{one.tokens_per_step:.2f}",
                    f"{one.cost:.2f}",
                    f"{one.gain:.2f}",
                    notes.marked(
                        number(one.measured, 2), [] if one.trap is None else [_trap(one.trap)]
                    ),
                    NONE if one.misfit is None else f"{one.misfit:+.1%}",
                )
                for one in view.balance
            ),
            notes=notes.all(),
        )
        if view.balance
        else None,
    )


def _recommended(view: ReportView) -> Section:
    """What the rules say of the matrix, and what is in force."""
    in_force = [
        f"In force for {one.subject}: {one.arm.profile} at depth {one.arm.depth}: {one.reason}"
        + ("" if one.decision_id is None else f" (decision {one.decision_id})")
        for one in view.choices
    ]
    return Section(
        title="Operating recommendation",
        table=_advice(view.recommendations) if view.recommendations else None,
        remarks=tuple(in_force),
    )


def _advice(found: Sequence[RecommendationView]) -> Table:
    return Table(
        columns=(
            *(Column(head, right=False) for head in ("for", "model", "depth")),
            Column("because", right=False, sentences=True),
        ),
        rows=tuple(
            (
                one.purpose,
                "none qualifies" if one.arm is None else one.arm.profile,
                NONE if one.arm is None else str(one.arm.depth),
                one.reason,
            )
            for one in found
        ),
    )


def _interval(value: IntervalView | None, digits: int) -> str:
    return NONE if value is None else f"{value.low:.{digits}f} to {value.high:.{digits}f}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
