"""Writes a report as CSV: one row per measured arm, numbers as they are. Pure."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from mtpd.report.text import ranges

if TYPE_CHECKING:
    from mtpd.report_views import MatrixRowView, MeasuredDepthView, ReportView

__all__ = ["delimited"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MODEL = (
    "model",
    "tags",
    "size_bytes",
    "perplexity",
    "perplexity_stderr",
    "perplexity_corpus",
    "perplexity_chunks",
    "not_comparable",
)
_ARM = (
    "drafter",
    "depth",
    "p_min",
    "served",
    "decode_tps",
    "decode_tps_low",
    "decode_tps_high",
    "tokens_per_step",
    "alpha1",
    "alpha2",
    "tokens_per_joule",
    "residency",
    "same_text",
    "repetitions",
    "excluded",
    "outliers",
    "note",
    "measurement_ids",
)


def delimited(view: ReportView) -> str:
    """The text of a CSV file (RFC 4180); what is not known is an empty field.

    A model of which nothing was measured has one row without an arm. Text that a spreadsheet
    would take for a formula, as a tag or the name of a file may be, begins with an apostrophe.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\r\n")
    rows.writerow((*_MODEL, *_ARM))
    depths = {model.model: model.depths for model in view.models}
    for row in view.matrix:
        measured = depths.get(row.model, ())
        for one in measured:
            rows.writerow(map(_harmless, (*_of_model(row), *_of_arm(one))))
        if not measured:
            rows.writerow(map(_harmless, (*_of_model(row), *([None] * len(_ARM)))))
    return out.getvalue()


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _of_model(row: MatrixRowView) -> tuple[object, ...]:
    quality = row.quality
    return (
        row.model,
        ",".join(row.tags),
        row.size_bytes,
        *(
            (None,) * 4
            if quality is None
            else (quality.perplexity, quality.stderr, quality.corpus, quality.chunks)
        ),
        "; ".join(f"{trap.column} ({trap.trap}): {trap.sentence}" for trap in row.traps),
    )


def _of_arm(one: MeasuredDepthView) -> tuple[object, ...]:
    row, interval = one.row, one.row.tps_interval
    alphas = {view.position: view.alpha.mid for view in row.acceptance}
    return (
        row.arm.drafter,
        row.arm.depth,
        row.arm.p_min,
        str(one.served).lower(),
        row.decode_tps,
        None if interval is None else interval.low,
        None if interval is None else interval.high,
        row.tokens_per_step,
        alphas.get(1),
        alphas.get(2),
        row.tokens_per_joule,
        row.residency,
        None if row.same_text is None else str(row.same_text).lower(),
        row.repetitions,
        row.excluded,
        row.outliers,
        row.note,
        ranges(one.measurement_ids),
    )
