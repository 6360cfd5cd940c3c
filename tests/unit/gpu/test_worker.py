"""The telemetry thread: group 18 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.gpu.files import Files
from mtpd.gpu.worker import TelemetryThread
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATE = Absent("the driver has not answered within 0.2 s")


@pytest.fixture
def thread() -> Iterator[TelemetryThread]:
    made = TelemetryThread(deadline_s=30.0)
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[TelemetryThread]:
    """One that gives up soon, for reads that never return."""
    made = TelemetryThread(deadline_s=0.2)
    yield made
    made.close()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A file whose read blocks in the kernel, as one of a hanging driver does."""
    path = tmp_path / "gpu_busy_percent"
    os.mkfifo(path)
    return path


def _release(fifo: Path) -> None:
    with fifo.open("w") as file:
        file.write("7\n")


async def test_answers_come_from_one_thread(thread: TelemetryThread) -> None:
    asked = [await thread.ask(threading.get_ident) for _ in range(3)]
    assert len(set(asked)) == 1
    assert asked[0] != threading.get_ident()


async def test_questions_of_several_tasks_are_answered_one_after_the_other(
    thread: TelemetryThread,
) -> None:
    inside, most = 0, 0

    def look() -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        inside -= 1
        return most

    answers: list[int | Absent] = []

    async def ask() -> None:
        answers.append(await thread.ask(look))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert answers == [1] * 20


async def test_a_read_that_hangs_is_stale_and_the_loop_lives(
    hasty: TelemetryThread, fifo: Path
) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        assert await hasty.ask(lambda: Files().once(str(fifo))) == LATE
        tasks.cancel_scope.cancel()
    assert ticks > 3
    _release(fifo)


async def test_no_question_queues_behind_one_that_hangs(hasty: TelemetryThread, fifo: Path) -> None:
    asked: list[int] = []
    await hasty.ask(lambda: Files().once(str(fifo)))
    began = anyio.current_time()
    for _ in range(50):
        assert await hasty.ask(lambda: asked.append(1)) == LATE
    assert anyio.current_time() - began < 5.0  # one after the other they would take 10 s
    _release(fifo)
    with anyio.fail_after(5):
        while await hasty.ask(lambda: 5) != 5:
            await anyio.lowlevel.checkpoint()
    assert asked == []


async def test_who_waits_for_another_gives_up_at_the_deadline(
    hasty: TelemetryThread, fifo: Path
) -> None:
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await hasty.ask(lambda: Files().once(str(fifo))))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert answers == [LATE] * 3
    _release(fifo)


async def test_a_failing_binding_is_a_reason_and_the_thread_goes_on(
    thread: TelemetryThread,
) -> None:
    with capture_logs() as logs:
        assert await thread.ask(lambda: 1 // 0) == Absent(
            "ZeroDivisionError: integer division or modulo by zero"
        )
    assert [entry["event"] for entry in logs] == ["gpu.read_failed"]
    assert await thread.ask(lambda: 1) == 1


async def test_one_that_gives_up_leaves_the_thread_usable(thread: TelemetryThread) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        go.wait(5)
        return "late"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.ask, wait)
        while not entered.is_set():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    go.set()
    assert await thread.ask(lambda: "next") == "next"


async def test_a_closed_thread_ends(thread: TelemetryThread) -> None:
    running = await thread.ask(threading.current_thread)
    assert isinstance(running, threading.Thread)
    assert running.daemon
    assert thread.close()
    assert not running.is_alive()
    assert thread.close()
    assert await thread.ask(lambda: "again") == "again"


async def test_a_hanging_thread_does_not_hold_up_the_end(
    hasty: TelemetryThread, fifo: Path
) -> None:
    await hasty.ask(lambda: Files().once(str(fifo)))
    began = anyio.current_time()
    assert not hasty.close()
    assert anyio.current_time() - began < 5.0
    _release(fifo)
    with anyio.fail_after(5):
        while any(one.name == "mtpd-telemetry" for one in threading.enumerate()):
            await anyio.lowlevel.checkpoint()
