"""A recorded decision is taken again from the database file alone, and is the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.control.deciding import DepthInputs, PoolInputs, decide
from mtpd.control.recorded import decode_inputs, difference
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import MeasurementFilter, Measurements
from mtpd.types import Absent
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.script import Device, Script
from tuner.replay import Recording, replay

if TYPE_CHECKING:
    from mtpd.app import Daemon
    from mtpd.views import DecisionView

STUDY_ROWS = Script(
    acceptance=(0.93, 0.74, 0.5), row_cost=0.41, draft_share=0.15, reshape_ms=1.0, tps0=32.4
)
EVICTED = Script(acceptance=(0.9, 0.9, 0.9), row_cost=0.05, device=Device(), evict_at_depth=2)
QUICK: dict[str, Any] = {
    "depths": None,
    "workloads": ["short"],
    "prompts": 2,
    "repetitions": 1,
    "max_tokens": 96,
    "apply": True,
    "idempotency_key": None,
}


async def tuned(running: Daemon, subject: str, **changed: Any) -> None:
    asked = {**QUICK, "subject": subject, **changed}
    ended = await run_operation(running, await running.control.tune(**asked))
    assert ended.state == "done", ended.error


def copied(folder: Path, into: Path) -> Path:
    """The database file with its WAL, without the daemon that wrote it."""
    for path in folder.glob("mtpd.sqlite3*"):
        shutil.copy(path, into / path.name)
    return into / "mtpd.sqlite3"


async def recorded(folder: Path) -> list[tuple[DecisionView, DepthInputs | PoolInputs | Absent]]:
    """Every decision with its inputs, from a copy of the file: nothing else is there."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as name:
        async with await Database.open(copied(folder, Path(name)), clock) as db:
            journal, taken = Journal(db=db, clock=clock), Measurements(db=db, clock=clock)
            found: list[tuple[DecisionView, DepthInputs | PoolInputs | Absent]] = []
            for view in await journal.list():
                row = await journal.inputs(view.id)
                assert row is not None
                told = await taken.observations(MeasurementFilter(ids=view.measurement_ids))
                found.append((view, decode_inputs(row[1], told)))
            return found


def assert_same(found: list[tuple[DecisionView, DepthInputs | PoolInputs | Absent]]) -> None:
    for view, inputs in found:
        assert not isinstance(inputs, Absent), inputs.reason
        assert difference(view, decide(inputs)) is None


@pytest.mark.parametrize("method", ["sweep", "model-based"])
async def test_a_tuning_on_the_scripted_engine(method: str) -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            await tuned(running, "alpha", method=method)
            # The second time there is an incumbent, and nothing is applied.
            await tuned(running, "alpha", method=method, apply=False)
        found = await recorded(place.directories.state)

    assert_same(found)
    (first, before), (second, after) = found
    assert isinstance(before, DepthInputs)
    assert isinstance(after, DepthInputs)
    assert (first.act, second.act) == ("choose", "measure")
    assert before.incumbent is None
    assert first.arm is not None
    assert after.incumbent == first.arm.arm()
    assert bool(before.history.short_steps) == (method == "model-based")
    # The search itself asks for the same again: what it was told is all there.
    again = replay(before.design, Recording(history=before.history))
    assert again.history.observations == before.history.observations
    assert again.history.starts == before.history.starts
    assert again.history.short_steps == before.history.short_steps


async def test_a_pool_and_its_members() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            await tuned(running, "both", method="model-based")
        found = await recorded(place.directories.state)

    assert [view.subject for view, _ in found] == ["alpha", "beta", "both"]
    assert isinstance(found[2][1], PoolInputs)
    assert_same(found)


async def test_a_probe() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            operation = await running.control.probe(model="alpha", depth=2, idempotency_key=None)
            assert (await run_operation(running, operation)).state == "done"
        found = await recorded(place.directories.state)

    assert [view.act for view, _ in found] == ["measure"]
    assert_same(found)


async def test_starts_that_measured_nothing_or_do_not_fit_are_among_the_inputs() -> None:
    async with home(EVICTED) as place:
        async with daemon_at(place) as (running, _):
            await tuned(running, "alpha", method="sweep")
        ((view, inputs),) = await recorded(place.directories.state)

    assert "does not fit" in view.reason
    assert isinstance(inputs, DepthInputs)
    assert_same([(view, inputs)])


async def test_a_model_on_the_cpu_that_its_profile_accepts() -> None:
    out = Script(acceptance=(0.9, 0.9, 0.9), row_cost=0.05, device=Device(), evict_at_depth=0)
    async with home(out, alpha='offload = "accept"') as place:
        async with daemon_at(place) as (running, _):
            await tuned(running, "alpha", method="model-based", max_tokens=32)
        found = await recorded(place.directories.state)

    ((view, inputs),) = found
    assert "partly on the CPU" in view.reason
    assert isinstance(inputs, DepthInputs)
    assert {start.arm.depth for start in inputs.history.starts} == {0, 1, 2, 3}
    assert_same(found)


async def test_what_an_operator_ordered_has_no_inputs_to_decide_from() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            order = await running.control.switch(
                model="alpha", depth=1, force=False, idempotency_key=None
            )
            assert (await run_operation(running, order)).state == "done"
        found = await recorded(place.directories.state)

    assert found
    assert [inputs for _, inputs in found] == [
        Absent("an operator ordered it: nothing was measured for it")
    ] * len(found)


@pytest.mark.real_engine
@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_tuning_on_the_real_engine() -> None:
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-unchained.gguf"))
        async with daemon_at(place) as (running, _):
            await tuned(running, "alpha", method="model-based", prompts=1)
        found = await recorded(place.directories.state)

    assert_same(found)
    (_, inputs) = found[0]
    assert isinstance(inputs, DepthInputs)
    assert {step.rows for step in inputs.history.short_steps} >= {0, 1, 2}
