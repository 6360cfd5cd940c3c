"""Shows why: from what was asked over the cells and the speeds to the sentence.

Pure of input and output: everything returns something that a rich console prints.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from mtpd.cli.cells import (
    NONE,
    arm_label,
    cell,
    clock_text,
    grid,
    line,
    number,
    ranges,
    state,
    table,
)
from mtpd.cli.render import alpha_table, decision_sentence, depth_table
from tuner.probe import BY_MEANS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from mtpd.explanation_views import (
        CellView,
        DepthSpeedView,
        ExplanationView,
        ModelChainView,
        StartView,
    )
    from mtpd.views import DepthRowView, IntervalView

__all__ = ["explanation"]

_MIB = 2**20
_NOTES = (
    "does not fit (predicted: ",
    "to make it fit: ",
    "the machine was busy",
    "cut short by ",
    "residency is suspect",
    " was not compared: ",
    " short steps left out: ",
    "the step times scatter ",
)
"""What the evidence says beside the numbers that are shown anyhow."""
_EVIDENCE = 2
"""Lines that are quoted per start; the JSON has all of them."""
_FIT = "does not fit"
_PAY = "does not pay"


def explanation(view: ExplanationView) -> Group:
    """A decision, the whole way that leads to it, and whether it would be taken again."""
    parts: list[RenderableType] = [_head(view)]
    for model in view.models:
        rows = [row for row in view.rows if row.arm.profile == model.profile]
        parts += [Text(""), *_model(model, rows, view)]
    if not view.models:
        parts += [Text(""), Text(view.chain[0])]
    return Group(*parts, Text(""), _end(view))


def _head(view: ExplanationView) -> RenderableType:
    decision = view.decision
    head = grid()
    line(head, "decision", f"{decision.id}: {decision.act}, {clock_text(decision.at)}")
    line(head, "about", decision.subject)
    line(head, "arm", NONE if decision.arm is None else arm_label(decision.arm))
    line(head, "before", NONE if decision.previous is None else arm_label(decision.previous))
    if decision.predicted is not None:
        line(head, "expected", f"{_interval(decision.predicted, 1)} tok/s")
    line(head, "reason", decision_sentence(decision))
    if decision.actor is not None:
        line(head, "asked by", decision.actor)
    line(head, "outcome", decision.outcome or NONE)
    return head


def _end(view: ExplanationView) -> RenderableType:
    end = grid()
    for evidence in view.decision.evidence:
        if any(part in evidence for part in _NOTES):
            line(end, "note", evidence)
    line(end, "rule", view.rule)
    line(end, "so", view.decision.reason)
    line(end, "replayed", _replay(view))
    if view.measurements:
        ids = ranges([one.id for one in view.measurements])
        line(end, "cells from", f"{len(view.measurements)} measurements: {ids}")
    return end


def _replay(view: ExplanationView) -> Text:
    replay = view.replay
    if replay.state == "same":
        return Text(replay.sentence)
    if replay.state == "differs":
        return Text(f"NOT THE SAME DECISION: {replay.sentence}", style="bold red")
    return Text(f"not possible: {replay.sentence}", style="yellow")


def _model(
    model: ModelChainView, rows: Sequence[DepthRowView], view: ExplanationView
) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(model.profile, style="bold")]
    if model.note:
        parts.append(Padding(Text(model.note), (0, 0, 0, 2)))
    parts += _asks(model)
    parts += [Text(""), *_starts(model.starts)]
    if model.cells:
        parts += [Text(""), _cells(model.cells)]
    # What was only measured has not been chosen.
    chosen = None if view.decision.act == "measure" else view.decision.arm
    parts += [Text(""), depth_table(rows, chosen=chosen, title="what the cells give")]
    if any(row.acceptance for row in rows):
        parts += [Text(""), alpha_table(rows)]
    parts += _speeds(model, by_means=BY_MEANS in view.decision.reason)
    parts += _out(model)
    return parts


def _asks(model: ModelChainView) -> list[RenderableType]:
    if model.asks is None:
        return []
    made = grid()
    for ask in model.asks:
        wanted = f"{ask.repetitions} repetitions"
        if ask.short_steps:
            wanted += f", {ask.short_steps} single steps per row count"
        line(made, f"start {ask.number}", f"{ask.reason} ({wanted})")
    line(made, "then", f"stopped: {model.stop}")
    return [Text("what was asked, and why"), made]


def _starts(starts: Sequence[StartView]) -> list[RenderableType]:
    made = grid()
    for one in starts:
        head = Text.assemble(state(one.residency))
        if one.reason:
            head.append(f": {one.reason}")
        line(made, arm_label(one.arm), head)
        for evidence in one.evidence[:_EVIDENCE]:
            line(made, "", f"{evidence.says}: {evidence.line.strip()}")
        if (more := len(one.evidence) - _EVIDENCE) > 0:
            line(made, "", f"and {more} more (--json)")
        if one.failure is not None:
            line(made, "", f"failed: {one.failure}")
        told = f"{one.repetitions} repetitions, {one.short_steps} single steps"
        line(made, "", f"{told} ({one.start_id[:8]})")
    return [Text("engine starts, and where the model lay"), made]


def _cells(cells: Sequence[CellView]) -> RenderableType:
    made = table("cells: median tok/s per prompt", dense=True)
    made.add_column("arm", overflow="fold")
    made.add_column("workload", overflow="fold")
    made.add_column("median tok/s by prompt", overflow="fold")
    for head in ("reps", "out-\nliers"):
        made.add_column(head, justify="right")
    made.add_column("text", overflow="fold")
    grouped = groupby(cells, key=lambda one: (arm_label(one.arm), one.workload))
    for (name, workload), group in grouped:
        found = list(group)
        made.add_row(
            cell(name),
            cell(workload),
            cell(" ".join(f"{one.median_tps:.1f}" for one in found)),
            cell(str(sum(one.repetitions for one in found))),
            cell(str(sum(one.outliers for one in found))),
            cell(" ".join("varies" if one.digest is None else one.digest[:4] for one in found)),
        )
    return made


def _speeds(model: ModelChainView, *, by_means: bool) -> list[RenderableType]:
    if not model.speeds:
        return []
    made = table("from tokens and step time to a speed", dense=True)
    for head in (
        "depth",
        "tokens\n/step",
        "step, ms",
        "cost",
        "misfit",
        "so tok/s",
        "forecast",
        "cells\ngive",
        "MiB",
    ):
        made.add_column(head, justify="right")
    for one in model.speeds:
        made.add_row(*map(cell, _speed_cells(one)))
    notes = [
        "step and tok/s: by all starts together, 95 %; cost: step over the plain step;",
        "misfit: against a straight line over the rows; forecast: before its first start",
    ]
    if model.cost is not None:
        cost = _interval(model.cost.row_cost, 2)
        by = ", fitted to" if model.cost.measured else ":"
        notes.append(f"a verification row costs {cost} of a step{by} {model.cost.source}")
        if by_means:
            notes.append(f"the sentence's row cost is another one, {BY_MEANS} alone")
        if (fill := model.cost.context_cost) is not None:
            notes.append(
                f"1000 tokens of context cost {fill.mid:.1%} of a step "
                f"({fill.low:.1%} to {fill.high:.1%})"
            )
    return [Text(""), made, Text("\n".join(notes))]


def _speed_cells(one: DepthSpeedView) -> tuple[str, ...]:
    step = one.step_ms
    return (
        str(one.depth),
        f"{one.tokens_per_step:.2f}",
        f"{step.mid:.2f} ±{(step.high - step.low) / 2:.2f}",
        f"{one.cost:.2f}",
        f"{one.misfit:+.0%}",
        f"{one.tps.low:.1f}-{one.tps.high:.1f}",
        NONE
        if one.forecast_tps is None
        else f"{one.forecast_tps.low:.1f}-{one.forecast_tps.high:.1f}",
        number(one.measured_tps, 1),
        NONE if one.memory_bytes is None else f"{one.memory_bytes / _MIB:.0f}",
    )


def _out(model: ModelChainView) -> list[RenderableType]:
    if not model.out:
        return []
    made = grid()
    for verdict in dict.fromkeys((_FIT, _PAY, *(one.verdict for one in model.out))):
        for one in model.out:
            if one.verdict == verdict:
                line(made, arm_label(one.arm), one.reason)
    return [Text(""), Text("what is out"), made]


def _interval(value: IntervalView, digits: int) -> str:
    return f"{value.mid:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"
