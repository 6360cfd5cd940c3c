"""What a depth switch costs that is mtpd's own: the engine's load, canary and end apart.

Run as ``python -m tests.bench.bench_switch``; measured, never asserted. A scripted engine
is switched between two depths. Own are: order to SIGTERM; noticed exit to new process;
bound socket to noticed health; ready to first byte forwarded. The fault points of the
production code are where the clock is read; a thread watches for the engine's socket.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING

import aiohttp
import anyio

from mtpd import logs
from mtpd.app import daemon
from mtpd.config.load import load
from mtpd.events import EngineTransition
from tests.fakes.house import Home, home, run_operation
from tests.fakes.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.app import Daemon

SWITCHES = 20
PATH = "/usr/bin:/bin"


class Stopwatch:
    """Fault points and events as clock readings; the newest of each name counts."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def hit(self, point: str) -> None:
        """Read the clock at a named point."""
        self.at[point] = time.perf_counter()


class SocketWatch:
    """Says when a new engine socket is there."""

    def __init__(self, place: Home, watch: Stopwatch) -> None:
        self._folder = place.directories.runtime
        self._watch = watch
        self._known: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="socket-watch")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.0005):
            names = {p.name for p in self._folder.glob("*.sock")}
            if names - self._known:
                self._watch.hit("socket")
            self._known = names


async def follow(running: Daemon, watch: Stopwatch) -> None:
    """Read the clock at every transition of the engine."""
    async with running.bus.subscribe(None) as events:
        async for envelope in events:
            event = getattr(envelope, "event", None)
            if isinstance(event, EngineTransition):
                watch.hit(event.new)


async def one(running: Daemon, watch: Stopwatch, depth: int) -> dict[str, float]:
    """Switch once; milliseconds per part."""
    began = time.perf_counter()
    order = await running.control.switch(
        model="alpha", depth=depth, force=False, idempotency_key=None
    )
    await run_operation(running, order)
    ready = watch.at["ready"]
    asked = time.perf_counter()
    async with (
        aiohttp.ClientSession(running.url) as client,
        client.post("/completion", json={"model": "alpha", "prompt": "x", "n_predict": 1}) as reply,
    ):
        await reply.content.readany()
    first_byte = time.perf_counter()
    at = watch.at
    parts = {
        "order_to_sigterm": at["stop.before_term"] - began,
        "exit_to_spawn": at["spawn.after_fork"] - at["exit.before_record"],
        "listening_to_health": max(0.0, at["probing"] - at["socket"]),
        "ready_to_first_byte": first_byte - asked,
        "engine_end": at["exit.before_record"] - at["stop.before_term"],
        "engine_load": at["socket"] - at["spawn.after_fork"],
        "canary": ready - at["probing"],
    }
    return {name: 1000 * value for name, value in parts.items()}


OWN = ("order_to_sigterm", "exit_to_spawn", "listening_to_health", "ready_to_first_byte")


async def measure() -> Mapping[str, object]:
    """Medians over some switches."""
    watch = Stopwatch()
    rows: list[dict[str, float]] = []
    async with home(Script(tps0=100000.0)) as place:
        config = load(place.config)
        running_daemon = daemon(config, place.directories, path_env=PATH, faults=watch)
        async with running_daemon as running, anyio.create_task_group() as tasks:
            tasks.start_soon(follow, running, watch)
            with SocketWatch(place, watch):
                order = await running.control.load(model="alpha", idempotency_key=None)
                await run_operation(running, order)
                for number in range(SWITCHES):
                    rows.append(await one(running, watch, 1 + number % 2))  # noqa: PERF401
            tasks.cancel_scope.cancel()
    parts = {name: round(statistics.median(row[name] for row in rows), 1) for name in rows[0]}
    own = statistics.median(sum(row[name] for name in OWN) for row in rows)
    return {
        "bench": "switch",
        "switches": SWITCHES,
        "own_ms": round(own, 1),
        "goal_own_ms": 50,
        "parts_ms": parts,
        "python": sys.version.split()[0],
    }


def main() -> None:
    """Print one line of JSON and one for people."""
    logs.configure(json=False, level="error")
    result = anyio.run(measure)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.write(
        f"switch: {result['own_ms']} ms of mtpd's own (median of {SWITCHES}), goal 50 ms; "
        f"parts in ms: {result['parts_ms']}\n"
    )


if __name__ == "__main__":
    main()
