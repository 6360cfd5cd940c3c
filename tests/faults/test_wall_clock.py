"""A daemon whose wall clock jumps by more than a year, back and forth, while it works.

A real process under libfaketime, which answers ``CLOCK_REALTIME`` with what a file says and leaves
the other clocks alone. The simulation has the same fault for the core; here are the libraries, the
database, the listener and the log. The machine's zone is one with summer time, and some of the
moments lie in its missing hour, in its doubled one, and at a leap second.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import random
import re
import sqlite3
import time
from collections import Counter
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.house import home
from tests.fakes.script import Script
from tests.fakes.serve import serve
from tests.needs import libfaketime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.faketime, pytest.mark.slow, pytest.mark.timeout(900)]

SEED = int(os.environ.get("SEED", "20261130"))
AT_LEAST_S = 120.0 if "MTPD_ENDURANCE" in os.environ else 4.0
CLIENTS, STREAMS = 3, 12
WITHIN_S = 120.0
TTL_S = 3.0
PACED = Script(acceptance=(0.9, 0.7, 0.5), row_cost=0.41, tps0=400.0, realtime=True)

DAY_S: Final = 86_400
ZONE: Final = "Europe/Berlin"
MOMENTS: Final = tuple(
    dt.datetime.fromisoformat(one).timestamp()
    for one in (
        "2027-03-28T00:59:59Z",  # the zone's 2:00 to 3:00 does not exist
        "2027-10-31T00:59:59Z",  # its 2:00 to 3:00 is there twice
        "2016-12-31T23:59:59Z",  # a leap second follows
    )
)
DURATION = re.compile(r"(_s|_ms|_seconds|age|lag|duration|uptime|_tps|_per_s)$")
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")


class Wall:
    """The wall clock of one process, as a file says it."""

    def __init__(self, path: Path) -> None:
        self.path, self.offsets = path, [0.0]
        self.path.write_text("+0\n")
        self.chance = random.Random(SEED)  # noqa: S311

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": libfaketime() or "",
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "TZ": ZONE,
        }

    def jump(self) -> None:
        """Set it somewhere else."""
        here = self.chance.choice((*MOMENTS, None))
        offset = (
            self.chance.choice((-400, -1, 0, 1, 400)) * DAY_S
            if here is None
            else (round(here - time.time()))
        )
        self.set(offset)

    def set(self, offset_s: float) -> None:
        self.offsets.append(offset_s)
        other = self.path.with_suffix(".new")
        other.write_text(f"{offset_s:+.0f}\n")
        other.replace(self.path)

    async def jumps(self) -> None:
        while True:
            self.jump()
            await anyio.sleep(self.chance.uniform(0.02, 0.3))

    def knows(self, stamp: str, began: float) -> bool:
        """Whether it ever stood there, seen from a moment of the real clock."""
        at = dt.datetime.fromisoformat(stamp).timestamp()
        return any(began - 2 <= at - one <= time.time() + 2 for one in self.offsets)


@dataclass(slots=True)
class Watched:
    """A daemon under that clock, its owner's client, and its events."""

    daemon: Serving
    client: aiohttp.ClientSession
    owner: aiohttp.ClientSession
    events: list[dict[str, Any]] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    """When each came, by the real monotonic clock."""

    async def listen(self) -> None:
        async with self.owner.get("/mtpd/v1/events?after=0") as stream:
            assert stream.status == 200, await stream.text()
            async for line in stream.content:
                if line.startswith(b"data: ") and b'"seq"' in line and b'"event"' in line:
                    self.events.append(json.loads(line[6:]))
                    self.heard.append(time.monotonic())

    async def get(self, path: str) -> Any:
        async with self.owner.get(path) as reply:
            assert reply.status == 200, (path, await reply.text())
            return json.loads(await reply.text())

    async def order(self, path: str, **body: object) -> str:
        async with self.owner.post(path, json=body) as reply:
            assert reply.status in {200, 202}, await reply.text()
            return str((await reply.json())["id"])

    async def ended(self, operation: str) -> dict[str, Any]:
        with anyio.fail_after(WITHIN_S):
            while True:
                found: dict[str, Any] = await self.get(f"/mtpd/v1/operations/{operation}")
                if found["state"] in {"done", "failed", "cancelled"}:
                    return found
                await anyio.sleep(0.05)

    async def ask(self, number: int, outcomes: Counter[str]) -> None:
        """One stream to its end."""
        body = {"model": "alpha", "prompt": f"request {number}", "n_predict": 24, "stream": True}
        async with self.client.post("/completion", json=body) as reply:
            text = await reply.text()
        whole = reply.status == 200 and '"stop":true' in text.replace(" ", "")
        outcomes["whole" if whole else f"{reply.status}: {text[-200:]}"] += 1

    async def ask_for_ever(self, first: int, outcomes: Counter[str]) -> None:
        while True:
            first += CLIENTS
            await self.ask(first, outcomes)


@asynccontextmanager
async def under(wall: Wall, *, ttl_s: float) -> AsyncIterator[Watched]:
    async with (
        home(PACED, alpha=f"ttl_s = {ttl_s}") as place,
        serve(place, environment=wall.environment) as daemon,
    ):
        await daemon.until_serving()
        socket = aiohttp.UnixConnector(str(place.directories.control_socket(None)))
        async with (
            aiohttp.ClientSession(daemon.url) as client,
            aiohttp.ClientSession("http://localhost", connector=socket) as owner,
            anyio.create_task_group() as tasks,
        ):
            made = Watched(daemon, client, owner)
            tasks.start_soon(daemon.read_log)
            tasks.start_soon(made.listen)
            yield made
            tasks.cancel_scope.cancel()


@dataclass(slots=True)
class Told:
    """All that a daemon has said and written."""

    events: list[dict[str, Any]]
    log: list[dict[str, Any]]
    answers: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]
    metrics: str

    def everything(self) -> dict[str, Any]:
        return {"events": self.events, "log": self.log, **self.answers, **self.tables}


async def works(on: Watched, wall: Wall, outcomes: Counter[str]) -> int:
    """Requests and measurements while it jumps; how many measurements came to their end."""
    until_s, tuned = time.monotonic() + AT_LEAST_S, 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wall.jumps)
        for number in range(CLIENTS):
            tasks.start_soon(on.ask_for_ever, number, outcomes)
        while outcomes.total() < STREAMS:  # noqa: ASYNC110 - a count tells nobody
            await anyio.sleep(0.02)
        while tuned == 0 or time.monotonic() < until_s:
            ended = await on.ended(await on.order("/mtpd/v1/tune", **SWEEP))
            assert ended["state"] == "done", ended
            tuned += 1
        tasks.cancel_scope.cancel()
    return tuned


async def rests(on: Watched, wall: Wall, outcomes: Counter[str], days: int) -> float:
    """Seconds, by the real clock, until the model is unloaded for nobody asks for it.

    The clock is set anew as soon as that time has begun, and then whoever waits is woken up.
    """
    wall.set(0.0)
    await on.ask(0, outcomes)
    asked_s = time.monotonic()
    wall.set(days * DAY_S)
    await on.order("/mtpd/v1/reload")
    with anyio.fail_after(WITHIN_S):
        while not (gone := unloaded(on, asked_s)):  # noqa: ASYNC110 - events come
            await anyio.sleep(0.02)
    return gone[0] - asked_s


async def test_a_wall_clock_that_jumps_moves_no_timer_no_order_and_no_duration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wall, outcomes, began = Wall(tmp_path / "wall"), Counter[str](), time.time()
    async with under(wall, ttl_s=TTL_S) as on:
        tuned = await works(on, wall, outcomes)
        rested_s = [await rests(on, wall, outcomes, days) for days in (-400, 400)]
        told = await all_of(on)
    with capsys.disabled():
        jumps = len(wall.offsets)
        print(f" {jumps} jumps, {tuned} tunings, {outcomes['whole']} streams", end="")  # noqa: T201

    assert len({one["at"][:4] for one in told.events}) > 2, "the clock did not jump"
    assert set(outcomes) == {"whole"}, outcomes
    assert min(rested_s) >= TTL_S - 0.5, f"early: {rested_s}"
    assert max(rested_s) <= TTL_S + 40.0, f"stalled: {rested_s}"
    first = told.events[0]["seq"]
    assert [one["seq"] for one in told.events] == list(range(first, first + len(told.events)))
    states = {one["event"].get("new") for one in told.events}
    assert not states & {"backoff", "failed", "wedged"}
    assert not [one for one in told.log if one["level"] in {"error", "critical"}]
    nothing_is_negative(told)
    for where, value in told.everything().items():
        for name, stamp in stamps(value):
            assert wall.knows(stamp, began), (where, name, stamp)
    for table in ("decisions", "measurements", "operations"):
        keys = [int(row.get("number", row["id"])) for row in told.tables[table]]
        assert keys
        assert keys == sorted(keys), table


def nothing_is_negative(told: Told) -> None:
    seen = 0
    for where, value in told.everything().items():
        for name, number in numbers(value):
            assert number >= 0, (where, name, number)
            assert math.isfinite(number), (where, name, number)
            seen += 1
    assert seen > 30
    for family in text_string_to_metric_families(told.metrics):
        for sample in family.samples:
            if DURATION.search(family.name) or family.type in {"counter", "histogram"}:
                assert sample.value >= 0, sample


async def all_of(on: Watched) -> Told:
    answers = {path: await on.get(path) for path in ANSWERS}
    async with on.owner.get("/metrics") as reply:
        metrics = await reply.text()
    tables = dict(stored(on.daemon.place.directories.state / "mtpd.sqlite3"))
    log = [json.loads(line) for line in on.daemon.log.splitlines() if line.endswith(b"}")]
    return Told(list(on.events), log, answers, tables, metrics)


SWEEP: Final[dict[str, Any]] = {
    "subject": "alpha",
    "method": "sweep",
    "depths": [0, 1],
    "workloads": ["short"],
    "prompts": 1,
    "repetitions": 1,
    "max_tokens": 32,
    "apply": False,
}
ANSWERS: Final = (
    "/mtpd/v1/status",
    "/mtpd/v1/models",
    "/mtpd/v1/operations",
    "/mtpd/v1/decisions",
    "/mtpd/v1/measurements",
    "/mtpd/v1/gpu",
    "/mtpd/v1/history",
)


def unloaded(on: Watched, since_s: float) -> list[float]:
    """When the model was stopped for nobody asked for it, on the real monotonic clock."""
    return [
        heard_s
        for heard_s, one in zip(on.heard, on.events, strict=True)
        if heard_s > since_s
        and one["event"].get("new") == "stopping"
        and "nobody has asked for alpha" in one["event"]["reason"]
    ]


def stored(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every table with its rows, in the order in which they were written."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for table in tables:
            yield table, [dict(row) for row in db.execute(f"SELECT * FROM {table}")]  # noqa: S608


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with the name that it has, also those within JSON columns."""
    match value:
        case dict():
            for key, one in value.items():
                yield from leaves(one, key)
        case list():
            for one in value:
                yield from leaves(one, name)
        case str() if value[:1] in "{[" and value[:1]:
            try:
                yield from leaves(json.loads(value), name)
            except ValueError:
                yield name, value
        case _:
            yield name, value


def numbers(value: Any) -> Iterator[tuple[str, float]]:
    """Everything that is a duration or a rate by its name."""
    for name, one in leaves(value):
        if isinstance(one, int | float) and not isinstance(one, bool) and DURATION.search(name):
            yield name, one


def stamps(value: Any) -> Iterator[tuple[str, str]]:
    """Every moment that something happened at; the history begins before anything did."""
    for name, one in leaves(value):
        if isinstance(one, str) and STAMP.match(one) and name != "begin":
            yield name, one
