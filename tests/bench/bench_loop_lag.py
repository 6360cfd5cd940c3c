"""How late the daemon's event loop is, while it does what it has to do.

Run as ``python -m tests.bench.bench_loop_lag [--seconds N] [--only WORD] [--stacks MS]``; measured,
never asserted. The daemon is ``mtpd serve``; its own lag watch looks every 5 ms, and beside it a
process of its own asks the control socket for ``/healthz`` every 20 ms. The engine is a scripted
one, so all share the machine's cores: what a machine that is too busy adds is in the figures.
With ``--stacks`` it is also shown where the loop stood when it was late by so much.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import statistics
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import anyio

from tests.bench.bench_proxy import PACES, PROGRAM, STREAMS, TOKENS_PER_S
from tests.bench.host import machine
from tests.bench.load import Client
from tests.fakes.binary import fake_binary
from tests.fakes.house import home, write_config
from tests.fakes.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

MEASUREMENTS, DECISIONS = 20_000, 2_000
"""Rows of a year: a tuning a day, and what the policy did besides."""
READERS = 8
GOALS_MS = {"64 streams": 20, "flood": 50}
POLLED = (
    "/metrics",
    "/mtpd/v1/status",
    "/mtpd/v1/history?since_s=86400&step_s=1",
    "/mtpd/v1/logs?tail=1000",
    "/mtpd/v1/decisions?limit=1000",
    "/mtpd/v1/measurements?limit=1000",
    "/mtpd/v1/operations?limit=1000",
    "/mtpd/v1/models",
    "/mtpd/v1/explain",
    "/mtpd/v1/report",
    "/mtpd/v1/config",
    "/mtpd/v1/openapi.json",
    "/mtpd/v1/gpu",
    "/mtpd/v1/live",
    "/v1/models",
    "/",
)


@dataclass(frozen=True, slots=True)
class Act:
    """What the daemon did for a while.

    Attributes:
        waited: Part of the time that the loop's thread could run and had no processor.
    """

    name: str
    begin: float
    end: float
    waited: float
    note: str


@dataclass(slots=True)
class Bench:
    """One daemon under watch.

    Attributes:
        acts: What was done to it, in order.
    """

    daemon: Serving
    seconds: float
    only: str
    acts: list[Act] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.daemon.url.rpartition(":")[2])

    async def act(self, name: str, doing: Callable[[], Awaitable[str]]) -> None:
        """Do something and note when."""
        if self.only not in name:
            return
        begin, before = time.monotonic(), self._waited_s()
        note = await doing()
        end = time.monotonic()
        waited = (self._waited_s() - before) / (end - begin)
        self.acts.append(Act(name, begin, end, waited, note))
        sys.stderr.write(f"{name}: {note}\n")
        await anyio.sleep(0.3)

    def _waited_s(self) -> float:
        pid = self.daemon.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9

    async def rest(self) -> str:
        """Nothing."""
        await anyio.sleep(self.seconds)
        return ""

    async def streams(self, pace: str) -> str:
        """64 at once."""
        clients = [Client(self.port) for _ in range(STREAMS)]
        count = int(self.seconds * TOKENS_PER_S)
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(client.ask, pace, count)
        took = time.monotonic() - began
        for client in clients:
            client.close()
        return f"{STREAMS * count / took:.0f} tokens/s"

    async def flood(self, kind: str, many: int) -> str:
        """Have the engine print."""
        client = Client(self.port)
        began = time.monotonic()
        printed = await client.ask(kind, many)
        client.close()
        return f"{printed.tokens / (time.monotonic() - began):.0f} MB/s"

    async def poll(self, path: str, most_s: float) -> str:
        """One client that asks again at once."""
        asked = size = 0
        until = time.monotonic() + most_s
        async with aiohttp.ClientSession(self.daemon.url) as client:
            while time.monotonic() < until or not asked:
                async with client.get(path) as reply:
                    size = len(await reply.read())
                    if reply.status != 200:
                        return f"status {reply.status}"
                asked += 1
        return f"{asked / most_s:.0f}/s of {size / 1000:.0f} kB"

    async def both(self, path: str) -> str:
        """64 streams, and a client that polls."""
        notes: list[str] = []

        async def streams() -> None:
            notes.append(await self.streams("step"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.poll, path, self.seconds)
            tasks.start_soon(streams)
        return notes[0]

    async def beside(self, doing: Callable[[], Awaitable[str]]) -> str:
        """Something, with dashboards open."""
        async with (
            aiohttp.ClientSession(self.daemon.url) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(READERS):
                tasks.start_soon(_read, client, "/mtpd/v1/events?after=0")
                tasks.start_soon(_read, client, "/mtpd/v1/logs?follow=true&tail=1000")
            note = await doing()
            tasks.cancel_scope.cancel()
        return note

    async def operate(self, path: str, body: Mapping[str, object]) -> str:
        """Run an operation to its end."""
        control = aiohttp.UnixConnector(str(control_socket(self.daemon.place)))
        async with aiohttp.ClientSession("http://localhost", connector=control) as client:
            async with client.post(path, json=body) as reply:
                view = await reply.json()
                assert reply.status == 202, view
            while view["state"] not in {"done", "failed", "cancelled"}:
                await anyio.sleep(0.1)
                async with client.get(f"/mtpd/v1/operations/{view['id']}") as reply:
                    view = await reply.json()
        return str(view["state"])


async def _read(client: aiohttp.ClientSession, path: str) -> None:
    async with client.get(path) as reply:
        async for _ in reply.content.iter_any():
            pass


@asynccontextmanager
async def watched(
    place: Home, stacks: float, seconds: float, only: str
) -> AsyncIterator[tuple[Bench, list[list[str]]]]:
    """A daemon; afterwards the rows of what was done to it."""
    found: list[list[str]] = []
    lags = place.root / "lags"
    program = ("-m", "tests.bench.watched_daemon", str(lags), str(stacks))
    async with serve(place, program=program) as daemon:
        await daemon.until_serving()
        bench = Bench(daemon, seconds, only)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon.read_log)
            async with prober(place) as took:
                yield bench, found
            daemon.process.send_signal(signal.SIGTERM)
            await daemon.process.wait()
            tasks.cancel_scope.cancel()
        late = moments(lags.read_text())
        found.extend(row(act, late, took) for act in bench.acts)
        if stacks:
            sys.stdout.write(lags.with_name("lags.stacks").read_text())


def control_socket(place: Home) -> Path:
    """Where the daemon takes orders."""
    (found,) = place.directories.runtime.glob("*control*.sock")
    return found


@asynccontextmanager
async def prober(place: Home) -> AsyncIterator[list[tuple[float, ...]]]:
    """Asks from outside; the answers are there once the block has ended."""
    argv = [sys.executable, "-m", "tests.bench.prober", str(control_socket(place))]
    took: list[tuple[float, ...]] = []
    async with await anyio.open_process(argv, stderr=None) as process:
        said = bytearray()

        async def hear() -> None:
            nonlocal said
            assert process.stdout is not None
            with suppress(anyio.ClosedResourceError):
                async for data in process.stdout:
                    said += data

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear)
            try:
                yield took
            finally:
                process.kill()
        took.extend(moments(said.decode().rpartition("\n")[0]))


def moments(text: str) -> list[tuple[float, ...]]:
    """Seconds: a moment, and what was measured then, one a line."""
    return [tuple(map(float, line.split())) for line in text.splitlines()]


def row(act: Act, late: list[tuple[float, ...]], took: list[tuple[float, ...]]) -> list[str]:
    """One line of the table."""
    waited = f"{100 * act.waited:.0f}"
    figures = (quantiles(act, late, 1), quantiles(act, late, 2), waited, quantiles(act, took, 1))
    return [act.name, *figures, act.note]


def quantiles(act: Act, found: list[tuple[float, ...]], column: int) -> str:
    """p50, p99 and the most in milliseconds."""
    values = [1000 * one[column] for one in found if act.begin <= one[0] <= act.end]
    if len(values) < 2:
        return ""
    cuts = statistics.quantiles(values, n=100)
    return f"{cuts[49]:.1f} / {cuts[98]:.1f} / {max(values):.1f}"


async def loads(bench: Bench) -> None:
    """What a daemon does all day, and what an engine may do to it."""
    await bench.act("at rest", bench.rest)
    for pace, kind in PACES.items():
        await bench.act(f"64 streams, {pace}", lambda kind=kind: bench.streams(kind))  # type: ignore[misc]
    time_s = int(bench.seconds)
    await bench.act("flood of lines", lambda: bench.flood("lines", time_s))
    await bench.act("flood, one line of 100 MB", lambda: bench.flood("line", 100))
    await bench.act("flood of binary garbage", lambda: bench.flood("garbage", time_s))
    both = f"{READERS} dashboards"
    await bench.act(f"{both} at rest", lambda: bench.beside(bench.rest))
    await bench.act(f"{both}, 64 streams", lambda: bench.beside(lambda: bench.streams("step")))
    await bench.act(f"{both}, flood", lambda: bench.beside(lambda: bench.flood("lines", time_s)))


async def year(bench: Bench) -> None:
    """What is read with the rows of a year."""
    for path in POLLED:
        await bench.act(f"poll {path}", lambda path=path: bench.poll(path, 2.0))  # type: ignore[misc]
    for path in ("/mtpd/v1/report", "/mtpd/v1/decisions?limit=1000"):
        await bench.act(f"64 streams, poll {path}", lambda path=path: bench.both(path))  # type: ignore[misc]
    tune = {"subject": "alpha"}
    await bench.act("tune", lambda: bench.operate("/mtpd/v1/tune", tune))
    await bench.act("switch", lambda: bench.operate("/mtpd/v1/switch", {"model": "beta"}))


def grow(file: Path) -> None:
    """Copy what the tunings stored until it is a year's."""
    with sqlite3.connect(file) as conn:
        for table, most in (("measurements", MEASUREMENTS), ("decisions", DECISIONS)):
            names = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(name for name in names if name != "id")
            count, last = conn.execute(f"SELECT count(*), max(id) FROM {table}").fetchone()  # noqa: S608
            for number in range(1, 1 + most // count):
                conn.execute(
                    f"INSERT INTO {table} (id, {columns})"  # noqa: S608
                    f" SELECT id + {number * last}, {columns} FROM {table} WHERE id <= {last}"
                )
                if table == "decisions":
                    conn.execute(
                        "INSERT INTO decision_measurements"  # noqa: S608
                        f" SELECT decision_id + {number * last}, position, measurement_id"
                        f" FROM decision_measurements WHERE decision_id <= {last}"
                    )


async def measure(seconds: float, only: str, stacks: float) -> list[list[str]]:
    """All of it; the rows of the table."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(home())
        binary = fake_binary(place.root / "paced-server", program=PROGRAM)
        write_config(place, binary=str(binary), alpha=f"slots = {STREAMS}")
        text = place.config.read_text().replace("context = 2048", f"context = {STREAMS * 256}", 1)
        place.config.write_text(text)
        async with watched(place, stacks, seconds, only) as (bench, first):
            await bench.operate("/mtpd/v1/load", {"model": "alpha"})
            await loads(bench)
            await bench.operate("/mtpd/v1/tune", {"subject": "both"})
        grow(place.directories.state / "mtpd.sqlite3")
        async with watched(place, stacks, seconds, only) as (bench, second):
            await bench.operate("/mtpd/v1/load", {"model": "alpha"})
            await year(bench)
        return first + second


HEAD = (
    *("what; p50 / p99 / max in ms", "lag", "lag less waits for a core"),
    *("time without a core, %", "/healthz", ""),
)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each act")
    parser.add_argument("--only", default="", help="acts with this in their name")
    parser.add_argument("--stacks", type=float, default=0.0, help="ms from which on to look")
    asked, _ = parser.parse_known_args()
    before = os.getloadavg()[0]
    rows = anyio.run(measure, asked.seconds, asked.only, asked.stacks)
    told = {"bench": "loop_lag", "machine": machine(), "load_average": before, "rows": rows}
    sys.stdout.write(json.dumps(told) + "\n")
    for cells in (HEAD, ["---"] * len(HEAD), *rows):
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
    goals = ", ".join(f"{name}: p99 {ms} ms" for name, ms in GOALS_MS.items())
    sys.stdout.write(f"goals: {goals}\n")


if __name__ == "__main__":
    main()
