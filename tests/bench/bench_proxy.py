"""What the relay adds, side by side: an engine without a proxy, nginx before it, and mtpd.

Run as ``python -m tests.bench.bench_proxy [--seconds N] [--rounds N]``; measured, never
asserted. mtpd is ``mtpd serve`` with everything that belongs to it. The rivals take turns within
every round, so that a machine that is busy for a while is busy for all of them. llama.cpp's
router is not among them: it starts the engines that it serves itself, from its own binary, so it
cannot be put before a scripted one, and the embedded engine has no router.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import psutil

from mtpd.config.data import bundled_model
from mtpd.listen import free_port
from tests.bench.host import machine
from tests.bench.load import Client
from tests.bench.nginx import nginx, nginx_binary
from tests.fakes.binary import fake_binary
from tests.fakes.house import home, write_config
from tests.fakes.serve import reached, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

PROGRAM = Path(__file__).with_name("paced_engine.py")
STREAMS = 64
CLIENTS = 32
ALONE = 200
EACH = 12
THINK_S = 0.32
"""32 clients that pause so long on average ask 100 times a second together."""
TOKENS_PER_S = 50
EDGE = 0.15
"""The part of a run at either end in which streams begin and end."""
PACES = {"together": "step", "apart": "own"}
"""What the engine calls them, by what we do."""
GOALS = "goals: 0.5 ms over nginx at p50, 0.99 of direct, 25 us per chunk"


@dataclass(slots=True)
class Rival:
    """One way to reach an engine, and what was measured on it.

    Attributes:
        pid: Of the process whose time counts, or None where there is none between.
        alone, many: Milliseconds to the first byte with one client, and with 32.
        tps: Tokens per second over 64 streams, by pace, one figure a round.
        cpu_us: Processor time per relayed chunk, likewise.
    """

    name: str
    port: int
    pid: int | None
    alone: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    tps: dict[str, list[float]] = field(default_factory=lambda: {pace: [] for pace in PACES})
    cpu_us: dict[str, list[float]] = field(default_factory=lambda: {pace: [] for pace in PACES})

    def cpu_s(self) -> float:
        """Processor time of its process so far."""
        if self.pid is None:
            return 0.0
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def row(self) -> Mapping[str, object]:
        """Its figures."""
        rss = None if self.pid is None else psutil.Process(self.pid).memory_info().rss / 1e6
        cut_alone, cut_many = quantiles(self.alone), quantiles(self.many)
        return {
            "first_byte_ms": {"p50": cut_alone[0], "p99": cut_alone[1]},
            f"first_byte_ms_{CLIENTS}_clients": {"p50": cut_many[0], "p99": cut_many[1]},
            **{f"tps_{pace}": round(statistics.median(self.tps[pace]), 1) for pace in PACES},
            **{
                f"cpu_us_per_chunk_{pace}": self.pid
                and round(statistics.median(self.cpu_us[pace]), 1)
                for pace in PACES
            },
            "rss_mb": rss and round(rss, 1),
        }


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(values, n=100)
    return round(statistics.median(values), 2), round(cuts[98], 2)


async def first_bytes(rival: Rival) -> None:
    """One client that asks at once again, then many that pause."""
    client = Client(rival.port)
    for _ in range(ALONE):
        rival.alone.append(1000 * (await client.ask("none", 1)).first_byte_s)
    client.close()
    rng = random.Random(7)  # noqa: S311 - the same pauses for everybody
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            pauses = [rng.expovariate(1 / THINK_S) for _ in range(EACH)]
            tasks.create_task(_pausing(rival, pauses))


async def _pausing(rival: Rival, pauses: list[float]) -> None:
    client = Client(rival.port)
    for pause in pauses:
        await asyncio.sleep(pause)
        rival.many.append(1000 * (await client.ask("none", 1)).first_byte_s)
    client.close()


async def streams(rival: Rival, pace: str, seconds: float) -> None:
    """64 streams at once for some seconds; the time of a chunk is taken between their ends."""
    clients = [Client(rival.port) for _ in range(STREAMS)]
    asked = int(seconds * TOKENS_PER_S)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(client.ask(PACES[pace], asked)) for client in clients]
        await asyncio.sleep(seconds * EDGE)
        before, tokens_before = rival.cpu_s(), sum(client.tokens for client in clients)
        await asyncio.sleep(seconds * (1 - 2 * EDGE))
        after, tokens_after = rival.cpu_s(), sum(client.tokens for client in clients)
    took = loop.time() - began
    tokens = sum(task.result().tokens for task in asking)
    assert tokens == STREAMS * asked, f"{rival.name} lost events"
    rival.tps[pace].append(tokens / took)
    rival.cpu_us[pace].append(1e6 * (after - before) / (tokens_after - tokens_before))
    for client in clients:
        client.close()


@asynccontextmanager
async def rivals() -> AsyncIterator[list[Rival]]:
    """All of them, ready."""
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(home())
        binary = fake_binary(place.root / "paced-server", program=PROGRAM)
        write_config(place, binary=str(binary), alpha=f"slots = {STREAMS}")
        text = place.config.read_text().replace("context = 2048", f"context = {STREAMS * 256}", 1)
        place.config.write_text(text)
        port = await stack.enter_async_context(engine(binary))
        found = [Rival("direct", port, None)]
        daemon = await stack.enter_async_context(serve(place))
        await daemon.until_serving()
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(drain, daemon)
        mtpd = Rival("mtpd", int(daemon.url.rpartition(":")[2]), daemon.process.pid)
        first = Client(mtpd.port)
        await first.ask("none", 1)
        first.close()
        program = nginx_binary()
        if program is None:
            sys.stdout.write("nginx is not available here (tests/bench/get_nginx.sh fetches it)\n")
        else:
            ready = nginx(program, engine_socket(place), place.root)
            found.append(Rival("nginx", *await stack.enter_async_context(ready)))
        yield [*found, mtpd]


@asynccontextmanager
async def engine(binary: Path) -> AsyncIterator[int]:
    """The paced engine on a port of its own."""
    port = free_port()
    argv = [str(binary), "--host", "127.0.0.1", "--port", str(port), "--parallel", str(STREAMS)]
    argv += ["--model", str(bundled_model("tiny-chained.gguf"))]
    quiet = subprocess.DEVNULL
    async with await anyio.open_process(argv, stdout=quiet, stderr=quiet) as process:
        try:
            with anyio.fail_after(30):
                while not reached(f"http://127.0.0.1:{port}"):  # noqa: ASYNC110 - tells nobody
                    await anyio.sleep(0.05)
            yield port
        finally:
            process.kill()


def engine_socket(place: Home) -> Path:
    """Where the engine that mtpd started listens."""
    control = {path for path in place.directories.runtime.glob("*.sock") if "control" in path.name}
    (found,) = set(place.directories.runtime.glob("*.sock")) - control
    return found


async def drain(daemon: Serving) -> None:
    """Take the daemon's log, so that it never waits for us."""
    assert daemon.process.stderr is not None
    async for _ in daemon.process.stderr:
        pass


async def measure(rounds: int, seconds: float) -> Mapping[str, Mapping[str, object]]:
    """All rounds; figures by rival."""
    async with rivals() as found:
        for _ in range(rounds):
            for rival in found:
                await first_bytes(rival)
            for pace in PACES:
                for rival in found:
                    await streams(rival, pace, seconds)
        return {rival.name: rival.row() for rival in found}


def table(rows: Mapping[str, Mapping[str, object]]) -> str:
    """Markdown: one column per rival."""
    names = list(rows)
    lines = ["| | " + " | ".join(names) + " |", "|" + "---|" * (1 + len(names))]
    for key in next(iter(rows.values())):
        cells = [_cell(rows[name][key]) for name in names]
        lines.append(f"| {key.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " / ".join(f"{number:.2f}" for number in value.values())
    return "" if value is None else str(value)


def main() -> None:
    """Print one line of JSON and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each set of 64 streams")
    parser.add_argument("--rounds", type=int, default=3)
    asked, _ = parser.parse_known_args()
    before = os.getloadavg()[0]
    rows = anyio.run(measure, asked.rounds, asked.seconds)
    told = {"bench": "proxy", "machine": machine(), "load_average": before, "rivals": rows}
    sys.stdout.write(json.dumps(told) + "\n" + table(rows) + f"\n{GOALS}\n")


if __name__ == "__main__":
    main()
