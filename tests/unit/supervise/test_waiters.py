from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mtpd.supervise.present import engine_view
from mtpd.supervise.states import Backoff, Cause, Engine, Stopped
from mtpd.supervise.waiters import Waiters
from mtpd.types import FailureClass
from tests.fakes.supervision import KEY, tiny

if TYPE_CHECKING:
    from mtpd.supervise.states import State
    from mtpd.views import EngineView

CAUSE = Cause(failure=FailureClass.CRASH, reason="it crashed")
WAITING = Backoff(plan=tiny(Path("/run")), cause=CAUSE, attempt=1, until=1.0)


def show(state: State) -> EngineView:
    return engine_view(Engine(state=state), key=KEY, engine_id=None, since="", now=0.0, log_tail=())


async def test_a_waiter_gets_the_state_that_settled_also_when_it_has_passed() -> None:
    waiters, seen = Waiters(), list[str]()

    async def wait() -> None:
        seen.append((await waiters.settled(after=3)).state)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        waiters.wake_settled(processed=2, view=lambda: show(Stopped()))
        waiters.wake_settled(processed=3, view=lambda: show(WAITING))
        waiters.wake_settled(processed=4, view=lambda: show(Stopped()))
    assert seen == ["backoff"] * 3


async def test_a_waiter_that_gives_up_is_forgotten() -> None:
    waiters = Waiters()
    with anyio.move_on_after(0.01):
        await waiters.settled(after=1)
    assert waiters._settling == []


async def test_a_change_before_the_wait_is_not_missed() -> None:
    waiters = Waiters()
    seen = waiters.revision
    waiters.wake_changed()
    assert await waiters.changed(since=seen) == seen + 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: waiters.changed(since=seen + 1))
        await anyio.wait_all_tasks_blocked()
        waiters.wake_changed()
