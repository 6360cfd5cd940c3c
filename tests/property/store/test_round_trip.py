"""What is stored is what comes back: observations, decisions, operations."""

from __future__ import annotations

import asyncio
import string
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.store.db import Database
from mtpd.store.journal import DECISION_SCHEMA, Journal
from mtpd.store.operations_table import OperationRows
from mtpd.store.rows import residency_label
from mtpd.store.samples import Conditions, MeasurementFilter, Measurements
from mtpd.views import ArmView, IntervalView, ProgressView
from tests.fakes.clock import FakeClock
from tests.fakes.values import operation_view
from tuner.power import token_j
from tuner.types import (
    Act,
    Arm,
    Decision,
    Drafter,
    Evicted,
    Host,
    Interval,
    Observation,
    Resident,
    Spilled,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.views import Json

INT = st.integers(0, 2**63 - 1)
MAYBE_INT = st.none() | INT
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(string.ascii_letters, min_size=1, max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
MAYBE_REAL = st.none() | FINITE
RESIDENCY = st.one_of(
    st.just(Resident()),
    st.just(Host()),
    st.builds(Evicted, MAYBE_INT),
    st.builds(Spilled, MAYBE_INT),
    st.builds(Unknown, TEXT),
)
ARM = st.one_of(
    st.builds(Arm, profile=TEXT, p_min=st.floats(0, 1, exclude_max=True)),
    st.builds(
        Arm,
        profile=TEXT,
        drafter=st.sampled_from([d for d in Drafter if d is not Drafter.NONE]),
        depth=st.integers(1, 64),
        p_min=st.floats(0, 1, exclude_max=True),
    ),
)
OBSERVATION = st.builds(
    Observation,
    arm=ARM,
    workload=TEXT,
    prompt=INT,
    repetition=INT,
    start_id=TEXT,
    fingerprint=NAME,
    tokens=st.integers(1, 2**63 - 1),
    decode_s=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    steps=MAYBE_INT,
    drafted=MAYBE_INT,
    accepted=MAYBE_INT,
    accepted_per_position=st.none() | st.lists(INT, max_size=5).map(tuple),
    offered_per_position=st.none() | st.lists(INT, max_size=5).map(tuple),
    digest=TEXT,
    residency=RESIDENCY,
    excluded=st.none() | TEXT,
)
CONDITIONS = st.builds(
    Conditions,
    edge_start_c=MAYBE_REAL,
    edge_end_c=MAYBE_REAL,
    junction_max_c=MAYBE_REAL,
    power_mean_w=MAYBE_REAL,
    power_idle_w=MAYBE_REAL,
    power_cap_w=MAYBE_REAL,
)
DECISION = st.builds(
    Decision,
    act=st.sampled_from(Act),
    subject=TEXT,
    arm=st.none() | ARM,
    previous=st.none() | ARM,
    predicted=st.none() | st.builds(Interval, low=FINITE, mid=FINITE, high=FINITE, level=FINITE),
    reason=TEXT,
    evidence=st.lists(st.text(max_size=10), max_size=4).map(tuple),
)
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=8), JSON, max_size=4)


def _with_database(work: Callable[[Database], Awaitable[None]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with await Database.open(Path(folder) / "state.sqlite3", FakeClock()) as db:
                await work(db)

    asyncio.run(run())


def _with_energy(observation: Observation, around: Conditions) -> Observation:
    """As it comes back: its energy is worked out from the power that was read meanwhile."""
    joules = token_j(around.power_mean_w, decode_s=observation.decode_s, tokens=observation.tokens)
    return replace(observation, joules_per_token=joules)


@settings(max_examples=60)
@given(
    taken=st.lists(st.tuples(OBSERVATION, CONDITIONS), min_size=1, max_size=4),
    source=st.sampled_from(["metrics", "timings", "log", "none"]),
    fields=st.none() | OBJECT,
)
def test_observations_come_back_unchanged(
    taken: list[tuple[Observation, Conditions]],
    source: str,
    fields: dict[str, Json] | None,
) -> None:
    async def check(db: Database) -> None:
        measurements = Measurements(db=db, clock=FakeClock())
        numbers = [
            await measurements.add(
                observation,
                acceptance_source=source,
                conditions=around,
                fingerprint_fields=fields,
            )
            for observation, around in taken
        ]
        observations = tuple(_with_energy(*one) for one in taken)
        assert await measurements.observations() == observations
        for number, (observation, around) in zip(numbers, taken, strict=True):
            assert await measurements.conditions(number) == around
            assert await measurements.fingerprint(observation.fingerprint) == fields
            view = await measurements.get(number)
            assert view is not None
            assert view.arm == ArmView.of(observation.arm)
            assert (view.steps, view.drafted, view.accepted) == (
                observation.steps,
                observation.drafted,
                observation.accepted,
            )
            assert view.accepted_per_position == observation.accepted_per_position
            assert view.residency == residency_label(observation.residency)
            assert view.decode_tps == observation.decode_tps
            assert view.acceptance_source == source
        wanted = MeasurementFilter(profile=observations[0].arm.profile, depth=0)
        assert await measurements.observations(wanted) == tuple(
            each
            for each in observations
            if each.arm.profile == observations[0].arm.profile and each.arm.depth == 0
        )

    _with_database(check)


@settings(max_examples=60)
@given(decision=DECISION, inputs=OBJECT)
def test_decisions_come_back_unchanged(decision: Decision, inputs: dict[str, Json]) -> None:
    async def check(db: Database) -> None:
        journal = Journal(db=db, clock=FakeClock())
        appended = await journal.append(decision, inputs=inputs)
        view = await journal.get(appended.id)
        assert view == appended
        assert view.act == decision.act
        assert (view.subject, view.reason, view.evidence, view.outcome) == (
            decision.subject,
            decision.reason,
            decision.evidence,
            None,
        )
        assert view.arm == (None if decision.arm is None else ArmView.of(decision.arm))
        assert view.previous == (
            None if decision.previous is None else ArmView.of(decision.previous)
        )
        interval = decision.predicted
        assert view.predicted == (
            None
            if interval is None
            else IntervalView(
                low=interval.low, mid=interval.mid, high=interval.high, level=interval.level
            )
        )
        assert await journal.inputs(view.id) == (DECISION_SCHEMA, inputs)

    _with_database(check)


@settings(max_examples=60)
@given(params=OBJECT, outcome=OBJECT, ending=st.sampled_from(["done", "failed", "cancelled"]))
def test_operations_come_back_unchanged(
    params: dict[str, Json], outcome: dict[str, Json], ending: str
) -> None:
    queued = operation_view(params=params)
    ended = replace(
        queued,
        state=ending,
        progress=ProgressView(done=3, total=4, note="cell 3"),
        started_at="2026-11-29T12:00:01.000Z",
        ended_at="2026-11-29T12:00:02.000Z",
        result=outcome if ending == "done" else None,
        error=outcome if ending == "failed" else None,
    )

    async def check(db: Database) -> None:
        table = OperationRows(db=db)
        assert await table.insert(queued, key=None) == queued
        assert await table.unfinished() == (queued,)
        await table.update(ended)
        assert await table.get(queued.id) == ended
        assert await table.list() == (ended,)
        assert await table.unfinished() == ()

    _with_database(check)
