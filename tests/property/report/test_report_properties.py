"""Reports of random measurements: every writer takes them, every number has its cells."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.cli.decode import decode
from mtpd.report.build import document
from mtpd.report.delimited import delimited
from mtpd.report.markdown import markdown
from mtpd.report.page import page
from mtpd.report.svg import nice
from mtpd.report.text import ranges
from mtpd.report_views import ReportView
from mtpd.views import encode
from tests.fakes import study
from tuner.types import Evicted, Host, Residency, Resident, Unknown

if TYPE_CHECKING:
    from mtpd.control.reporting import ModelRecord

pytestmark = pytest.mark.slow

PLACES: st.SearchStrategy[Residency] = st.sampled_from(
    [Resident(), Host(), Evicted(layers=1), Unknown("no log")]
)


@st.composite
def records(draw: st.DrawFn, name: str) -> ModelRecord:
    told = []
    for depth in sorted(draw(st.sets(st.integers(0, 4), max_size=4))):
        alphas = draw(st.none() | st.lists(st.floats(0, 1), min_size=depth, max_size=depth))
        told += study.repetitions(
            study.arm(name, depth),
            draw(st.floats(0.05, 900)),
            alphas if depth else (),
            draw(PLACES),
            workload=draw(st.sampled_from(["code", "prose"])),
            text=draw(st.none() | st.just("same")),
            power_w=draw(st.none() | st.floats(1, 400)),
        )
    chunks = draw(st.sampled_from([16, 32]))
    value = draw(st.none() | st.floats(1.5, 40))
    return study.record(
        name,
        told,
        served=draw(st.integers(0, 4)),
        size_bytes=draw(st.none() | st.integers(1, 2**40)),
        quality=None if value is None else study.perplexity(value, chunks),
        tags=draw(st.sampled_from([(), ("x",)])),
    )


NAMES = st.lists(
    st.sampled_from(["a", "b:1", "ç", "long" * 20]), min_size=1, max_size=4, unique=True
)


@given(st.data(), NAMES)
@settings(max_examples=60, deadline=None)
def test_every_report_can_be_written_and_every_number_has_its_cells(
    data: st.DataObject, names: list[str]
) -> None:
    view = study.report(*(data.draw(records(name)) for name in names))
    told = document(view)
    for figure in told.figures:
        ET.fromstring(figure.svg)  # noqa: S314 - ours
        assert "nan" not in figure.svg
    text = markdown(told, lambda one: one.name)
    assert len({figure.name for figure in told.figures}) == len(told.figures)
    assert page(told).count("<svg") == text.count("![")
    assert decode(ReportView, encode(view)) == view
    arms = sum(max(1, len(model.depths)) for model in view.models)
    assert delimited(view).count("\r\n") == 1 + arms
    for row in view.matrix:
        assert (row.decode_tps is None) <= any("speed" in one for one in row.unknown)
        if row.decode_tps is not None or row.acceptance:
            assert row.measurement_ids
        if row.tokens_per_joule is None and row.decode_tps is not None:
            assert any(one.startswith("energy") for one in row.unknown)
    for pair in view.pairs:
        for column, value in (
            ("perplexity", pair.perplexity_change),
            ("speed", pair.speed_ratio),
        ):
            trapped = any(one.column == column for one in pair.traps)
            assert value is not None or trapped or any(o.startswith(column) for o in pair.unknown)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_ticks_are_round_and_enclose_what_is_drawn(low: float, span: float) -> None:
    ticks = nice(low, low + span)
    assert 2 <= len(ticks) <= 12
    assert list(ticks) == sorted(set(ticks))
    tolerance = 1e-6 * (1.0 + low + span)
    assert ticks[0] <= low + tolerance
    assert ticks[-1] >= low + span - tolerance


@given(st.sets(st.integers(1, 60)))
def test_runs_name_exactly_their_numbers(numbers: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, ranges(list(numbers)).split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    assert found == numbers
