"""How a report is written down: Markdown, one HTML page, CSV, drawings."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.report.build import document
from mtpd.report.delimited import delimited
from mtpd.report.document import Column, Document, Section, Table
from mtpd.report.markdown import markdown
from mtpd.report.page import page
from mtpd.report.svg import standalone
from mtpd.report.text import NONE
from tests.fakes import study
from tuner.types import Resident

if TYPE_CHECKING:
    from mtpd.report_views import ReportView

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def view() -> ReportView:
    return study.report()


def test_the_matrix_reads_like_the_study(view: ReportView) -> None:
    text = markdown(document(view))
    assert (
        "| **qwen3.6-27b-b2** | **14.30 GiB** | **5.6553 ± 0.15** | **32** | **2** | **50.3** "
        "| **96.1%** | **88.5%** | **resident** | **4-6** |"
    ) in text
    assert (
        "| qwen3.8-27b-b2 | 14.30 GiB | 5.7722 ± 0.15 | 32 | 2 | 46.0 | 93.2% (1) | 73.5% (1) "
        "| resident | 10-12 |"
    ) in text
    assert "- (1) not comparable (text): measured on other texts than qwen3.6-27b-b2" in text
    assert "| qwen3.8-27b-b2 | qwen3.8-27b-uncensored-b2 | +1.2% | 0.32 | tie | 0.996x |" in text
    assert "Unknown of every model: energy: " in text
    assert "Unknown: the cost of a row was not measured: assumed beforehand" in text
    assert "In force for default: qwen3.6-27b-b2 at depth 2" in text


def test_a_number_that_must_not_be_compared_bears_its_trap(view: ReportView) -> None:
    records = list(study.records())
    records[3] = replace(records[3], quality=study.perplexity(7.76, chunks=16))
    told = document(study.report(*records))
    text = markdown(told)
    (line,) = re.findall(r"\| qwen3.8-27b-b2 \| qwen3.8-27b-uncensored-b2 .*", text)
    assert re.search(rf"b2 \| {NONE} \(\d+\) \| {NONE} \| {NONE} \| 0.996x ", line)
    assert "not comparable (chunks): " in text
    assert "as their perplexity does not compare: qwen3.8-27b-b2" in told.figures[0].caption
    assert "qwen3.8-27b-b2<" not in told.figures[0].svg


def test_tokens_per_joule_are_a_column_where_one_is_known() -> None:
    known, dark = (
        study.record(
            name,
            study.repetitions(study.arm(name), 45.0, (0.9, 0.7), Resident(), power_w=watts),
        )
        for name, watts in (("known", 150.0), ("dark", None))
    )
    text = markdown(document(study.report(known, dark)))
    assert "| tok/J |" in text
    assert re.search(rf"\| dark \|.*\| {NONE} \| resident \|", text)
    assert "Unknown of dark: energy: the energy of 1 of 1 prompts was not measured." in text
    assert "tok/J" not in markdown(document(study.report(dark)))


def test_markdown_shows_drawings_only_where_they_are_files() -> None:
    told = document(study.report(study.sweep()))
    assert [figure.name for figure in told.figures] == [
        "qwen3.6-27b-b2-depth",
        "qwen3.6-27b-b2-acceptance",
    ]
    assert "![" not in markdown(told)
    assert "](r-qwen3.6-27b-b2-depth.svg)" in markdown(told, lambda one: f"r-{one.name}.svg")


def test_drawings_of_names_that_look_alike_do_not_replace_each_other() -> None:
    told = document(study.report(study.sweep("a+b"), study.sweep("a_b"), study.sweep("a_b-2")))
    names = [figure.name for figure in told.figures]
    assert len(set(names)) == len(names)
    assert {"a_b-depth", "a_b-2-depth", "a_b-2-2-depth"} <= set(names)


def test_a_drawing_is_found_whatever_its_file_is_called() -> None:
    text = markdown(document(study.report(study.sweep())), lambda one: f"my (r)-{one.name}.svg")
    assert "](my%20%28r%29-qwen3.6-27b-b2-depth.svg)" in text


def nasty() -> Document:
    table = Table(
        columns=(Column("a|b"), Column("<i>", right=False)),
        rows=(("x | y\nz", "<script>alert(1)</script>"), ("[l](u)", "`code`")),
        strong=frozenset({1}),
        notes=("run `a < b`",),
    )
    return Document(title="<t>", lead=(), sections=(Section(title="*s*", table=table),))


def test_text_from_outside_is_neither_markdown_nor_markup() -> None:
    text = markdown(nasty())
    assert "| x \\| y z | \\<script\\>alert(1)\\</script\\> |" in text
    assert "**\\[l\\](u)**" in text
    assert "# \\<t\\>" in text
    assert "run `a < b`" in text
    html = page(nasty())
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "run <code>a &lt; b</code>" in html


def test_the_page_needs_nothing_and_allows_nothing_but_its_style_sheet(view: ReportView) -> None:
    html = page(document(view))
    (sheet,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    body = html.split("</style>")[1]
    assert not re.search(r'\sstyle=|\son\w+=|<script|<link|<img|src=|href="', body)
    assert not re.search(r"url\(|@import", sheet)
    assert "prefers-color-scheme:dark" in sheet
    assert body.count("<svg") == len(document(view).figures)


def test_drawings_are_well_formed_and_told_to_those_who_do_not_see_them() -> None:
    records = (*study.records()[2:], study.sweep())
    figures = document(study.report(*records)).figures
    assert len(figures) > 3
    for figure in figures:
        root = ET.fromstring(standalone(figure.svg).split("\n", maxsplit=1)[1])  # noqa: S314 - ours
        assert root.get("role") == "img"
        title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert title is not None
        assert description is not None
        assert title.text
        assert description.text


def test_the_depth_curve_marks_residency_and_what_is_served() -> None:
    curve, accepted = document(study.report(study.sweep())).figures
    root = ET.fromstring(curve.svg)  # noqa: S314 - ours
    classes = [one.get("class") for one in root.iter(f"{SVG}circle")]
    assert classes.count("served") == 1
    assert classes.count("resident") == 1
    assert classes.count("evicted") == 3
    assert [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "lead"] == ["51.2"]
    assert "depth 3: 31.0 tok/s, evicted" in curve.svg
    assert "measured at depth 5" in accepted.svg


def test_csv_has_a_row_per_arm_and_empty_fields_for_what_is_not_known() -> None:
    bare = study.record("bare", [])
    text = delimited(study.report(study.sweep(), bare))
    assert text.count("\r\n") == 6
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["depth"] for row in rows] == ["2", "3", "4", "5", ""]
    assert (rows[0]["served"], rows[1]["served"]) == ("true", "false")
    assert float(rows[0]["decode_tps"]) == pytest.approx(51.175)
    assert rows[1]["residency"] == "evicted"
    assert rows[0]["measurement_ids"] == "1-12"
    assert rows[0]["tokens_per_joule"] == ""
    assert {value for name, value in rows[4].items() if name not in {"model", "tags"}} == {""}


@pytest.mark.parametrize("tag", ["=1+1", "+vision", "-x", "@home", '=HYPERLINK("http://x")'])
def test_csv_holds_no_formula(tag: str) -> None:
    view = study.report(study.sweep())
    (row,) = view.matrix
    told = delimited(replace(view, matrix=(replace(row, tags=(tag, "long context")),)))
    for arm in csv.DictReader(io.StringIO(told)):
        assert arm["tags"] == f"'{tag},long context"
        assert float(arm["decode_tps"]) > 0


def test_a_model_without_measurements_says_how_to_get_them() -> None:
    text = markdown(document(study.report(study.record("bare", []))))
    assert "Not measured. `mtpctl sweep bare` fills this table, tune serves the best." in text
    cells = ["bare", *[NONE] * 3, "2? (1)", *[NONE] * 3, "unknown", NONE]
    assert f"| {' | '.join(cells)} |" in text
    assert "- (1) this depth was not chosen by measurement" in text


def test_a_report_about_nothing_says_so() -> None:
    nothing = replace(study.report(), matrix=(), pairs=(), models=(), recommendations=())
    left = replace(nothing, left_out=("embed: embedding",))
    text = markdown(document(left))
    assert "No model is configured that makes tokens." in text
    assert "Left out, because they make no tokens that could be timed: embed: embedding." in text
    assert page(document(left)).count("<svg") == 0
