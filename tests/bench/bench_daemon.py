"""Memory and idle processor time of the daemon, without and with an idle engine.

Run as ``python -m tests.bench.bench_daemon``; measured, never asserted. The daemon is
``mtpd serve`` in a process of its own, started as the installed program is; the engine's own memory
and time are not counted.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import aiohttp
import anyio
import psutil

from tests.fakes.house import home, write_config
from tests.fakes.serve import Serving, serve

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALLED = ("-c", "from mtpd.cli.start import mtpd; mtpd()")
"""What the installed script does."""
AS_UNIT = {"MALLOC_ARENA_MAX": "1"}
"""What our units set."""

SETTLE_S = 3.0
IDLE_S = 20.0


async def idle(daemon: Serving) -> tuple[float, float]:
    """Resident MB and percent of a core over some idle seconds."""
    process = psutil.Process(daemon.process.pid)
    await anyio.sleep(SETTLE_S)
    before = process.cpu_times()
    await anyio.sleep(IDLE_S)
    after = process.cpu_times()
    used = (after.user + after.system) - (before.user + before.system)
    return process.memory_info().rss / 1e6, 100 * used / IDLE_S


async def measure() -> Mapping[str, object]:
    """The daemon alone, then beside an engine that has served one request."""
    async with home() as place:
        write_config(place, binary="embedded")
        async with serve(place, program=INSTALLED, environment=AS_UNIT) as daemon:
            await daemon.until_serving()
            rss_alone, cpu_alone = await idle(daemon)
            body = {"model": "alpha", "prompt": "x", "n_predict": 8}
            async with (
                aiohttp.ClientSession() as client,
                client.post(f"{daemon.url}/completion", json=body) as reply,
            ):
                await reply.read()
            rss_engine, cpu_engine = await idle(daemon)
    return {
        "bench": "daemon",
        "rss_mb": round(rss_alone, 1),
        "idle_core_percent": round(cpu_alone, 2),
        "rss_with_engine_mb": round(rss_engine, 1),
        "idle_core_percent_with_engine": round(cpu_engine, 2),
        "goal_rss_mb": 75,
        "goal_idle_core_percent": 0.3,
        "python": sys.version.split()[0],
    }


def main() -> None:
    """Print one line of JSON and one for people."""
    result = anyio.run(measure)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.write(
        f"daemon: {result['rss_mb']} MB and {result['idle_core_percent']} % of a core idle; "
        f"beside an idle engine {result['rss_with_engine_mb']} MB and "
        f"{result['idle_core_percent_with_engine']} %; goals 75 MB, 0.3 %\n"
    )


if __name__ == "__main__":
    main()
