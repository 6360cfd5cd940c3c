"""Which model files are hashed, when, and what comes of it: real files, a real database."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.config.data import bundled_model
from mtpd.config.model import DrafterConfig
from mtpd.control.hashing import ModelHashes
from mtpd.engine.launch import LaunchPlanner
from mtpd.store.db import Database
from mtpd.store.files import FileDigests
from mtpd.units import HOST
from tests.fakes.clock import FakeClock
from tests.unit.control.made import BINARY, config, profile
from tuner.types import Drafter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, MutableMapping
    from pathlib import Path
    from typing import Any

    from mtpd.config.model import Profile

    Logs = list[MutableMapping[str, Any]]

SOON_S = 0.01


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def events(logs: Logs, name: str) -> list[Any]:
    return [entry["model"] for entry in logs if entry["event"] == name]


@dataclass
class Asked:
    """Whether the machine is busy, and what happens when somebody asks."""

    answer: bool = False
    times: int = 0
    at: list[float] = field(default_factory=list)
    on_ask: Callable[[], object] = lambda: None

    def __call__(self) -> bool:
        self.times += 1
        self.at.append(anyio.current_time())
        self.on_ask()
        return self.answer


class FullOnce:
    """A disk that is full at the first commit."""

    def __init__(self) -> None:
        self.hits = 0

    def hit(self, point: str) -> None:
        self.hits += point == "store.before_commit"
        if self.hits == 1:
            msg = "database or disk is full"
            raise sqlite3.OperationalError(msg)


def copied(folder: Path, name: str = "m.gguf", *, source: str = "tiny-chained.gguf") -> Path:
    path = folder / name
    shutil.copy(bundled_model(source), path)
    return path


def hashes(
    db: Database, folder: Path, *profiles: Profile, busy: Asked, delay_s: float = 0
) -> ModelHashes:
    settings = config(*profiles)
    planner = LaunchPlanner(
        config=settings,
        binary=BINARY,
        device=HOST,
        device_present=False,
        sockets=folder,
        home=folder,
        driver=None,
        power_cap_w=None,
        new_token=lambda: "0" * 32,
        free_port=lambda: 4711,
    )
    return ModelHashes(
        config=settings,
        planner=planner,
        digests=FileDigests(db=db, clock=FakeClock()),
        clock=FakeClock(),
        busy=busy,
        delay_s=delay_s,
        again_s=SOON_S,
    )


@asynccontextmanager
async def running(one: ModelHashes) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        yield
        tasks.cancel_scope.cancel()


async def known(one: ModelHashes, path: Path) -> str:
    """The file's hash, once it is known."""
    with anyio.fail_after(20):
        while (found := await one.sha256(str(path))) is None:  # noqa: ASYNC110  # a deadline
            await anyio.sleep(SOON_S)
    return found


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110  # a condition with a deadline
            await anyio.sleep(SOON_S)


@pytest.mark.slow
async def test_every_models_and_drafters_file_is_hashed_once_and_remembered(
    tmp_path: Path,
) -> None:
    model, other = copied(tmp_path), copied(tmp_path, "n.gguf", source="tiny-unchained.gguf")
    draft = tmp_path / "draft.gguf"
    draft.write_bytes(b"a drafter")
    drafter = DrafterConfig(kind=Drafter.MTP_FILE, max_depth=3, model=str(draft))
    profiles = (
        profile("a", model=str(model)),
        profile("same", model=str(model)),
        profile("b", model=str(other), drafter=drafter),
        profile("lost", model=str(tmp_path / "lost.gguf")),
    )
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        with capture_logs() as logs:
            one = hashes(db, tmp_path, *profiles, busy=Asked())
            async with running(one):
                for path in (draft, other, model):
                    assert await known(one, path) == sha256(path)
                assert await one.sha256(str(tmp_path / "lost.gguf")) is None
        assert events(logs, "model.hashed") == ["a", "b", "b"]
        assert logs[0]["sha256"] == sha256(model)
        assert logs[0]["seconds"] == 0.0
        asked = Asked()
        late = copied(tmp_path, "late.gguf")
        again = hashes(db, tmp_path, *profiles, profile("late", model=str(late)), busy=asked)
        with capture_logs() as logs:
            async with running(again):
                await known(again, late)
        assert events(logs, "model.hashed") == ["late"]


async def test_nothing_is_read_before_the_delay_is_over(tmp_path: Path) -> None:
    model, asked = copied(tmp_path), Asked()
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        one = hashes(db, tmp_path, profile("a", model=str(model)), busy=asked, delay_s=0.2)
        began = anyio.current_time()
        async with running(one):
            await known(one, model)
    assert asked.at[0] - began >= 0.2


@pytest.mark.slow
async def test_a_busy_machine_is_left_alone_until_it_is_idle(tmp_path: Path) -> None:
    model, asked = copied(tmp_path), Asked(answer=True)
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        one = hashes(db, tmp_path, profile("a", model=str(model)), busy=asked)
        async with running(one):
            await until(lambda: asked.times >= 3)
            assert await one.sha256(str(model)) is None
            asked.answer = False
            assert await known(one, model) == sha256(model)


async def test_a_file_that_is_replaced_while_it_is_read_is_hashed_in_the_next_round(
    tmp_path: Path,
) -> None:
    model, other = copied(tmp_path), copied(tmp_path, "n.gguf", source="tiny-unchained.gguf")
    coming = copied(tmp_path, "coming.gguf", source="tiny-unchained.gguf")

    def replace_once() -> None:
        if coming.exists():
            coming.replace(model)

    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        profiles = (profile("a", model=str(model)), profile("b", model=str(other)))
        one = hashes(db, tmp_path, *profiles, busy=Asked(on_ask=replace_once))
        with capture_logs() as logs:
            async with running(one):
                assert await known(one, model) == sha256(other)
        assert [entry["event"] for entry in logs] == [
            "model.not_hashed",
            "model.hashed",
            "model.hashed",
        ]
        assert logs[0]["reason"] == f"{model} changed while it was read"
        assert (logs[1]["model"], logs[2]["model"]) == ("b", "a")


@pytest.mark.slow
async def test_a_new_file_under_the_same_name_is_unknown_until_it_was_read(tmp_path: Path) -> None:
    model, asked = copied(tmp_path), Asked()
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        one = hashes(db, tmp_path, profile("a", model=str(model)), busy=asked)
        async with running(one):
            first = await known(one, model)
            asked.answer = True
            copied(tmp_path, source="tiny-unchained.gguf")
            assert await one.sha256(str(model)) is None
            asked.answer = False
            assert await known(one, model) != first


async def test_what_goes_wrong_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    model, faults = copied(tmp_path), FullOnce()
    async with await Database.open(tmp_path / "db", FakeClock(), faults=faults) as db:
        profiles = (profile("a", model=str(model)), profile("p", model=str(pipe)))
        one = hashes(db, tmp_path, *profiles, busy=Asked())
        with capture_logs() as logs:
            async with running(one):
                assert await known(one, model) == sha256(model)
                os.utime(model, ns=(1, 1))
                await known(one, model)
        refused, not_a_file = (e for e in logs if e["event"] == "model.not_hashed")
        assert "disk is full" in refused["reason"]
        assert not_a_file["reason"] == f"{pipe} cannot be hashed: it is not a regular file"
        assert refused["hint"]
        assert not_a_file["hint"]


async def test_a_known_hash_joins_what_the_fingerprint_stands_for_but_not_its_digest(
    tmp_path: Path,
) -> None:
    model = copied(tmp_path)
    draft = copied(tmp_path, "draft.gguf", source="tiny-unchained.gguf")
    drafter = DrafterConfig(kind=Drafter.MTP_FILE, max_depth=3, model=str(draft))
    which = profile("a", model=str(model), drafter=drafter)
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        one = hashes(db, tmp_path, which, busy=Asked())
        digest = one._planner.fingerprint(which).digest
        before = await one.fields("a", digest)
        async with running(one):
            await known(one, draft)
        after = await one.fields("a", digest)
        assert one._planner.fingerprint(which).digest == digest
        assert before is not None
        assert after == before | {"model_sha256": sha256(model), "draft_sha256": sha256(draft)}
        assert "model_sha256" not in before
        os.utime(model, ns=(1, 1))
        assert await one.fields("a", digest) is None
