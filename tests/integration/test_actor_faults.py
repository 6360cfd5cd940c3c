"""An actor whose surroundings fail: the kernel, the ledger, a listener, a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.errors import StoreError
from mtpd.supervise.identity import pids_of
from mtpd.supervise.spawn import Exit
from tests.fakes.supervision import (
    MemoryLedger,
    Stage,
    hurried,
    plan_of,
    tiny,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtpd.supervise.output import Output
    from mtpd.types import Command
    from mtpd.units import EngineId


class Refusal:
    """Fails at one named point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def hit(self, point: str) -> None:
        if point == self._point:
            msg = f"injected at {point}"
            raise OSError(msg)


@pytest.mark.parametrize("point", ["spawn.before", "spawn.after_intent"])
async def test_what_fails_before_the_fork_leaves_no_process_and_no_open_row(
    tmp_path: Path, point: str
) -> None:
    stage = Stage(faults=Refusal(point))
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        view = await actor.settled()
        assert (view.state, view.pid) == ("backoff", None)
        assert view.failure is not None
        assert view.failure.reason.endswith(f"injected at {point}")
    intents = [note[1] for note in stage.ledger.notes if note[0] == "intend"]
    ends = [note[1] for note in stage.ledger.notes if note[0] == "ended"]
    assert intents == ends


class Frozen:
    """A process that the kernel does not let go of, until ``thaw``."""

    pid, start_ticks = 4711, 1

    def __init__(self, on_exit: Callable[[Exit], None]) -> None:
        self.signals: list[int] = []
        self._on_exit, self._closed = on_exit, anyio.Event()

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def catch_up(self) -> None:
        """Print nothing."""

    async def closed(self) -> None:
        await self._closed.wait()

    def thaw(self) -> None:
        self._closed.set()
        self._on_exit(Exit(-9))


class FrozenSpawner:
    """Makes frozen processes."""

    def __init__(self) -> None:
        self.children: list[Frozen] = []

    def spawn(
        self, command: Command, *, engine_id: str, output: Output, on_exit: Callable[[Exit], None]
    ) -> Frozen:
        self.children.append(Frozen(on_exit))
        return self.children[-1]


async def test_a_wedged_process_blocks_its_place_until_it_ends(tmp_path: Path) -> None:
    spawner = FrozenSpawner()
    stage = Stage(sleep=hurried, spawner=spawner)
    (tmp_path / "ready").touch()
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        await until(lambda: actor.view().state == "loading")
        actor.stop("asked")
        assert (await actor.settled()).state == "wedged"
        assert spawner.children[0].signals == [15, 15, 9]
        actor.start(tiny(tmp_path))
        assert (await actor.settled()).state == "wedged"
        spawner.children[0].thaw()
        await until(lambda: len(spawner.children) == 2)
        spawner.children[1].thaw()
        assert (await actor.settled()).state == "backoff"


async def test_the_daemon_ends_although_a_process_is_wedged(tmp_path: Path) -> None:
    stage = Stage(sleep=hurried, spawner=FrozenSpawner())
    with anyio.fail_after(5):
        async with stage.running() as actor:
            actor.start(tiny(tmp_path))
            await until(lambda: actor.view().state == "loading")
    assert actor.view().state == "wedged"
    actor.start(tiny(tmp_path))  # too late: nothing happens, nobody waits for ever
    assert (await actor.settled()).state == "wedged"


async def test_an_actor_that_fails_takes_its_process_with_it(tmp_path: Path) -> None:
    def refuse(event: object) -> None:
        if getattr(event, "new", "") == "ready":
            msg = "a defect in a listener"
            raise ValueError(msg)

    stage = Stage(on_event=refuse)
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError), flatten_subgroups=True):
        async with stage.running() as actor:
            actor.start(tiny(tmp_path))
            await anyio.sleep_forever()
    await until(lambda: not pids_of(stage.first))


async def test_an_impossible_environment_is_a_configuration_error(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.running() as actor:
        actor.start(plan_of("/bin/true", "nul\0byte", path=tmp_path / "ready"))
        view = await actor.settled()
    assert view.failure is not None
    assert (view.state, view.failure.failure) == ("failed", "config")
    assert stage.ledger.notes == [("intend", stage.first), ("ended", stage.first, "None")]


class FullDisk(MemoryLedger):
    """Takes the intent, and nothing after it."""

    async def spawned(self, engine_id: EngineId, pid: int, start_ticks: int) -> None:
        raise StoreError("the disk is full")

    async def ended(self, engine_id: EngineId, code: int | None) -> None:
        raise StoreError("the disk is full")


async def test_a_ledger_that_fails_after_the_intent_does_not_end_the_engine(
    tmp_path: Path,
) -> None:
    stage = Stage(ledger=FullDisk())
    async with stage.running() as actor:
        actor.start(tiny(tmp_path))
        assert (await actor.settled()).state == "ready"
        actor.stop("asked")
        assert (await actor.settled()).state == "stopped"


class FullForAWhile(MemoryLedger):
    """Takes nothing until there is space."""

    space = False

    async def intend(self, engine_id: EngineId, **row: Any) -> None:
        if not self.space:
            raise StoreError("the disk is full", hint="free disk space")
        await super().intend(engine_id, **row)


async def test_a_full_disk_is_no_failure_of_the_engine_and_the_next_start_tries_again(
    tmp_path: Path,
) -> None:
    ledger = FullForAWhile()
    stage = Stage(ledger=ledger)
    async with stage.running() as actor:
        for _ in range(12):  # more than any breaker tolerates
            actor.start(tiny(tmp_path))
            view = await actor.settled()
            assert view.failure is not None
            assert (view.state, view.failure.failure) == ("failed", "store")
            assert (view.failure.reason, view.failure.hint) == (
                "the disk is full",
                "free disk space",
            )
        ledger.space = True
        actor.start(tiny(tmp_path))
        assert (await actor.settled()).state == "ready"
