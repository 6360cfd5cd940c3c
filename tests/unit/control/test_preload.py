"""What the configuration names is loaded at the start; clients come first."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mtpd.bus import Bus
from mtpd.config.model import Config, Pool, ServerConfig
from mtpd.control.choices import Choices
from mtpd.control.preload import Preloader
from mtpd.control.recorder import StoreRecorder
from mtpd.store.db import Database
from mtpd.store.journal import DecisionFilter, Journal
from mtpd.store.samples import Measurements
from tests.fakes.actors import Fails
from tests.fakes.board import Bench, bench, clients, until
from tests.unit.control.made import profile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.views import Json


async def undescribed(_profile: str, _fingerprint: str) -> dict[str, Json] | None:
    return None


@asynccontextmanager
async def preloader(
    folder: Path, made: Bench, *names: str
) -> AsyncIterator[tuple[Preloader, Journal]]:
    config = Config(
        server=ServerConfig(preload=names),
        profiles={"a": profile("a", aliases=("first",)), "b": profile("b", depth=2)},
        pools={"pool": Pool(name="pool", members=("b",))},
    )
    async with await Database.open(folder / "state.sqlite3", made.clock) as db:
        journal = Journal(db=db, clock=made.clock)
        recorder = StoreRecorder(
            measurements=Measurements(db=db, clock=made.clock),
            journal=journal,
            bus=Bus(boot="b", clock=made.clock),
            describe=undescribed,
        )
        yield (
            Preloader(
                config=config,
                choices=Choices(config),
                bring_up=made.board.bring_up,
                recorder=recorder,
                journal=journal,
            ),
            journal,
        )


async def told(journal: Journal) -> list[tuple[str, str, str | None]]:
    """Act, subject and outcome of every decision, the first one first."""
    rows = await journal.list(DecisionFilter(limit=9))
    return [(row.act, row.subject, row.outcome) for row in rows]


async def test_models_are_loaded_by_any_of_their_names(tmp_path: Path) -> None:
    async with bench() as made, preloader(tmp_path, made, "first") as (preload, journal):
        await preload.run()
        assert made.serving() == ["a@0"]
        assert await told(journal) == [("load", "a", "loaded")]
        (row,) = await journal.list(DecisionFilter(limit=1))
        assert row.reason == "first is to be loaded when the daemon starts (server.preload)"


async def test_a_pool_stands_for_its_member(tmp_path: Path) -> None:
    async with bench() as made, preloader(tmp_path, made, "pool", "gone") as (preload, journal):
        await preload.run()
        assert made.serving() == ["b@0"]
        assert await told(journal) == [("load", "b", "loaded")]


async def test_one_that_fails_is_told_and_the_next_one_loaded(tmp_path: Path) -> None:
    async with bench() as made, preloader(tmp_path, made, "a", "b") as (preload, journal):
        made.actor("a").script.append(Fails())
        await preload.run()
        assert made.serving() == ["b@0"]
        assert await told(journal) == [
            ("load", "a", "not loaded: the model file is truncated"),
            ("load", "b", "loaded"),
        ]


async def test_a_model_that_a_client_uses_is_not_replaced(tmp_path: Path) -> None:
    async with bench() as made, preloader(tmp_path, made, "b") as (preload, journal):
        async with clients(made, "a") as (running,):
            await until(lambda: running.lease)
            await preload.run()
            assert made.serving() == ["a@0"]
        ((_, _, outcome),) = await told(journal)
        assert outcome is not None
        assert outcome.startswith("not loaded: b is not brought up")
