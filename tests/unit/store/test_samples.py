"""Measurements: filters, pages and what the schema refuses."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.operations_table import OperationRows
from mtpd.store.samples import Conditions, MeasurementFilter, Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import DEPTH_0, observation, operation_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SOURCE = "metrics"


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[tuple[Database, Measurements]]:
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield db, Measurements(db=db, clock=FakeClock())


async def test_every_filter_restricts(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (db, measurements):
        await OperationRows(db=db).insert(operation_view(), key=None)
        plain = await measurements.add(observation(), acceptance_source=SOURCE)
        other = await measurements.add(
            observation(
                arm=DEPTH_0, workload="code", fingerprint="other", start_id="engine-2", steps=0
            ),
            acceptance_source="none",
            operation_id="op-1",
        )

        async def found(where: MeasurementFilter) -> list[int]:
            return [view.id for view in await measurements.list(where)]

        assert await found(MeasurementFilter()) == [plain, other]
        assert await found(MeasurementFilter(profile="tiny")) == [plain, other]
        assert await found(MeasurementFilter(profile="absent")) == []
        assert await found(MeasurementFilter(depth=2)) == [plain]
        assert await found(MeasurementFilter(depth=0)) == [other]
        assert await found(MeasurementFilter(workload="prose")) == [plain]
        assert await found(MeasurementFilter(operation_id="op-1")) == [other]
        assert await found(MeasurementFilter(fingerprint="other")) == [other]
        assert await found(MeasurementFilter(start_id="engine-2")) == [other]
        assert await found(MeasurementFilter(ids=(other, 99))) == [other]
        assert await found(MeasurementFilter(ids=())) == []
        assert await found(MeasurementFilter(since_id=plain)) == [other]
        assert await found(MeasurementFilter(depth=2, workload="code")) == []


async def test_a_limit_takes_the_newest_or_the_first_after_a_row(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (_, measurements):
        for _ in range(5):
            await measurements.add(observation(), acceptance_source=SOURCE)

        newest = await measurements.list(MeasurementFilter(limit=2))
        assert [view.id for view in newest] == [4, 5]
        page = await measurements.list(MeasurementFilter(since_id=1, limit=2))
        assert [view.id for view in page] == [2, 3]


async def test_unknown_counters_stay_unknown(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (_, measurements):
        number = await measurements.add(
            observation(steps=None, drafted=None, accepted=0, accepted_per_position=None),
            acceptance_source="timings",
        )
        view = await measurements.get(number)

    assert view is not None
    assert (view.steps, view.drafted, view.accepted, view.accepted_per_position) == (
        None,
        None,
        0,
        None,
    )


@pytest.mark.parametrize(
    ("power_w", "idle_w", "gross_j", "net_j"),
    [(150.0, 20.0, 3.0, 2.6), (150.0, None, 3.0, None), (None, 20.0, None, None)],
)
async def test_energy_per_token_is_shown_where_the_power_was_measured(
    tmp_path: Path,
    power_w: float | None,
    idle_w: float | None,
    gross_j: float | None,
    net_j: float | None,
) -> None:
    around = Conditions(power_mean_w=power_w, power_idle_w=idle_w)
    async with _opened(tmp_path) as (_, measurements):
        taken = observation(tokens=100, decode_s=2.0)
        number = await measurements.add(taken, acceptance_source=SOURCE, conditions=around)
        view = await measurements.get(number)
    assert view is not None
    assert view.power_mean_w == power_w
    assert (view.joules_per_token, view.net_joules_per_token) == (gross_j, net_j)


async def test_a_later_measurement_tells_what_a_fingerprint_stands_for(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (_, measurements):
        taken = observation()
        await measurements.add(taken, acceptance_source=SOURCE)
        assert await measurements.fingerprint(taken.fingerprint) is None
        await measurements.add(
            taken, acceptance_source=SOURCE, fingerprint_fields={"engine": "b11434"}
        )
        await measurements.add(taken, acceptance_source=SOURCE)
        assert await measurements.fingerprint(taken.fingerprint) == {"engine": "b11434"}


async def test_what_is_learned_of_a_fingerprint_later_joins_what_is_stored(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (_, measurements):
        taken = observation()
        for fields in (
            {"engine": "b11434", "driver": None},
            {"engine": "b11434", "driver": None, "model_sha256": "a" * 64},
            {"engine": "b11434", "driver": "6.8", "model_sha256": "b" * 64},
        ):
            await measurements.add(taken, acceptance_source=SOURCE, fingerprint_fields=fields)
        assert await measurements.fingerprint(taken.fingerprint) == {
            "driver": None,
            "engine": "b11434",
            "model_sha256": "a" * 64,
        }


@pytest.mark.parametrize(
    "changes",
    [
        {"decode_s": 0.0},
        {"decode_s": float("nan")},
        {"tokens": 0},
        {"steps": -1},
        {"accepted": -1},
        {"fingerprint": ""},
    ],
)
async def test_values_that_cannot_be_measured_are_refused(
    tmp_path: Path, changes: dict[str, float | str]
) -> None:
    async with _opened(tmp_path) as (_, measurements):
        with pytest.raises(StoreError, match="constraint"):
            await measurements.add(observation(**changes), acceptance_source=SOURCE)
        assert await measurements.list() == ()


async def test_an_operation_that_was_never_stored_is_refused(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (_, measurements):
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            await measurements.add(
                observation(), acceptance_source=SOURCE, operation_id="op-unknown"
            )
