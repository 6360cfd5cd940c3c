"""How perplexities, their comparisons and kernel-level speeds are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from mtpd.cli.cells import NONE, cell, clock_text, finished, grid, line, number, table
from mtpd.cli.decode import decode, decode_all
from mtpd.quality_views import PerplexityView, PplComparisonView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from mtpd.quality_views import BaselineView
    from mtpd.views import Json, ModelView

__all__ = [
    "baseline_report",
    "baseline_table",
    "measured",
    "perplexity_table",
    "quality_lines",
    "told",
]

_DIGEST = 8
"""Digits of a text's hash that tell it from another at a glance."""


def perplexity_table(rows: Sequence[PerplexityView], *, asked: str | None = None) -> RenderableType:
    """Measured perplexities with what they depend on.

    Args:
        rows: What is stored.
        asked: Of which model alone; how to measure one is said where there is none.
    """
    made = table("perplexity", dense=True)
    made.add_column("at")
    made.add_column("model", overflow="fold")
    for head in ("PPL", "±", "chunks", "context"):
        made.add_column(head, justify="right")
    made.add_column("text", overflow="fold")
    for row in rows:
        made.add_row(
            clock_text(row.at),
            cell(row.model),
            f"{row.perplexity:.4f}",
            number(row.stderr, 4),
            str(row.chunks),
            str(row.context),
            cell(f"{row.corpus} {row.corpus_sha256[:_DIGEST]}"),
        )
    notes = [Text(f"{row.model}: {row.note}") for row in rows if row.note]
    return Group(finished(made, _unmeasured(asked)), *notes)


def _unmeasured(model: str | None) -> str:
    whose = "" if model is None else f" of {model}"
    return (
        f"no perplexity{whose} is stored: mtpctl ppl {model or 'MODEL'} --corpus FILE measures it"
        " over a text of yours, e.g. WikiText-2's wiki.test.raw; mtpd brings none along"
    )


def told(
    rows: Sequence[PerplexityView],
    comparison: PplComparisonView | None,
    *,
    asked: str | None = None,
) -> RenderableType:
    """What was measured, and what a pair says."""
    parts = [perplexity_table(rows, asked=asked)]
    if comparison is not None:
        parts += [Text(""), Text(comparison.reason)]
    return Group(*parts)


def measured(result: Mapping[str, Json]) -> RenderableType:
    """The perplexities that an operation measured, and what the pair says if it was one."""
    pair = result.get("comparison")
    rows = decode_all(PerplexityView, dict(result), "rows")
    return told(rows, None if pair is None else decode(PplComparisonView, pair))


def baseline_table(rows: Sequence[BaselineView]) -> RenderableType:
    """Runs of llama-bench, one line per test."""
    made = table("baseline (llama-bench: the model body alone)", dense=True)
    made.add_column("at")
    made.add_column("model", overflow="fold")
    made.add_column("test")
    for head in ("tok/s", "±", "runs"):
        made.add_column(head, justify="right")
    made.add_column("build", overflow="fold")
    for row in rows:
        for test in row.rows:
            made.add_row(
                clock_text(row.at),
                cell(row.model),
                cell(test.name),
                number(test.tps, 2),
                number(test.tps_sd, 2),
                str(len(test.samples)) if test.samples else NONE,
                cell(f"{test.build}, {test.backends}"),
            )
    return finished(made, "no run of llama-bench is stored: mtpctl bench MODEL makes one")


def baseline_report(baseline: BaselineView, model: ModelView) -> RenderableType:
    """A run of llama-bench beside what serving reaches."""
    return Group(baseline_table([baseline]), Text(""), *map(Text, _serving(model)))


def quality_lines(model: ModelView) -> Table:
    """What is declared and what was measured of a model's file."""
    made = grid()
    declared, measured, baseline = model.quality, model.perplexity, model.baseline
    if declared is not None:
        spread = "" if declared.stderr is None else f" ± {declared.stderr:g}"
        on = f"{declared.corpus}, {declared.chunks} chunks"
        line(made, "declared", f"perplexity {declared.perplexity:g}{spread} ({on})")
    if measured is not None:
        spread = "" if measured.stderr is None else f" ± {measured.stderr:.4f}"
        on = f"{measured.corpus}, {measured.chunks} chunks of {measured.context}"
        line(made, "measured", f"perplexity {measured.perplexity:.4f}{spread} ({on})")
    if baseline is not None:
        tests = ", ".join(f"{test.name} {test.tps:.1f}" for test in baseline.rows)
        line(made, "baseline", f"{tests} tok/s (llama-bench, the model body alone)")
    return made


def _serving(model: ModelView) -> list[str]:
    rows = [row for row in model.depths if row.decode_tps is not None]
    if not rows:
        return [f"{model.id} has not been measured while serving: mtpctl tune {model.id}"]
    return [
        f"serving at depth {row.arm.depth}: {number(row.decode_tps, 1)} tok/s"
        + (f" ({row.residency})" if row.residency else "")
        for row in rows
    ]
