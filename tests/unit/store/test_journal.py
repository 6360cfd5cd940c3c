"""The journal: evidence, outcome, the latest choice."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import NotFoundError, StoreError
from mtpd.store.db import Database
from mtpd.store.journal import DecisionFilter, Journal
from mtpd.store.samples import Measurements
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision, observation
from tuner.types import Act

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[tuple[Journal, Measurements]]:
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield Journal(db=db, clock=FakeClock()), Measurements(db=db, clock=FakeClock())


async def test_a_decision_keeps_its_measurements_in_order(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, measurements):
        numbers = [
            await measurements.add(observation(), acceptance_source="metrics") for _ in range(12)
        ]
        wanted = (numbers[10], numbers[0], numbers[5])
        view = await journal.append(decision(), measurement_ids=wanted)
        found = await journal.get(view.id)
    assert found == view
    assert view.measurement_ids == wanted


async def test_a_measurement_that_does_not_exist_leaves_no_decision(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            await journal.append(decision(), measurement_ids=(7,))
        assert await journal.list() == ()


async def test_the_outcome_is_appended_to_the_row(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        view = await journal.append(decision())
        first = await journal.outcome(view.id, "switched in 0.4 s")
        assert first == replace(view, outcome="switched in 0.4 s")
        second = await journal.outcome(view.id, "rolled back")
        assert second.outcome == "switched in 0.4 s; rolled back"


async def test_the_outcome_of_no_decision_is_refused(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        with pytest.raises(NotFoundError, match="no decision 3"):
            await journal.outcome(3, "done")


async def test_a_decision_that_does_not_exist_is_none(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        assert await journal.get(1) is None
        assert await journal.inputs(1) is None


async def test_an_input_that_is_no_json_is_refused(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        with pytest.raises(StoreError, match="JSON"):
            await journal.append(decision(), inputs={"gain": float("inf")})
        assert await journal.list() == ()


async def test_decisions_are_found_by_subject_act_and_number(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        for subject, act in (("a", Act.CHOOSE), ("b", Act.CHOOSE), ("a", Act.REJECT)):
            await journal.append(decision(subject=subject, act=act))

        async def found(where: DecisionFilter | None) -> list[int]:
            return [view.id for view in await journal.list(where)]

        assert await found(None) == [1, 2, 3]
        assert await found(DecisionFilter(subject="a")) == [1, 3]
        assert await found(DecisionFilter(act="choose")) == [1, 2]
        assert await found(DecisionFilter(since_id=1)) == [2, 3]
        assert await found(DecisionFilter(since_id=0, limit=1)) == [1]
        assert await found(DecisionFilter(limit=1)) == [3]
        assert await found(DecisionFilter(operation_id="absent")) == []


async def test_the_latest_choice_passes_over_what_chooses_nothing(tmp_path: Path) -> None:
    async with _opened(tmp_path) as (journal, _):
        assert await journal.latest_choice("tiny") is None
        kept = await journal.append(decision(act=Act.KEEP))
        await journal.append(decision(act=Act.REJECT))
        await journal.append(decision(act=Act.MEASURE))
        await journal.append(decision(act=Act.CHOOSE, arm=None))
        await journal.append(decision(subject="other"))
        assert await journal.latest_choice("tiny") == kept


async def test_a_choice_holds_only_under_the_fingerprint_that_was_measured(
    tmp_path: Path,
) -> None:
    async with _opened(tmp_path) as (journal, measurements):
        old = await measurements.add(observation(fingerprint="old"), acceptance_source="metrics")
        new = await measurements.add(observation(fingerprint="new"), acceptance_source="metrics")
        first = await journal.append(decision(), measurement_ids=(old,))
        second = await journal.append(decision(), measurement_ids=(new,))

        assert await journal.latest_choice("tiny", "old") == first
        assert await journal.latest_choice("tiny", "new") == second
        assert await journal.latest_choice("tiny", "newer") is None
        assert await journal.latest_choice("tiny") == second
