"""A limit that ends a tuning early does not replace what was measured better before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.control.explain import explanation
from mtpd.control.limits import Limits
from mtpd.store.journal import Journal
from mtpd.store.samples import MeasurementFilter, Measurements
from tests.fakes.clock import FakeClock
from tests.unit.control.made import arm
from tests.unit.control.test_tuning import house, plan

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.explanation_views import ExplanationView
    from tests.unit.control.test_tuning import House


async def explained(made: House, number: int) -> ExplanationView:
    journal = Journal(db=made.db, clock=FakeClock())
    decision, recorded = await journal.get(number), await journal.inputs(number)
    assert decision is not None
    assert recorded is not None
    cells = MeasurementFilter(ids=decision.measurement_ids)
    stored = Measurements(db=made.db, clock=FakeClock())
    return explanation(
        decision, await stored.list(cells), await stored.observations(cells), recorded[1]
    )


@pytest.mark.parametrize(("method", "depths"), [("sweep", (0, 1)), ("model-based", None)])
async def test_a_tuning_that_was_cut_short_keeps_the_measured_choice(
    tmp_path: Path, method: str, depths: tuple[int, ...] | None
) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(depths=None))
        short = plan(method=method, depths=depths, limits=Limits(max_starts=1))
        result = await made.run(short)
        first, second = await made.decisions()
        view = await explained(made, second.id)
    assert first.arm is not None
    assert first.arm.depth in {2, 3}
    assert (second.act, second.arm, second.previous) == ("keep", first.arm, first.arm)
    said = "cut short by --max-starts: what decision 1 measured is compared, too"
    assert said in second.evidence
    assert set(first.measurement_ids) < set(second.measurement_ids)
    assert made.device.running == made.choices.measured("alpha") == first.arm.arm()
    assert isinstance(result["depths"], list)
    assert len(result["depths"]) == 4
    assert view.replay.state == "same"
    (model,) = view.models
    assert model.asks is not None
    assert [ask.number for ask in model.asks] == [1]
    assert len(model.starts) == 5
    assert all(start.reason == "scripted" for start in model.starts)
    assert f"note: {said}" in view.chain


async def test_what_is_cut_short_a_second_time_is_compared_with_all_before(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(depths=None))
        for _ in range(2):
            await made.run(plan(depths=(0, 1), limits=Limits(max_cells=2)))
        *_, third = await made.decisions()
        taken = await made.measurements()
        view = await explained(made, third.id)
    assert third.act == "keep"
    assert third.measurement_ids == tuple(one.id for one in taken)
    assert view.replay.state == "same"
    assert any("by --max-cells: what decision 2 measured" in line for line in third.evidence)


async def test_without_a_choice_before_it_is_only_said_that_it_was_cut_short(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(depths=(0, 1), limits=Limits(max_starts=1, max_cells=2)))
        (decision,) = await made.decisions()
    assert decision.arm is not None
    assert decision.arm.depth == 0
    assert "cut short by --max-starts and --max-cells" in decision.evidence


async def test_a_limit_that_was_not_reached_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(depths=None))
        await made.run(plan(depths=(0, 1), limits=Limits(max_starts=9, max_seconds=9e9)))
        first, second = await made.decisions()
    assert first.arm is not None
    assert (second.act, second.arm) != ("keep", first.arm)
    assert not set(first.measurement_ids) & set(second.measurement_ids)
    assert not any("cut short" in line for line in second.evidence)


async def test_cells_of_another_fingerprint_are_not_joined(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(depths=None))
        made.device.fingerprint = "another"
        await made.run(plan(depths=(0, 1), limits=Limits(max_starts=1)))
        first, second = await made.decisions()
    assert not set(first.measurement_ids) & set(second.measurement_ids)
    assert second.arm is not None
    assert second.arm.depth == 0
    assert "cut short by --max-starts" in second.evidence


async def test_a_member_that_a_limit_left_out_is_compared_by_what_stands(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan("both", depths=None))
        await made.run(plan("both", depths=None, limits=Limits(max_starts=4)))
        *_, beta, both = await made.decisions()
        view = await explained(made, both.id)
    assert beta.subject == "beta"
    assert beta.act == "keep"
    assert both.act == "keep"
    assert {one.arm.profile for one in view.measurements} == {"alpha", "beta"}
    assert view.replay.state == "same"
    assert made.choices.measured("beta") == arm("beta", 1)
