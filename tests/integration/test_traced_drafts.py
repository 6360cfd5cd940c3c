"""Drafts that p-min cuts: what the counters miss, and what the engine's trace says instead."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.engine import prom
from mtpd.engine.facts import DraftAcceptance
from mtpd.engine.logs import fact
from mtpd.engine.prom import SpecCounters
from mtpd.engine.traced import offered
from mtpd.store.db import Database
from mtpd.store.samples import Measurements
from tests.contract.harness import EMBEDDED, serving
from tests.contract.requests import MTP, completion
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tuner.acceptance import PositionCounts, cond_from_counts
from tuner.summary import summarise

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]


async def test_the_trace_gives_the_acceptance_that_the_counters_of_cut_drafts_hide(
    tmp_path: Path,
) -> None:
    """One reply at depth 3: the counters say 7 of 17 for the second position, the trace 7 of 7."""
    kind = dataclasses.replace(EMBEDDED, env={"LLAMA_TRACE": "1"})
    flags = (*MTP, "3", "--spec-draft-p-min", "0.5")
    async with serving(kind, *flags, home=tmp_path) as (engine, client):
        body = completion(64, prompt="def main():", ignore_eos=True)
        await client.complete("/completion", body, timeout_s=20)
        counted = prom.spec_counters(await client.metrics_text())
        await engine.until_said("draft acceptance")
        facts = [found for line in engine.lines if (found := fact(line)) is not None]

    assert isinstance(counted, SpecCounters)
    assert counted.per_position is not None
    totals = (counted.drafts, counted.drafted, counted.accepted)
    seen = offered(facts, depth=3, totals=totals)
    assert seen is not None
    cut = 3 * counted.drafts - counted.drafted
    assert cut > counted.drafts, "most drafts were cut"
    counts = PositionCounts(steps=counted.drafts, accepted=counted.per_position, cut=cut)
    hidden = cond_from_counts(counts)[1]
    exact = cond_from_counts(dataclasses.replace(counts, offered=seen))[1]
    assert isinstance(hidden, float)
    assert isinstance(exact, float)
    assert hidden < 0.6
    assert exact > 0.9
    ends = [one for one in facts if isinstance(one, DraftAcceptance)]
    assert [(one.drafted, one.accepted) for one in ends] == [totals[1:]]


@pytest.mark.timeout(120)
async def test_a_tuning_with_p_min_stores_what_each_draft_offered() -> None:
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-chained.gguf"))
        text = place.config.read_text()
        place.config.write_text(text.replace("max_depth = 3", "max_depth = 3\np_min = 0.5", 1))
        async with daemon_at(place) as (running, _):
            operation = await running.control.tune(
                subject="alpha",
                depths=(0, 3),
                workloads=("code",),
                prompts=2,
                repetitions=1,
                max_tokens=64,
                method="sweep",
                apply=True,
                idempotency_key=None,
            )
            ended = await run_operation(running, operation)
        clock = SystemClock()
        async with await Database.open(place.directories.state / "mtpd.sqlite3", clock) as db:
            stored = await Measurements(db=db, clock=clock).observations()

    assert ended.state == "done", ended.error
    plain, deep = summarise(stored)
    assert plain.arm.depth == 0
    assert {one.offered_per_position for one in stored if not one.arm.depth} == {None}
    assert isinstance(deep.counts, PositionCounts)
    assert deep.counts.offered is not None
    first, second, _ = deep.counts.offered
    assert first == deep.counts.steps
    assert second < deep.counts.accepted[0], "a draft was cut after its first token was kept"
    assert deep.counts.cut > 0
