"""A serving engine that hangs is found, ended and started again; a busy one is left alone."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.events import EngineTransition
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.pulse import Pulse
from tests.fakes.clock import FakeClock
from tests.fakes.supervision import Stage, plan_of, scripted, until

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import LaunchPlan


def watched(directory: Path) -> Stage:
    probe = EngineProbe()
    return Stage(
        directory,
        probe=probe,
        pulse=Pulse(ask=probe.answers, every_s=0.05, patience_s=0.6, last_s=0.2),
    )


async def never_lost(pulse: Pulse, plan: LaunchPlan) -> None:
    said = await pulse.until_lost(plan, clock=SystemClock(), printed_at=lambda: 0.0)
    pytest.fail(said)


async def test_an_engine_whose_health_is_fine_but_whose_queue_hangs_is_replaced(
    tmp_path: Path,
) -> None:
    stage = watched(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path, hang_slots=True))
        assert (await actor.settled()).state == "ready"
        first = actor.engine_id
        await until(lambda: "backoff" in stage.states(), within_s=20)
        reasons = [e.reason for e in stage.events if isinstance(e, EngineTransition)]
        assert any("neither answered nor printed anything" in reason for reason in reasons)
        await until(lambda: actor.engine_id != first, within_s=20)


async def test_a_stopped_process_is_replaced(tmp_path: Path) -> None:
    stage = watched(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path))
        view = await actor.settled()
        assert view.pid is not None  # a stopped process cannot even say that it refuses
        os.kill(view.pid, signal.SIGSTOP)
        await until(lambda: "backoff" in stage.states(), within_s=30)


async def test_a_healthy_engine_is_left_alone(tmp_path: Path) -> None:
    stage = watched(tmp_path)
    async with stage.running() as actor:
        actor.start(scripted(tmp_path))
        await actor.settled()
        asked = 0

        async def counted(plan: LaunchPlan) -> bool:
            nonlocal asked
            asked += 1
            return await EngineProbe().answers(plan)

        pulse = Pulse(ask=counted, every_s=0.01, patience_s=0.5)
        assert actor.plan is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(never_lost, pulse, actor.plan)
            began = SystemClock().now()
            await until(lambda: asked > 10 and SystemClock().now() - began > 1.0)
            tasks.cancel_scope.cancel()
        assert stage.states()[-1] == "ready"


async def test_an_engine_that_prints_is_busy_and_not_lost(tmp_path: Path) -> None:
    time = FakeClock()
    plan = plan_of("x", path=tmp_path / "engine.sock")
    printed = time.now() + 100.0

    async def silent(plan: LaunchPlan) -> bool:
        time.advance(10.0)
        return False

    pulse = Pulse(ask=silent, every_s=0.0, patience_s=30.0)
    with anyio.fail_after(10):
        said = await pulse.until_lost(plan, clock=time, printed_at=lambda: printed)
    assert time.now() == printed + 30.0 + 10.0  # and the last question
    assert said == "has neither answered nor printed anything for 30 s"


async def test_an_engine_that_answers_late_because_of_a_long_batch_is_not_lost(
    tmp_path: Path,
) -> None:
    plan = plan_of("x", path=tmp_path / "engine.sock")
    asked = 0

    async def late(plan: LaunchPlan) -> bool:
        nonlocal asked
        asked += 1
        await anyio.sleep(0.3)
        return True

    pulse = Pulse(ask=late, every_s=0.01, patience_s=1.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(never_lost, pulse, plan)
        await until(lambda: asked > 7)
        tasks.cancel_scope.cancel()


async def test_an_engine_that_wakes_up_slowly_is_given_all_the_patience(tmp_path: Path) -> None:
    time = FakeClock()
    plan = plan_of("x", path=tmp_path / "engine.sock")
    woke_at = 0.0

    async def ask(plan: LaunchPlan) -> bool:
        nonlocal woke_at
        time.advance(10.0)
        if time.now() == 1020.0:  # nearly all the patience is gone by now
            time.suspend(28_800.0)
            woke_at = time.now()
        return False

    pulse = Pulse(ask=ask, every_s=0.0, patience_s=30.0)
    with anyio.fail_after(10):
        await pulse.until_lost(plan, clock=time, printed_at=lambda: 0.0)
    assert time.now() == woke_at + 30.0 + 10.0  # and the last question


async def test_a_daemon_that_stood_still_asks_once_more_before_it_calls_an_engine_lost(
    tmp_path: Path,
) -> None:
    time = FakeClock()
    plan = plan_of("x", path=tmp_path / "engine.sock")
    replies = [True, False, True, False, False]
    answers = iter(replies)

    async def ask(plan: LaunchPlan) -> bool:
        time.advance(31.0)  # the machine slept; the question before it counts for nothing
        return next(answers)

    pulse = Pulse(ask=ask, every_s=0.0, patience_s=30.0)
    with anyio.fail_after(10):
        said = await pulse.until_lost(plan, clock=time, printed_at=lambda: 0.0)
    assert said == "has neither answered nor printed anything for 30 s"
    assert next(answers, None) is None
    assert time.now() == FakeClock().now() + 31.0 * len(replies)
