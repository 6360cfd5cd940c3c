"""Another model of a pool by policy, on a whole daemon: live traffic, then silence."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.binary import fake_binary
from tests.fakes.house import WITHIN_S, daemon_at, home, run_operation, tuned, until, write_config
from tests.fakes.script import Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.views import DecisionView, StatusView
    from tests.fakes.house import Home

SPEEDS = Script(
    tps0=32.4,
    row_cost=0.41,
    models={
        "tiny-chained": {"acceptance": (0.93, 0.74, 0.5)},
        "tiny-unchained": {"acceptance": (0.96, 0.90, 0.5)},
    },
)
"""Study 000, 3.6 B2 against 3.8 base B2: depth 2 is the best of both, and beta is 1.12 times
as fast at it."""

FAR = Script(tps0=32.4, models={"tiny-unchained": {"tps0": 64.8}})
"""Beta is twice as fast as alpha at every depth."""

IDLE = {"mode": "idle", "min_idle_s": 0.2, "min_dwell_s": 0}


@asynccontextmanager
async def place_of_two(*, speeds: Script = SPEEDS) -> AsyncIterator[Home]:
    """Two models in one pool, on the scripted engine."""
    async with home() as place:
        write_config(
            place,
            binary=str(fake_binary(place.root / "llama-server", speeds)),
            beta=bundled_model("tiny-unchained.gguf"),
        )
        filters = "\n[models.alpha.filters]\nset = { cache_prompt = true }\n"
        place.config.write_text(place.config.read_text() + filters)
        yield place


async def measured(running: Daemon, subject: str = "both", **more: object) -> None:
    """Measure each member's depths; nothing is chosen, so that the first member serves."""
    asked: dict[str, object] = {"depths": (0, 2), "prompts": 2, "max_tokens": 384, **more}
    operation = await running.control.tune(
        subject=subject,
        method="sweep",
        workloads=None,
        repetitions=1,
        apply=False,
        idempotency_key=None,
        **asked,  # type: ignore[arg-type]
    )
    ended = await run_operation(running, operation)
    assert ended.state == "done", ended.error


async def ask(
    client: aiohttp.ClientSession, number: int, *, model: str = "both", tokens: int = 256
) -> tuple[str, str]:
    """One request; the model and depth that served it."""
    body = {"model": model, "prompt": f"request {number}", "n_predict": tokens, "seed": number}
    async with client.post("/completion", json=body | {"ignore_eos": True}) as reply:
        assert reply.status == 200, await reply.text()
        assert (await reply.json())["timings"]["predicted_n"] == tokens
        return reply.headers["X-Mtpd-Profile"], reply.headers["X-Mtpd-Depth"]


def serves(profile: str, depth: int | None = None) -> object:
    def check(status: StatusView) -> bool:
        return any(
            engine.profile == profile
            and engine.state == "ready"
            and engine.arm is not None
            and depth in {None, engine.arm.depth}
            for engine in status.engines
        )

    return check


def said(status: StatusView, what: str) -> bool:
    last = status.last_decision
    return last is not None and what in last.reason


async def journalled(running: Daemon, subject: str, act: str) -> list[DecisionView]:
    found = await running.control.decisions(subject=subject, limit=50)
    return [one for one in found if one.act == act]


async def carried_out(running: Daemon, subject: str, act: str) -> DecisionView:
    """The one decision of its kind, once what came of it is written down."""
    with anyio.fail_after(WITHIN_S):
        while True:
            found = await journalled(running, subject, act)
            if found and found[0].outcome is not None:
                (decision,) = found
                return decision
            await anyio.sleep(0.05)


async def test_idle_ends_at_the_model_and_depth_that_the_measurements_name() -> None:
    async with place_of_two() as place:
        async with daemon_at(place) as (running, client):
            await measured(running)
        tuned(place, **IDLE)
        async with daemon_at(place) as (running, client):
            for number in range(8):
                assert (await ask(client, number))[0] == "alpha"
            await until(running, serves("beta", 2))  # type: ignore[arg-type]
            assert await ask(client, 99) == ("beta", "2")
            switched = await carried_out(running, "both", "switch")
            assert switched.arm is not None
            assert (switched.arm.profile, switched.arm.depth) == ("beta", 2)
            assert switched.reason.startswith("beta@2 is better for both: gain +")
            assert "R2 balanced: beta@2 (" in switched.reason
            assert switched.outcome == "beta@2 is ready, host"
            assert switched.measurement_ids
            assert [line.split(":")[0] for line in switched.evidence] == ["alpha@2", "beta@2"]
            told = await running.control.explain(switched.id, None)
            assert {one.profile for one in told.models} == {"alpha", "beta"}
            assert told.rule.startswith("the rules of docs/live.md")
            assert told.chain[-2:] == (switched.reason, f"then: {switched.outcome}")
            status = await running.control.status()
            chosen = next(one for one in status.choices if one.subject == "both")
            assert (chosen.arm.profile, chosen.arm.depth) == ("beta", 2)
            # What is asked for by its own name is served exactly.
            assert (await ask(client, 100, model="alpha"))[0] == "alpha"
        # The choice holds for the next life of the daemon.
        tuned_off = place.config.read_text().replace("mode = 'idle'", "mode = 'off'")
        place.config.write_text(tuned_off)
        async with daemon_at(place) as (_, client):
            assert await ask(client, 101) == ("beta", "2")


async def test_observe_only_says_that_another_model_is_better() -> None:
    async with place_of_two() as place:
        tuned(place, mode="observe", min_idle_s=0.1)
        async with daemon_at(place) as (running, client):
            await measured(running)
            for number in range(6):
                assert await ask(client, number) == ("alpha", "0")
            what = "would switch to beta@2 but the mode is observe: beta@2 is better for both"
            await until(running, lambda s: said(s, what))
            for number in range(6, 10):
                assert await ask(client, number) == ("alpha", "0")
            assert await journalled(running, "both", "switch") == []


async def test_a_model_that_is_asked_for_by_its_own_name_is_not_taken_away() -> None:
    async with place_of_two(speeds=FAR) as place:
        async with daemon_at(place) as (running, client):
            await measured(running, depths=(0,))
        tuned(place, mode="idle", min_idle_s=0.1, min_dwell_s=600)
        async with daemon_at(place) as (running, client):
            await ask(client, 0, model="alpha")
            for number in range(6):
                assert (await ask(client, number))[0] == "alpha"

            def held(status: StatusView) -> bool:
                own = next((one.next for one in status.live if one.profile == "alpha"), None)
                waits = None if own is None else own.waits_for
                return waits is not None and waits.startswith("alpha was asked for by its own name")

            await until(running, held)
            assert await journalled(running, "both", "switch") == []


async def test_a_member_that_was_never_measured_is_measured_in_silence_and_then_compared() -> None:
    async with place_of_two() as place:
        async with daemon_at(place) as (running, client):
            await measured(running, "alpha", depths=(0, 2), prompts=1, max_tokens=48)
        tuned(place, mode="idle", min_idle_s=0.05, min_dwell_s=0, max_restarts_per_day=20)
        async with daemon_at(place) as (running, client):
            await ask(client, 0)

            def begun(status: StatusView) -> bool:
                now = status.operation
                return now is not None and now.kind == "tune" and now.params["subject"] == "beta"

            await until(running, begun)
            await until(running, lambda s: s.operation is None or s.operation.kind != "tune")
            asked = await carried_out(running, "beta", "measure")
            assert asked.reason.startswith("beta was never measured")
            assert asked.outcome is not None
            assert asked.outcome.startswith("alpha@")
            (chosen,) = await journalled(running, "beta", "choose")
            assert chosen.measurement_ids


async def test_a_member_that_cannot_be_measured_is_tried_once_and_what_served_serves_again() -> (
    None
):
    broken = Script(tps0=32.4, models={"tiny-unchained": {"exit_code_at_start": 1}})
    async with place_of_two(speeds=broken) as place:
        async with daemon_at(place) as (running, client):
            await measured(running, "alpha", depths=(0,), prompts=1, max_tokens=48)
        tuned(place, mode="idle", min_idle_s=0.05, min_dwell_s=0, max_restarts_per_day=20)
        async with daemon_at(place) as (running, client):
            await ask(client, 0)
            asked = await carried_out(running, "beta", "measure")
            assert asked.outcome is not None
            assert asked.outcome.startswith("failed: ")

            def given_up(status: StatusView) -> bool:
                own = next((one.next for one in status.live if one.profile == "alpha"), None)
                return own is not None and "never measured" not in own.says

            await until(running, given_up)
            assert len(await journalled(running, "beta", "measure")) == 1
            assert (await ask(client, 1))[0] == "alpha"


@pytest.mark.real_engine
async def test_the_real_models_end_at_the_stored_model_without_one_failed_request() -> None:
    async with home() as place:
        write_config(place, binary="embedded", beta=bundled_model("tiny-unchained.gguf"))
        async with daemon_at(place) as (running, client):
            await measured(running, depths=(0, 2), prompts=1, max_tokens=64)
        # Tiny models on a busy machine have no best arm; what is stored says which one it is.
        with closing(sqlite3.connect(place.directories.state / "mtpd.sqlite3")) as db:
            slower = "UPDATE measurements SET decode_s = 20 * decode_s"
            db.execute(f"{slower} WHERE profile = 'alpha' OR depth = 0")
            db.commit()
        tuned(place, mode="idle", min_idle_s=0.3)
        async with daemon_at(place) as (running, client):
            for number in range(4):
                assert (await ask(client, number, tokens=32))[0] == "alpha"

            async def sends(first: int, served: list[tuple[str, str]]) -> None:
                served += [await ask(client, n, tokens=32) for n in range(first, first + 4)]

            await until(running, lambda s: s.last_decision and s.last_decision.act == "switch")
            served: list[tuple[str, str]] = []
            async with anyio.create_task_group() as tasks:
                for first in (100, 200, 300):
                    tasks.start_soon(sends, first, served)
            assert len(served) == 12
            assert served[-1] == ("beta", "2")
            await until(running, serves("beta", 2))  # type: ignore[arg-type]
            switched = await carried_out(running, "both", "switch")
            assert switched.outcome == "beta@2 is ready, host"
            status = await running.control.status()
            assert {one.profile: one.excluded for one in status.live} == {"alpha": {}, "beta": {}}
