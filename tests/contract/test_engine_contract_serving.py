"""What mtpd relies on in a running engine: numbers, text, streams, and how it ends.

Asked of the same engines as `test_engine_contract.py`, which covers their start.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.engine.client import EngineClient
from mtpd.engine.prom import SpecCounters, spec_counters
from mtpd.errors import UpstreamError
from mtpd.types import UnixEndpoint, Value
from tests.contract.harness import (
    KINDS,
    MODEL,
    STOP_S,
    Engine,
    Kind,
    running,
    serving,
    until_ready,
)
from tests.contract.requests import MTP, chat, completion, endless, going_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.views import Json

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]

LONG_CONTEXT = 32768
"""So much that a stream without a limit outlasts every test."""

SLOT_FREE_S = 1.0
QUIET_S = 0.2
STILL_THERE_S = 0.6


class TestAGeneration:
    async def test_timings_name_drafts_only_where_something_was_drafted(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        found: dict[int, Any] = {}
        for depth, flags in ((0, ()), (2, (*MTP, "2"))):
            async with serving(kind, *flags, home=tmp_path) as (_, client):
                reply = await client.complete("/completion", completion(24), timeout_s=20)
                found[depth] = reply["timings"]

        for timings in found.values():
            assert timings["predicted_n"] == 24
            assert timings["predicted_ms"] > 0
            assert timings["prompt_n"] > 0
        assert "draft_n" not in found[0]
        assert 0 <= found[2]["draft_n_accepted"] <= found[2]["draft_n"]

    @pytest.mark.parametrize("depth", [0, 1, 3])
    async def test_a_short_reply_is_one_step_that_verifies_what_its_limit_leaves(
        self, kind: Kind, tmp_path: Path, depth: int
    ) -> None:
        flags = (*MTP, str(depth)) if depth else ()
        made: list[int] = []
        seen: set[int] = set()
        async with serving(kind, *flags, home=tmp_path) as (_, client):
            long = await client.complete("/completion", going_on(48), timeout_s=20)
            for number in range(40):
                rows = number % (depth + 1)
                before = await _counters(client)
                reply: dict[str, Any] = await client.complete(
                    "/completion", going_on(rows + 2, made), timeout_s=20
                )
                after = await _counters(client)
                timings, made = reply["timings"], made + reply["tokens"]

                assert timings["predicted_n"] == rows + 2
                assert timings["predicted_ms"] > 0
                drafted = timings.get("draft_n", 0)
                assert drafted >= rows
                if timings.get("draft_n_accepted", 0) == rows:
                    # All of one draft was accepted, so there was room for no other step.
                    assert drafted == rows
                    assert after.drafts - before.drafts == (1 if rows else 0)
                    seen.add(rows)

        # Short replies that go on from each other make the text of a long one.
        assert made[:48] == long["tokens"]
        assert seen == set(range(depth + 1))

    async def test_a_prompt_that_goes_on_from_the_last_reply_costs_one_token(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, *MTP, "2", home=tmp_path) as (_, client):
            first: dict[str, Any] = await client.complete("/completion", going_on(4), timeout_s=20)
            second: dict[str, Any] = await client.complete(
                "/completion", going_on(4, first["tokens"]), timeout_s=20
            )

        prompt = first["timings"]["prompt_n"]
        assert first["timings"]["cache_n"] == 0
        assert (second["timings"]["cache_n"], second["timings"]["prompt_n"]) == (prompt + 3, 1)

    async def test_a_chat_is_the_completion_of_its_templated_text(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        messages: list[dict[str, Json]] = [{"role": "user", "content": "What is json.loads?"}]
        more: dict[str, Json] = {"temperature": 0, "seed": 1, "n_predict": 16, "max_tokens": 16}
        async with serving(kind, home=tmp_path) as (_, client):
            text = await client.templated(messages)
            assert isinstance(text, Value)
            told: dict[str, Any] = await client.complete(
                "/v1/chat/completions", {"messages": [*messages], **more}, timeout_s=20
            )
            same = await client.complete(
                "/completion", {"prompt": text.value, **more}, timeout_s=20
            )

        assert told["choices"][0]["message"]["content"] == same["content"]

    async def test_counters_by_position_never_rise_and_sum_to_the_accepted_tokens(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, *MTP, "3", home=tmp_path) as (engine, client):
            reply: dict[str, Any] = await client.complete(
                "/completion", completion(64), timeout_s=20
            )
            counters = await _counters(client)
            await engine.until_said(r"acc per pos = \(")
            await engine.until_said("statistics .*draft-mtp")

        positions = counters.per_position
        assert positions is not None
        assert len(positions) == 3
        assert list(positions) == sorted(positions, reverse=True)
        assert sum(positions) == counters.accepted == reply["timings"]["draft_n_accepted"]
        assert counters.drafted == reply["timings"]["draft_n"]
        assert positions[0] <= counters.drafts

    async def test_without_speculation_the_counters_stay_at_nothing(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, home=tmp_path) as (_, client):
            await client.complete("/completion", completion(8), timeout_s=20)
            counters = await _counters(client)

        assert (counters.drafts, counters.drafted, counters.accepted) == (0, 0, 0)

    async def test_the_text_is_the_same_at_every_depth(self, kind: Kind, tmp_path: Path) -> None:
        texts = []
        for flags in ((), *((*MTP, str(depth)) for depth in (1, 2, 3))):
            async with serving(kind, *flags, home=tmp_path) as (_, client):
                reply = await client.complete("/completion", completion(48), timeout_s=20)
                texts.append(reply["content"])

        assert texts[0]
        assert len(set(texts)) == 1

    async def test_synthetic_rates_are_what_is_measured(self, kind: Kind, tmp_path: Path) -> None:
        rates = ("--spec-synth-rates", "0.9,0.5")
        async with serving(kind, *MTP, "2", *rates, home=tmp_path) as (_, client):
            for seed in range(3):
                body = completion(300, seed=seed, ignore_eos=True)
                await client.complete("/completion", body, timeout_s=30)
            counters = await _counters(client)

        assert counters.per_position is not None
        first, second = (count / counters.drafts for count in counters.per_position)
        assert first == pytest.approx(0.9, abs=0.06)
        assert second == pytest.approx(0.5, abs=0.09)

    async def test_a_chat_stream_ends_with_timings_and_the_closing_mark(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with (
            serving(kind, *MTP, "2", home=tmp_path) as (_, client),
            chat(client, tokens=8) as lines,
        ):
            events = [line async for line in lines]

        assert events[-1] == "[DONE]"
        last = json.loads(events[-2])
        assert last["choices"][0]["finish_reason"] in {"length", "stop"}
        assert last["timings"]["predicted_n"] >= 1

    async def test_a_client_that_leaves_gives_its_slot_back_at_once(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, home=tmp_path, context=LONG_CONTEXT) as (_, client):
            async with endless(client) as lines:
                await anext(lines)
                assert await _busy(client)

            with anyio.fail_after(SLOT_FREE_S):
                while await _busy(client):  # noqa: ASYNC110 - the engine offers no event
                    await anyio.sleep(0.01)

    async def test_props_tell_the_slots(self, kind: Kind, tmp_path: Path) -> None:
        async with serving(kind, home=tmp_path) as (_, client):
            assert (await client.props())["total_slots"] == 1
            assert len(await client.slots()) == 1

    async def test_metrics_that_were_not_asked_for_are_refused(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        where = tmp_path / "engine.sock"
        flags = ("-m", MODEL, "-np", "1", "-c", "512", "-t", "1", "--host", str(where))
        async with (
            running(kind, *flags, home=tmp_path),
            EngineClient(UnixEndpoint(str(where))) as client,
        ):
            await until_ready(client)

            with pytest.raises(UpstreamError, match="501"):
                await client.metrics_text()


class TestTheEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_a_signal_ends_an_idle_engine_with_0(
        self, kind: Kind, tmp_path: Path, number: signal.Signals
    ) -> None:
        async with serving(kind, home=tmp_path) as (engine, client):
            await client.session.close()

            os.kill(engine.process.pid, number)

            assert await engine.exit_code(within_s=STOP_S) == 0

    async def test_a_signal_with_an_open_stream(self, kind: Kind, tmp_path: Path) -> None:
        """The one documented difference between the embedded engine and llama-server."""
        async with (
            serving(kind, home=tmp_path, context=LONG_CONTEXT) as (engine, client),
            endless(client) as lines,
        ):
            await anext(lines)

            os.kill(engine.process.pid, signal.SIGTERM)

            if kind.ends_with_open_stream:
                assert await engine.exit_code(within_s=STOP_S) == 0
            else:
                await _dries_up(lines)
                assert await _outlives(engine, STILL_THERE_S)
                os.kill(engine.process.pid, signal.SIGTERM)
                assert await engine.exit_code(within_s=STOP_S) == 1

    async def test_a_killed_stream_looks_like_an_end_without_the_closing_mark(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with (
            serving(kind, home=tmp_path, context=LONG_CONTEXT) as (engine, client),
            chat(client, tokens=100_000) as lines,
        ):
            await anext(lines)
            os.kill(engine.process.pid, signal.SIGKILL)

            assert "[DONE]" not in [line async for line in lines]


async def _counters(client: EngineClient) -> SpecCounters:
    counters = spec_counters(await client.metrics_text())
    assert isinstance(counters, SpecCounters)
    return counters


async def _busy(client: EngineClient) -> bool:
    slots: list[Any] = await client.slots()
    return any(slot["is_processing"] for slot in slots)


async def _dries_up(lines: AsyncIterator[str]) -> None:
    """Wait until a stream that stays open brings nothing more."""
    with anyio.fail_after(STOP_S):
        while True:
            with anyio.move_on_after(QUIET_S) as waiting:
                await anext(lines)
            if waiting.cancelled_caught:
                return


async def _outlives(engine: Engine, seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        await engine.process.wait()
    return engine.alive()
