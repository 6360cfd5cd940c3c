"""Durable first, told afterwards: with a real database and the real bus."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import pytest

from mtpd.bus import Bus
from mtpd.calibrate import Repetition
from mtpd.control.recorder import StoreRecorder
from mtpd.engine.acceptance import Source
from mtpd.errors import EngineError, StoreError
from mtpd.events import DecisionMade, MeasurementTaken
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.operations_table import OperationRows
from mtpd.store.samples import Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision, operation_view
from tests.unit.control.made import observation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.events import Envelope, Event
    from mtpd.units import Seq
    from mtpd.views import Json

OPERATION = "op-1"
TAKEN = Repetition(observation=observation(), source=Source.METRICS, prompt_digest="p" * 64)


class Witness(Bus):
    """A bus that looks, from outside, whether the row is on the disk when it is told."""

    def __init__(self, path: Path) -> None:
        super().__init__(boot="b", clock=FakeClock())
        self._path = path
        self.stored: list[tuple[int, int]] = []
        """Measurements and decisions that another connection saw at each event."""
        self.told: list[Event] = []

    def publish(self, event: Event, *, cause: Seq | None = None) -> Envelope:
        with closing(sqlite3.connect(self._path)) as outside:
            seen = tuple(
                outside.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608  # constants
                for table in ("measurements", "decisions")
            )
        self.stored.append((seen[0], seen[1]))
        self.told.append(event)
        return super().publish(event, cause=cause)


async def described(profile: str, fingerprint: str) -> dict[str, Json]:
    return {"model": profile, "of": fingerprint[:1]}


@asynccontextmanager
async def recording(folder: Path) -> AsyncIterator[tuple[StoreRecorder, Witness, Database]]:
    path = folder / "state.sqlite3"
    async with await Database.open(path, FakeClock()) as db:
        await OperationRows(db=db).insert(operation_view(id=OPERATION), key=None)
        bus = Witness(path)
        recorder = StoreRecorder(
            measurements=Measurements(db=db, clock=FakeClock()),
            journal=Journal(db=db, clock=FakeClock()),
            bus=bus,
            describe=described,
        )
        yield recorder, bus, db


async def test_a_repetition_is_on_the_disk_before_anybody_is_told(tmp_path: Path) -> None:
    async with recording(tmp_path) as (recorder, bus, db):
        sink = recorder.sink(OPERATION)
        first, second = await sink.add(TAKEN), await sink.add(TAKEN)
        assert bus.stored == [(1, 0), (2, 0)]
        assert bus.told == [
            MeasurementTaken(measurement=first),
            MeasurementTaken(measurement=second),
        ]
        stored = await Measurements(db=db, clock=FakeClock()).list()
    assert stored == (first, second)
    assert first.operation_id == OPERATION
    assert (first.acceptance_source, first.accepted_per_position) == ("metrics", (38, 30))


async def test_a_fingerprint_is_stored_with_what_it_stands_for(tmp_path: Path) -> None:
    async with recording(tmp_path) as (recorder, _, db):
        await recorder.sink(OPERATION).add(TAKEN)
        found = await Measurements(db=db, clock=FakeClock()).fingerprint("f" * 64)
    assert found == {"model": "tiny", "of": "f"}


async def test_a_decision_is_on_the_disk_before_anybody_is_told(tmp_path: Path) -> None:
    async with recording(tmp_path) as (recorder, bus, db):
        taken = await recorder.sink(OPERATION).add(TAKEN)
        view = await recorder.decide(
            decision(), measurements=(taken,), operation_id=OPERATION, inputs={"method": "sweep"}
        )
        assert bus.stored == [(1, 0), (1, 1)]
        assert bus.told[-1] == DecisionMade(decision=view)
        journal = Journal(db=db, clock=FakeClock())
        assert await journal.get(view.id) == view
        assert await journal.inputs(view.id) == (2, {"method": "sweep"})
    assert view.measurement_ids == (taken.id,)
    assert view.operation_id == OPERATION


async def test_an_operators_decision_needs_no_measurement(tmp_path: Path) -> None:
    async with recording(tmp_path) as (recorder, bus, _):
        view = await recorder.decide(decision())
    assert (view.measurement_ids, view.operation_id) == ((), None)
    assert bus.told == [DecisionMade(decision=view)]


async def test_what_could_not_be_stored_is_told_to_nobody(tmp_path: Path) -> None:
    async with recording(tmp_path) as (recorder, bus, _):
        with pytest.raises(StoreError):
            await recorder.sink("an operation that was never stored").add(TAKEN)
        with pytest.raises(StoreError):
            await recorder.decide(decision(), operation_id="an operation that was never stored")
    assert bus.told == []


async def test_a_model_file_that_vanished_meanwhile_stores_and_tells_nothing(
    tmp_path: Path,
) -> None:
    async def gone(profile: str, fingerprint: str) -> dict[str, Json]:
        msg = f"the model file of {profile} cannot be read"
        raise EngineError(msg, failure="config")

    async with recording(tmp_path) as (_, bus, db):
        measurements = Measurements(db=db, clock=FakeClock())
        recorder = StoreRecorder(
            measurements=measurements,
            journal=Journal(db=db, clock=FakeClock()),
            bus=bus,
            describe=gone,
        )
        with pytest.raises(EngineError, match="model file of tiny"):
            await recorder.sink(OPERATION).add(TAKEN)
        assert await measurements.list() == ()
    assert bus.told == []
