"""The log's word about finished requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.engine.facts import (
    AcceptancePerPosition,
    DraftAcceptance,
    DraftVerified,
    EvalTime,
    Phase,
)
from mtpd.engine.heard import KEEP, RequestFacts
from mtpd.units import EngineId

if TYPE_CHECKING:
    from mtpd.engine.facts import Fact

ONE, TWO = EngineId("one"), EngineId("two")
TOTALS = DraftAcceptance(slot=0, task=1, rate=0.8, accepted=8, drafted=10, mean_len=2.6)
RATES = AcceptancePerPosition(slot=0, task=1, rates=(0.9, 0.7))
OLD = DraftAcceptance(
    slot=0, task=1, rate=0.8, accepted=8, drafted=10, mean_len=2.6, per_position=(0.9, 0.7)
)


async def test_both_lines_of_a_request_are_waited_for() -> None:
    heard = RequestFacts()
    got: list[tuple[Fact, ...]] = []

    async def ask() -> None:
        got.append(await heard.of(ONE, within_s=30))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            heard.hear(ONE, TOTALS)
            await anyio.lowlevel.checkpoint()
            assert got == []
            heard.hear(ONE, RATES)
    assert got == [(TOTALS, RATES)]


async def test_one_line_is_enough_where_a_build_prints_all_in_one() -> None:
    heard = RequestFacts()
    heard.hear(ONE, OLD)
    with anyio.fail_after(10):
        assert await heard.of(ONE, within_s=30) == (OLD,)


async def test_what_another_engine_or_an_earlier_request_said_does_not_count() -> None:
    heard = RequestFacts()
    for fact in (TOTALS, RATES):
        heard.hear(ONE, fact)
    assert await heard.of(TWO, within_s=0) == ()
    heard.clear()
    assert await heard.of(ONE, within_s=0) == ()
    heard.hear(ONE, TOTALS)
    heard.hear(TWO, RATES)
    assert await heard.of(TWO, within_s=0) == (RATES,)
    assert await heard.of(ONE, within_s=0) == ()


async def test_memory_is_bounded_and_other_facts_are_passed_over() -> None:
    heard = RequestFacts()
    heard.hear(ONE, EvalTime(slot=0, task=1, phase=Phase.DECODE, ms=1.0, tokens=1))
    assert await heard.of(ONE, within_s=0) == ()
    for _ in range(10 * KEEP):
        heard.hear(ONE, TOTALS)
    assert len(await heard.of(ONE, within_s=0)) == KEEP


async def test_traced_steps_are_kept_beside_the_lines_that_end_a_request() -> None:
    """More of them than facts, and forgotten with the request."""
    heard = RequestFacts()
    step = DraftVerified(slot=0, task=1, accepted=1, drafted=1, restored=False)
    told: tuple[Fact, ...] = (*[step] * (2 * KEEP), TOTALS, RATES)
    for fact in told:
        heard.hear(ONE, fact)
    assert await heard.of(ONE, within_s=0) == told
    heard.clear()
    assert await heard.of(ONE, within_s=0) == ()
    heard.hear(ONE, step)
    heard.hear(TWO, TOTALS)
    assert await heard.of(TWO, within_s=0) == (TOTALS,)
