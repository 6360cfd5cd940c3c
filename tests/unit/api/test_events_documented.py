"""docs/events.md is what the code says: every type, every member, every id."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from mtpd.bus import Bus
from mtpd.events import (
    DecisionMade,
    Envelope,
    Event,
    MeasurementTaken,
    OperationChanged,
    ResidencyJudged,
    StreamDropped,
    StreamOpen,
    StreamReset,
    type_name,
)
from tests.fakes import views
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision_view, measurement_view, operation_view

PAGE = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
ROWS = {
    cells[1].strip("` "): [re.findall(r"`([^`]+)`", cell) for cell in cells[2:]]
    for line in PAGE.splitlines()
    if line.startswith("| `") and len(cells := line.split("|")) >= 5
}
"""The names in the cells of a row, by the name in its first cell."""

KINDS = {type_name(kind): kind for kind in get_args(Event)}
PLAIN: dict[str, Any] = {"str": "x", "int": 1, "float": 1.0, "bool": True, "tuple[str, ...]": ()}
HOLDING: dict[Any, dict[str, Any]] = {
    MeasurementTaken: {"measurement": measurement_view(operation_id="o")},
    DecisionMade: {"decision": decision_view(operation_id="o")},
    OperationChanged: {"operation": operation_view()},
    ResidencyJudged: {"residency": views.engine().residency},
}


def made(kind: Any) -> Any:
    """An event of a type, with any values."""
    fields = HOLDING.get(kind, {})
    for field in dataclasses.fields(kind):
        if field.name not in fields:
            fields = {**fields, field.name: PLAIN[str(field.type).removesuffix(" | None")]}
    return kind(**fields)


def members(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("name", KINDS)
def test_every_type_is_documented_with_its_members_and_ids(name: str) -> None:
    _when, payload, ids, *_ = ROWS[name]
    assert payload == members(KINDS[name])
    bus = Bus(boot="b", clock=FakeClock())
    assert ids == list(bus.publish(made(KINDS[name])).ids)


def test_no_type_is_documented_that_there_is_not() -> None:
    first = PAGE.index("## Types")
    named = re.findall(
        r"^\| `([a-z_.]+)` \|", PAGE[first : PAGE.index("## Operations")], re.MULTILINE
    )
    assert sorted(named) == sorted(KINDS)


@pytest.mark.parametrize("kind", [StreamOpen, StreamReset, StreamDropped])
def test_what_the_stream_itself_says_is_documented(kind: Any) -> None:
    assert ROWS[kind.type][0] == members(kind)


def test_the_members_of_the_envelope_are_documented() -> None:
    table = PAGE[PAGE.index("## The envelope") : PAGE.index("The newest 1024")]
    named = re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(members(Envelope))
