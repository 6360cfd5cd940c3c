"""Depths and models are changed under 32 clients that stream: nothing is lost, doubled or cut.

``make test`` runs a part of the changes; ``make endurance`` sets MTPD_ENDURANCE and runs all.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.script import Script

if TYPE_CHECKING:
    from mtpd.app import Daemon

FULL = "MTPD_ENDURANCE" in os.environ
CLIENTS = 32
SCRIPTED, REAL = (100, 10) if FULL else (12, 4)
TOKENS = 24

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(slots=True)
class Seen:
    """What the clients saw.

    Attributes:
        complete: Streams that came whole.
        depths: The model and depth that each of them came from.
        wrong: What was anything else.
    """

    complete: int = 0
    depths: set[tuple[str, str]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def body_of(model: str, client: int, *, stream: bool) -> dict[str, object]:
    return {
        "model": model,
        "prompt": f"client {client} says",
        "n_predict": TOKENS,
        "seed": client,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }


def counted(events: list[dict[str, Any]]) -> bool:
    """Whether every token came, once and in order, by the real engine's own count.

    Its text need not be the one that came at rest: sums over a batch of several slots round
    differently, which decides between two tokens that are nearly as likely.
    """
    came = list(itertools.accumulate(len(event.get("tokens", ())) for event in events))
    return came[-1:] == [TOKENS] and came == [event["tokens_predicted"] for event in events]


async def ask_for_ever(
    session: aiohttp.ClientSession, client: int, expected: dict[str, str], seen: Seen
) -> None:
    """Stream from both models in turn; every text must be whole."""
    while True:
        for model, text in expected.items():
            async with session.post("/completion", json=body_of(model, client, stream=True)) as got:
                lines = [line async for line in got.content if line.startswith(b"data: ")]
                events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
                said = "".join(event.get("content", "") for event in events)
                ended = [event.get("stop") is True for event in events]
                whole = said == text or counted(events)
                if got.status == 200 and whole and ended.count(True) == 1 and ended[-1]:
                    seen.complete += 1
                    seen.depths.add((got.headers["X-Mtpd-Profile"], got.headers["X-Mtpd-Depth"]))
                else:
                    seen.wrong.append(f"client {client}: {got.status}, {said!r}, {events[-1:]}")


async def texts_at_rest(session: aiohttp.ClientSession) -> list[dict[str, str]]:
    """What each client will get from each model."""
    texts: list[dict[str, str]] = [{} for _ in range(CLIENTS)]
    for model in ("alpha", "beta"):
        for client in range(CLIENTS):
            async with session.post(
                "/completion", json=body_of(model, client, stream=False)
            ) as got:
                texts[client][model] = (await got.json())["content"]
    return texts


async def change(running: Daemon, changes: int, seen: Seen) -> None:
    """Switch back and forth; between two changes some stream has come whole."""
    for number in range(changes):
        had = seen.complete
        model, depth = ("alpha", "beta")[number % 3 == 2], number % 4
        ordered = await running.control.switch(
            model=model, depth=depth, force=False, idempotency_key=None
        )
        ended = await run_operation(running, ordered)
        assert ended.state == "done", ended.error
        with anyio.fail_after(60):
            while seen.complete == had and not seen.wrong:  # noqa: ASYNC110 - clients tell nobody
                await anyio.sleep(0.01)
        assert not seen.wrong


async def changed_under_load(running: Daemon, changes: int) -> Seen:
    seen = Seen()
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(running.url, connector=unlimited) as session:
        expected = await texts_at_rest(session)
        async with anyio.create_task_group() as tasks:
            for client in range(CLIENTS):
                tasks.start_soon(ask_for_ever, session, client, expected[client], seen)
            await change(running, changes, seen)
            with anyio.fail_after(60):
                while len({model for model, _ in seen.depths}) == 1 and not seen.wrong:  # noqa: ASYNC110 - clients tell nobody
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    return seen


async def test_no_stream_is_lost_doubled_or_cut_by_a_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = Script(realtime=True, tps0=2000.0)
    async with home(script, alpha="slots = 4") as place, daemon_at(place) as (running, _):
        seen = await changed_under_load(running, SCRIPTED)
    with capsys.disabled():
        print(f" {SCRIPTED} changes, {seen.complete} streams", end="")  # noqa: T201
    assert not seen.wrong
    assert seen.complete > SCRIPTED
    assert {model for model, _ in seen.depths} == {"alpha", "beta"}
    assert {depth for model, depth in seen.depths if model == "alpha"} >= {"0", "1", "3"}


@pytest.mark.real_engine
async def test_no_stream_of_the_real_engine_is_lost_doubled_or_cut_by_a_change() -> None:
    async with home(alpha="slots = 4") as place:
        write_config(
            place, binary="embedded", model=bundled_model("tiny-chained.gguf"), alpha="slots = 4"
        )
        async with daemon_at(place) as (running, _):
            seen = await changed_under_load(running, REAL)
    assert not seen.wrong
    assert seen.complete > REAL
    assert {model for model, _ in seen.depths} == {"alpha", "beta"}
