"""The main job on the real engine: measure, choose, say why, serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.control.deciding import PoolInputs
from mtpd.control.recorded import decode_inputs
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from tests.fakes.house import daemon_at, home, run_operation
from tuner.plan import History
from tuner.pools import Candidate, choose_model
from tuner.select import choose
from tuner.summary import summarise

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "mtpd.cli.mtpd", "demo", "--port", "0")
POOL = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "embedded"
threads = 1
[pools.demo]
members = ["tiny-chained", "tiny-unchained"]
"""

pytestmark = [pytest.mark.real_engine, pytest.mark.slow, pytest.mark.timeout(300)]


def alpha(report: dict[str, Any], model: str, position: int) -> dict[str, float]:
    """The interval of a draft position at the deepest measured depth."""
    rows = next(m for m in report["models"] if m["id"] == model)["depths"]
    deepest = max(rows, key=lambda row: row["arm"]["depth"])
    found = next(a for a in deepest["acceptance"] if a["position"] == position)
    interval: dict[str, float] = found["alpha"]
    return interval


async def test_the_demo_tells_the_chained_head_from_the_unchained_one() -> None:
    ended = await anyio.run_process([*DEMO, "--once", "--json"], cwd=ROOT, stdin=subprocess.DEVNULL)
    report = json.loads(ended.stdout)
    chained, unchained = (alpha(report, m, 2) for m in ("tiny-chained", "tiny-unchained"))
    assert chained["low"] > unchained["high"]
    for model in report["models"]:
        assert [row["arm"]["depth"] for row in model["depths"]] == [0, 1, 2, 3]
        assert all(row["same_text"] for row in model["depths"][1:])
        assert {row["residency"] for row in model["depths"]} == {"host"}
        assert all(row["repetitions"] == 12 for row in model["depths"])
    assert [d["subject"] for d in report["decisions"]] == ["tiny-chained", "tiny-unchained", "demo"]
    assert all(d["reason"] for d in report["decisions"])
    assert {f["model"] for f in report["forecast"]} == {"tiny-chained", "tiny-unchained"}
    for forecast in report["forecast"]:
        assert forecast["row_cost"] == 0.41
        assert forecast["ratios"][0]["mid"] == 1.0


async def test_the_choice_follows_from_the_stored_cells_by_the_tie_rule() -> None:
    async with home() as place:
        place.config.write_text(POOL)
        async with daemon_at(place) as (running, _):
            operation = await running.control.tune(
                subject="demo",
                method="sweep",
                depths=(0, 1, 2),
                workloads=("short",),
                prompts=2,
                repetitions=3,
                max_tokens=48,
                apply=True,
                idempotency_key=None,
            )
            assert (await run_operation(running, operation)).state == "done"
            decisions = (await running.control.decisions(subject=None, limit=9))[::-1]
        clock = SystemClock()
        async with await Database.open(place.directories.state / "mtpd.sqlite3", clock) as db:
            stored = History(observations=await Measurements(db=db, clock=clock).observations())
            recorded = await Journal(db=db, clock=clock).inputs(decisions[2].id)
    assert recorded is not None
    pool = decode_inputs(recorded[1], stored.observations)
    assert isinstance(pool, PoolInputs)
    needs = {member.arm: member.memory_bytes for member in pool.members}
    chosen = []
    for decision, model in zip(decisions, ("tiny-chained", "tiny-unchained"), strict=False):
        mine = stored.only({o.arm for o in stored.observations if o.arm.profile == model})
        again = choose(mine, None, subject=model)
        assert decision.reason == again.reason
        chosen += [row for row in summarise(mine.observations) if row.arm == again.arm]
    rows = [Candidate.of(row, memory_bytes=needs[row.arm]) for row in chosen]
    final = choose_model(rows, subject="demo")
    assert decisions[2].reason == final.reason


async def test_the_demo_serves_what_it_chose_until_it_is_told_to_stop() -> None:
    process = await anyio.open_process(DEMO, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=None)
    assert process.stdout is not None
    said = b""
    try:
        with anyio.fail_after(200):
            while b"curl http://" not in said:
                said += await process.stdout.receive()
        url = said.decode().partition("curl ")[2].split("/v1/", maxsplit=1)[0]
        body = {"model": "demo", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}]}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{url}/v1/chat/completions", json=body) as reply,
        ):
            assert reply.status == 200
            answer = await reply.json()
        chosen = said.decode().partition("Chosen: ")[2].split(".", maxsplit=1)[0]
        name, depth = chosen.split(" at depth ")
        assert (reply.headers["X-Mtpd-Profile"], reply.headers["X-Mtpd-Depth"]) == (name, depth)
        assert answer["choices"][0]["message"]["content"]
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(10):
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    assert "FORECAST, not measured" in said.decode()


async def test_a_port_in_use_is_one_sentence_with_a_hint() -> None:
    async with home() as place:
        place.config.write_text(POOL)
        async with daemon_at(place) as (running, _):
            port = running.url.rpartition(":")[2]
            argv = [*DEMO[:-1], port, "--once"]
            ended = await anyio.run_process(argv, cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    assert ended.returncode == 1
    first, second = ended.stderr.decode().strip().splitlines()
    assert first == f"mtpd: cannot listen on 127.0.0.1:{port}: {os.strerror(98)}"
    assert "choose another" in second


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_demo_that_is_ended_while_it_measures_leaves_nothing(
    told: signal.Signals,
) -> None:
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as name:  # short enough for sockets
        folder = Path(name)
        process = await anyio.open_process(
            [*DEMO, "--once"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": name},
            stdin=subprocess.DEVNULL,
            stderr=None,
        )
        try:
            with anyio.fail_after(60):
                while not found(folder, "mtpd-demo-*/state/logs/*"):
                    assert process.returncode is None
                    await anyio.sleep(0.02)
            process.send_signal(told)
            with anyio.fail_after(10):
                assert await process.wait() == 1
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()
        assert found(folder, "*") == []
