"""How late the loop is: every moment of the grid counts, however long the loop stood still."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio

from mtpd.lag import MOST, LagWatch
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 0.001


async def until(what: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not what():  # noqa: ASYNC110 - a timer of the loop is waited for
            await anyio.sleep(EVERY_S)


async def told_after(standstill_s: float) -> list[float]:
    clock, told = FakeClock(), list[float]()
    watch = LagWatch(told=told.append, clock=clock, every_s=EVERY_S)
    with watch.watching(asyncio.get_running_loop()):
        clock.advance(standstill_s)
        await until(lambda: told)
    return told


async def test_every_moment_that_passed_in_a_standstill_is_told() -> None:
    told = await told_after(10.5 * EVERY_S)  # and there may be one more look, which is in time
    assert [round(lag / EVERY_S, 3) for lag in told[:10]] == [9.5 - number for number in range(10)]


async def test_a_loop_in_time_is_told_as_such() -> None:
    assert set(await told_after(EVERY_S)) == {0.0}


async def test_a_daemon_that_was_stopped_for_a_day_goes_on() -> None:
    told = await told_after(86400.0)
    assert len(told) == MOST


async def test_nothing_is_told_afterwards() -> None:
    watch = LagWatch(told=print, clock=FakeClock(), every_s=EVERY_S)
    with watch.watching(asyncio.get_running_loop()):
        pass
    assert watch._timer is not None
    assert watch._timer.cancelled()
