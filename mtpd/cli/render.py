"""The depth table, the acceptance table, and sentences that several commands share.

Pure of input and output: everything returns something that a rich console prints.
The plain lists are in ``mtpd.cli.lists``, the explanation in ``mtpd.cli.explaining``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from mtpd.cli.cells import (
    ALPHA,
    WIDTH,
    cell,
    number,
    percent,
    state,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from mtpd.views import (
        ArmView,
        ChoiceView,
        DecisionView,
        DepthRowView,
        OperationView,
    )

__all__ = [
    "alpha_table",
    "choice_origin",
    "decision_sentence",
    "depth_table",
    "headed",
    "progress_text",
]

ALPHA_CAPTION = (
    f"{ALPHA}N: how often the draft's Nth token is accepted when those before it were;"
    " with few offers drawn a little towards one half"
)
_VERDICT_MIN = len("verdict")
_RESIDENCY = "resi-\ndency"


def depth_table(
    rows: Sequence[DepthRowView],
    *,
    chosen: ArmView | None = None,
    title: str | None = None,
    mark: str = "chosen",
) -> Table:
    """Note 002's table: a row per depth, a column per workload, then what explains it.

    Args:
        rows: Of one model, in the order to show.
        chosen: The arm that is marked.
        title: Defaults to the model's name.
        mark: What is said of the marked arm.
    """
    made = table(title or (rows[0].arm.profile if rows else "no measurements"), dense=True)
    body = [_depth_cells(row, rows) for row in rows]
    heads = _depth_heads(rows)
    for head in heads:
        made.add_column(head, justify="left" if head == _RESIDENCY else "right")
    widths = [
        max(
            len(part) for text in (head, *(cells[index] for cells in body)) for part in _lines(text)
        )
        for index, head in enumerate(heads)
    ]
    room = max(WIDTH - sum(width + 1 for width in widths), _VERDICT_MIN)
    notes: list[str] = []
    verdicts = [
        _footnoted(_verdict(row, mark if row.arm == chosen else ""), room, notes) for row in rows
    ]
    if any(verdicts):
        made.add_column("verdict")
    for row, cells, verdict in zip(rows, body, verdicts, strict=True):
        shown = [*map(cell, cells[:-1]), state(cells[-1]), cell(verdict)]
        style = "bold" if row.arm == chosen else ""
        made.add_row(*shown[: len(made.columns)], style=style)
    if notes:
        lines = (f"({count}) {note}" for count, note in enumerate(notes, start=1))
        made.caption = Text("\n".join(lines))
        made.caption_justify = "left"
    return made


def _depth_heads(rows: Sequence[DepthRowView]) -> list[str]:
    positions = max((len(row.acceptance) for row in rows), default=0)
    return [
        "depth",
        *(name.replace("-", "-\n") for name in _workloads(rows)),
        "mean\ntok/s",
        "tok/\nstep",
        *(["tok/\nJ"] if _has_energy(rows) else []),
        *(f"{ALPHA}{position}" for position in range(1, positions + 1)),
        _RESIDENCY,
    ]


def _depth_cells(row: DepthRowView, rows: Sequence[DepthRowView]) -> list[str]:
    positions = max(len(other.acceptance) for other in rows)
    alphas = {view.position: view.alpha.mid for view in row.acceptance}
    return [
        str(row.arm.depth),
        *(number(row.workloads.get(name), 1) for name in _workloads(rows)),
        number(row.decode_tps, 1),
        number(row.tokens_per_step, 2),
        *([number(row.tokens_per_joule, 3)] if _has_energy(rows) else []),
        *(percent(alphas.get(position), 0) for position in range(1, positions + 1)),
        row.residency,
    ]


def _has_energy(rows: Sequence[DepthRowView]) -> bool:
    """Whether the card's power was read; without it a column would say nothing."""
    return any(row.tokens_per_joule is not None for row in rows)


def _workloads(rows: Sequence[DepthRowView]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.workloads))


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _verdict(row: DepthRowView, mark: str) -> str:
    """What is to be said of a row, most important first."""
    parts = [text for text in dict.fromkeys((mark, row.note)) if text]
    if row.same_text is False:
        parts.append("other text")
    if row.excluded:
        parts.append(f"{row.excluded} of {row.repetitions + row.excluded} excluded")
    if row.outliers:
        parts.append(f"{row.outliers} slow outlier" + ("s" if row.outliers > 1 else ""))
    return "; ".join(parts)


def _footnoted(verdict: str, room: int, notes: list[str]) -> str:
    """The verdict, or its first word that fits and a number under which the rest is told."""
    if len(verdict) <= room:
        return verdict
    if verdict not in notes:
        notes.append(verdict)
    mark = f"({notes.index(verdict) + 1})"
    first = verdict.split("; ", maxsplit=1)[0]
    return f"{first} {mark}" if len(first) + len(mark) < room else mark


def alpha_table(rows: Sequence[DepthRowView], *, title: str = "acceptance by position") -> Table:
    """Conditional acceptance of each draft position of each arm, with its interval."""
    made = table(title)
    made.add_column("model", overflow="fold")
    for head in ("depth", "position", "acceptance", "interval", "accepted / offered"):
        made.add_column(head, justify="right")
    named = ""
    for row in rows:
        for index, view in enumerate(row.acceptance):
            name, named = row.arm.profile if row.arm.profile != named else "", row.arm.profile
            made.add_row(
                cell(name),
                cell(str(row.arm.depth) if index == 0 else ""),
                cell(f"{ALPHA}{view.position}"),
                cell(percent(view.alpha.mid, 1)),
                cell(f"{percent(view.alpha.low, 1)} to {percent(view.alpha.high, 1)}"),
                cell(f"{view.accepted} / {view.offered}"),
            )
    made.caption = Text(ALPHA_CAPTION)
    made.caption_justify = "left"
    return made


def headed(act: str, subject: str, sentence: str) -> str:
    """A decision's sentence with what it does to whom before it, unless it begins so itself."""
    head = f"{act} {subject}"
    return sentence if sentence.startswith(head) else f"{head}: {sentence}"


def decision_sentence(decision: DecisionView) -> str:
    """Its sentence; that of a measurement says first that nothing was chosen."""
    if decision.act != "measure" or decision.arm is None:
        return decision.reason
    return f"measured only, nothing was changed; {decision.reason}"


def choice_origin(choice: ChoiceView) -> str:
    """Whose choice it is; what an operator set comes with what the measurements chose."""
    if not choice.pinned:
        return "measured" if choice.measured else "not measured"
    arm, name = choice.measured_arm, choice.arm.profile
    if arm is None:
        return f"set by an operator; no measured choice: mtpctl tune {name}"
    back = f"mtpctl switch {name} --measured goes back"
    return f"set by an operator; measured choice: depth {arm.depth}, {back}"


def progress_text(operation: OperationView) -> str:
    """How far an operation is, e.g. ``3/24 tiny@2 short``."""
    progress = operation.progress
    if progress.total is None:
        return f"{progress.done or ''} {progress.note}".strip()
    return f"{progress.done}/{progress.total} {progress.note}".rstrip()
