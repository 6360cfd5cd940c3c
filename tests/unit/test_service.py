"""What the service manager is told: ready, signs of life, reloading, more time, the end."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mtpd.clock import SystemClock
from mtpd.notify import Notifier
from mtpd.service import EXTEND_LIMIT_S, Service, describe
from mtpd.views import ConfigFileView, OperationView, ProgressView, QueueView
from tests.fakes import views
from tests.fakes.actors import Loads
from tests.fakes.board import arm, bench, until
from tests.fakes.clock import FakeClock
from tests.fakes.manager import managed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mtpd.views import EngineView
    from tests.fakes.manager import Manager

QUIET = QueueView(waiting=0, limit=64, timeout_s=120, in_flight=0)
WATCHDOG_S = 0.06
MORE_S = 0.03


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with managed(tmp_path) as made:
        yield made


def service(manager: Manager, *, watchdog_s: float | None = WATCHDOG_S) -> Service:
    notifier = Notifier(manager.environment["NOTIFY_SOCKET"])
    return Service(notifier, watchdog_s=watchdog_s, clock=SystemClock(), extend_s=MORE_S)


class Board:
    """A switchboard whose owner may be stuck.

    Attributes:
        asked: How often it was asked for an answer.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.works = anyio.Event()
        self.works.set()

    def engines(self) -> tuple[EngineView, ...]:
        return ()

    def queue(self) -> QueueView:
        return QUIET

    async def answer(self) -> None:
        self.asked += 1
        await self.works.wait()

    async def asked_again(self, times: int) -> None:
        end = self.asked + times
        await until(lambda: self.asked >= end)


async def test_it_is_ready_while_the_api_answers_and_stopping_afterwards(manager: Manager) -> None:
    async with service(manager).serving(Board(), lambda: "alpha at depth 2"):
        await manager.until("READY=1")
    heard = manager.hear()
    assert heard[0] == "READY=1\nSTATUS=alpha at depth 2"
    assert heard[-1] == "STOPPING=1\nSTATUS=stopping"


async def test_what_is_shown_follows_what_is_and_is_not_repeated(manager: Manager) -> None:
    now = ["loading"]
    async with service(manager).serving(Board(), lambda: now[0]):
        await manager.until("WATCHDOG=1", times=3)
        now[0] = "ready"
        await manager.until("STATUS=ready")
        await manager.until("WATCHDOG=1", times=9)
    shown = [message for message in manager.hear() if "STATUS=" in message]
    assert shown == ["READY=1\nSTATUS=loading", "STATUS=ready", "STOPPING=1\nSTATUS=stopping"]


async def test_nobody_who_has_no_watchdog_gets_signs_of_life(manager: Manager) -> None:
    now = ["first"]
    async with service(manager, watchdog_s=None).serving(Board(), lambda: now[0]):
        now[0] = "second"
        await manager.until("STATUS=second")
    assert not any("WATCHDOG" in message for message in manager.hear())


async def test_a_stuck_supervisor_gives_no_sign_of_life_until_it_works_again(
    manager: Manager,
) -> None:
    board = Board()
    with capture_logs() as said:
        async with service(manager).serving(board, lambda: ""):
            await manager.until("WATCHDOG=1", times=2)
            board.works = anyio.Event()
            await board.asked_again(2)  # the first may have been answered before
            before, told = manager.hear().count("WATCHDOG=1"), len(said)
            assert said[-1]["event"] == "watchdog.withheld"
            await board.asked_again(4)
            assert manager.hear().count("WATCHDOG=1") == before
            assert len(said) == told  # once is enough
            board.works.set()
            await manager.until("WATCHDOG=1", times=before + 1)


async def test_a_stuck_loop_gives_no_sign_of_life(manager: Manager) -> None:
    async with service(manager).serving(Board(), lambda: ""):
        await manager.until("WATCHDOG=1", times=2)
        before = manager.hear().count("WATCHDOG=1")
        time.sleep(4 * WATCHDOG_S)  # noqa: ASYNC251 - that it blocks is the matter
        assert manager.hear().count("WATCHDOG=1") == before


async def test_a_switchboard_whose_owner_does_not_run_does_not_answer() -> None:
    async with bench() as made:
        await made.board.answer()
        board = made.board
    with anyio.move_on_after(0.05) as patience:
        await board.answer()
    assert patience.cancelled_caught


async def test_a_slow_load_and_a_long_measurement_are_no_reason_for_silence(
    manager: Manager,
) -> None:
    async with bench() as made, anyio.create_task_group() as tasks:
        made.actor("a").script.append(Loads(gate=anyio.Event()))
        async with service(manager).serving(made.board, lambda: ""):
            tasks.start_soon(lambda: made.board.switch(arm("a"), reason="slow"))
            await until(lambda: made.actor("a").view().state == "loading")
            await manager.until("WATCHDOG=1", times=len(manager.hear()) + 3)
        tasks.cancel_scope.cancel()
    async with (
        bench() as made,
        made.board.hold(reason="a measurement"),
        service(manager).serving(made.board, lambda: ""),
    ):
        await manager.until("WATCHDOG=1", times=len(manager.hear()) + 3)


async def test_a_reload_is_announced_with_its_time_and_ends_however_it_went(
    manager: Manager,
) -> None:
    speaks = service(manager)

    def reload() -> None:
        with speaks.reloading():
            raise OSError("unreadable")

    async with speaks.serving(Board(), lambda: "alpha"):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        with pytest.raises(OSError, match="unreadable"):
            reload()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        await manager.until("READY=1", times=2)
    heard = [message for message in manager.hear() if message != "WATCHDOG=1"]
    (found,) = [one for one in heard if one.startswith("RELOADING=1")]
    moment = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", found)
    assert moment is not None
    assert before <= int(moment[1]) <= after
    assert heard[heard.index(found) + 1] == "READY=1\nSTATUS=alpha"


async def test_more_time_is_asked_for_while_it_starts_and_stops_and_at_no_other(
    manager: Manager,
) -> None:
    speaks, more = service(manager), f"EXTEND_TIMEOUT_USEC={int(MORE_S * 1e6)}"
    with speaks.unhurried():
        await manager.until(more, times=3)
        async with speaks.serving(Board(), lambda: ""):
            before = manager.hear().count(more)
            await manager.until("WATCHDOG=1", times=5)
            assert manager.hear().count(more) == before
        await manager.until(more, times=before + 3)
    ended = manager.hear().count(more)
    await anyio.sleep(2 * MORE_S)
    assert manager.hear().count(more) == ended


async def test_who_starts_for_ever_is_given_no_more_time(manager: Manager) -> None:
    clock, more = FakeClock(), f"EXTEND_TIMEOUT_USEC={int(MORE_S * 1e6)}"
    notifier = Notifier(manager.environment["NOTIFY_SOCKET"])
    speaks = Service(notifier, watchdog_s=None, clock=clock, extend_s=MORE_S)
    with speaks.unhurried():
        await manager.until(more, times=2)
        clock.advance(EXTEND_LIMIT_S)
        before = manager.hear().count(more)
        await anyio.sleep(3 * MORE_S)
        assert manager.hear().count(more) == before


async def test_an_error_while_it_starts_comes_out_as_itself(manager: Manager) -> None:
    async def start() -> None:
        with service(manager).unhurried():
            raise OSError("taken")

    with pytest.raises(OSError, match="taken"):
        await start()


def test_the_line_shows_model_depth_verdict_and_queue() -> None:
    busy = dataclasses.replace(QUIET, waiting=2, in_flight=1)
    ready, loading = views.engine(), views.engine("loading")
    tune = OperationView(
        id="1",
        kind="tune",
        state="running",
        params={},
        progress=ProgressView(done=0, total=None, note=""),
        created_at="",
        started_at=None,
        ended_at=None,
        result=None,
        error=None,
    )
    file = ConfigFileView(
        path="/etc/mtpd/mtpd.toml",
        read_at="",
        watched=False,
        invalid_since="",
        problems=("x", "y"),
        needs_restart=(),
    )
    assert describe((ready,), QUIET, None, None) == f"{views.QWEN} at depth 2, resident"
    assert describe((), QUIET, None, None) == "no model is loaded"
    assert describe((views.engine("stopped"),), QUIET, None, None) == "no model is loaded"
    assert describe((ready, loading), busy, tune, file) == (
        f"{views.QWEN} at depth 2, resident; {views.QWEN} loading; 1 running, 2 waiting;"
        " tune running; the configuration on the disk has 2 error(s)"
    )


@given(st.text(), st.integers(0, 12))
def test_the_line_is_one_line_of_bounded_length_whatever_a_model_is_called(
    name: str, count: int
) -> None:
    named = dataclasses.replace(views.engine(), profile=name)
    line = describe((named,) * count, QUIET, None, None)
    assert line
    assert len(line) <= 200
    assert len(line.splitlines()) <= 1
