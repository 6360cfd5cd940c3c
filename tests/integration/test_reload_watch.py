"""Configurations that are saved while they are watched."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import anyio

from mtpd.config.disk import ConfigOnDisk
from mtpd.config.live import LiveConfig
from mtpd.config.load import load
from mtpd.control.reload import QUIET_S, Reloader
from tests.fakes.board import until
from tests.fakes.clock import FakeClock
from tests.fakes.operations import lane
from tests.fakes.values import decision_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.config.diff import Changes
    from mtpd.config.model import Config
    from mtpd.control.applying import Applying
    from mtpd.control.recorder import StoreRecorder
    from mtpd.events import Event
    from mtpd.operations import Operations
    from mtpd.proxy.outcomes import Renewal
    from mtpd.store.journal import Journal
    from mtpd.views import DecisionView
    from tuner.types import Decision

TEXT = """
[server]
watch_config = {watch}
max_waiting = {waiting}
[models.alpha]
model = "/m.gguf"
"""


@dataclass
class Desk:
    """A reloader over real files and a real lane; what it applies is only put into force.

    Attributes:
        looks: How often the files were looked at.
        applied: How often a configuration was applied.
    """

    path: Path
    clock: FakeClock
    live: LiveConfig
    operations: Operations
    events: list[Event] = field(default_factory=list)
    looks: int = 0
    applied: int = 0
    decided: list[Decision] = field(default_factory=list)

    async def apply(self, _changes: Changes, config: Config) -> tuple[Renewal, ...]:
        self.applied += 1
        self.live.replace(config)
        return ()

    async def decide(self, decision: Decision, **_more: object) -> DecisionView:
        self.decided.append(decision)
        return decision_view()

    async def outcome(self, _number: int, _text: str) -> None:
        return

    def save(self, waiting: int, *, watch: bool = True) -> None:
        self.path.write_text(TEXT.format(waiting=waiting, watch=str(watch).lower()))

    async def seen(self) -> None:
        """Wait until the files were looked at after this."""
        before = self.looks
        await until(lambda: self.looks >= before + 2)

    async def rest(self) -> None:
        """Wait until what was saved has been seen, and let the quiet period pass."""
        await self.seen()
        self.clock.advance(QUIET_S)
        await self.seen()


class Counted(ConfigOnDisk):
    """Counts the looks."""

    desk: Desk

    def stamp(self, sources: object) -> frozenset[tuple[str, int, int, int]]:
        found = super().stamp(cast("tuple[str, ...]", sources))
        self.desk.looks += 1
        return found


@asynccontextmanager
async def desk(tmp_path: Path, *, watch: bool = True) -> AsyncIterator[tuple[Desk, Reloader]]:
    path = tmp_path / "mtpd.toml"
    path.write_text(TEXT.format(waiting=1, watch=str(watch).lower()))
    async with lane(tmp_path / "state.sqlite3") as made:
        held = Desk(path, FakeClock(), LiveConfig(load(path)), made.operations)

        class Disk(Counted):
            desk = held

        reloader = Reloader(
            disk=Disk(path, lambda: load(path)),
            live=held.live,
            applying=cast("Applying", held),
            engines=lambda: (),
            operations=made.operations,
            recorder=cast("StoreRecorder", held),
            journal=cast("Journal", held),
            publish=held.events.append,
            clock=held.clock,
            look_s=0.002,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reloader.watch)
            yield held, reloader
            tasks.cancel_scope.cancel()


async def test_ten_saves_in_two_seconds_are_one_reload(tmp_path: Path) -> None:
    async with desk(tmp_path) as (held, _):
        await held.seen()
        for number in range(10):
            held.save(100 + number)
            await held.seen()
            held.clock.advance(QUIET_S / 10)
        assert held.applied == 0
        await held.rest()
        await until(lambda: held.live.server.max_waiting == 109)
        await held.rest()
        assert held.applied == 1
        (decision,) = held.decided
        assert (str(decision.act), decision.subject) == ("reload", "configuration")


async def test_what_is_saved_without_a_difference_is_no_operation(tmp_path: Path) -> None:
    async with desk(tmp_path) as (held, _):
        await held.seen()
        held.save(1)
        await held.rest()
        await held.rest()
        assert held.applied == 0
        assert await held.operations.list() == ()


async def test_an_invalid_file_is_told_once_per_save_and_the_next_good_one_is_applied(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as (held, reloader):
        await held.seen()
        held.path.write_text("[server]\nmax_wating = 3\n")
        await held.rest()
        await until(lambda: held.events)
        await held.rest()
        assert len(held.events) == 1
        view = reloader.view()
        assert view is not None
        assert view.invalid_since is not None
        assert f"{held.path}:2: server.max_wating" in view.problems[0]
        assert held.applied == 0
        held.save(5)
        await held.rest()
        await until(lambda: held.live.server.max_waiting == 5)
        view = reloader.view()
        assert view is not None
        assert (view.invalid_since, view.problems) == (None, ())


async def test_nothing_is_looked_at_until_watching_is_configured(tmp_path: Path) -> None:
    async with desk(tmp_path, watch=False) as (held, reloader):
        held.save(7)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert held.looks == 0
        await reloader.start()
        await until(lambda: held.live.server.max_waiting == 7)
        assert held.live.server.watch_config
        await held.seen()
        held.save(8)
        await held.rest()
        await until(lambda: held.live.server.max_waiting == 8)
