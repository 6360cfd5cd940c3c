"""Noticing that the machine was suspended."""

from __future__ import annotations

import anyio
from structlog.testing import capture_logs

from mtpd.control.waking import LOOK_S, Waking
from mtpd.events import Event, MachineResumed
from tests.fakes.clock import FakeClock

NIGHT = MachineResumed(suspended_s=28_800.0, reason="the machine was suspended for 8 h")


class Bed:
    """A machine that can sleep, and what was told of it."""

    def __init__(self) -> None:
        self.clock, self.told, self.pauses = FakeClock(), list[Event](), list[float]()
        self.waking = Waking(clock=self.clock, publish=self.told.append, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        await anyio.lowlevel.checkpoint()


def test_a_suspend_is_told_once_in_one_sentence() -> None:
    bed = Bed()
    with capture_logs() as lines:
        bed.waking.look()
        bed.clock.suspend(28_800.0)
        bed.waking.look()
        bed.clock.advance(28_800.0)  # a night awake is none
        bed.waking.look()
    assert bed.told == [NIGHT]
    (line,) = lines
    assert (line["event"], line["suspended_s"], line["reason"]) == (
        "machine.resumed",
        28_800.0,
        NIGHT.reason,
    )


async def test_it_looks_every_second_and_tells_who_waits() -> None:
    bed = Bed()
    woken = anyio.Event()

    async def waits() -> None:
        assert await bed.waking.woken(-1) == 0
        assert await bed.waking.woken(0) == 1
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits)
        tasks.start_soon(bed.waking.run)
        with anyio.fail_after(10):
            while len(bed.pauses) < 5:
                await anyio.lowlevel.checkpoint()
            assert not woken.is_set()
            bed.clock.suspend(3.0)
            await woken.wait()
        tasks.cancel_scope.cancel()
    assert set(bed.pauses) == {LOOK_S}


async def test_what_is_to_end_for_a_suspend_goes_no_further() -> None:
    clock = FakeClock()
    with anyio.CancelScope() as scope:
        waking = Waking(clock=clock, publish=lambda _event: scope.cancel())
        await waking.awake()
        clock.suspend(28_800.0)
        await waking.awake()
        raise AssertionError("it went on")
    assert scope.cancelled_caught
