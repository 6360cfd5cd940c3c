"""What a client is told of an engine that takes longer than its timeouts."""

from __future__ import annotations

import json

import anyio
import pytest

from mtpd.config.model import EngineTimeouts, LoadingState
from mtpd.proxy.conditions import Conditions
from tests.fakes.board import until
from tests.fakes.front import stage
from tests.fakes.upstream import SSE, Conversation

ASK = b'{"model":"a","stream":true}'
CHUNK = b'data: {"content":"one"}\n\n'


def within(**timeouts: float) -> Conditions:
    return Conditions(engine=EngineTimeouts(**timeouts))


async def silent(talk: Conversation) -> None:
    await talk.until_gone()


async def pings(talk: Conversation) -> None:
    await talk.head(SSE)
    while True:
        await talk.chunk(b":\n\n")
        await anyio.sleep(0.01)


async def stops_short(talk: Conversation) -> None:
    await talk.head(SSE)
    await talk.chunk(CHUNK)
    await talk.until_gone()


@pytest.mark.parametrize("limit", ["first_byte_s", "total_s"])
async def test_an_engine_that_says_nothing_in_time_is_504_and_not_asked_again(limit: str) -> None:
    async with stage(silent, conditions=within(**{limit: 0.05})) as s:
        response, body = await s.post()
        assert response.status == 504
        error = json.loads(body)["error"]
        assert error["code"] == "engine_timeout"
        assert f"within 0.05 s ({limit})" in error["message"]
        assert len(s.engine.seen) == 1
        await until(s.engine.seen[0].gone.is_set)
        assert (s.finished[0].outcome, s.finished[0].status) == ("engine_timeout", 504)


async def test_pings_are_no_answer() -> None:
    async with stage(pings, conditions=within(first_byte_s=0.1)) as s:
        wire = await s.connect(ASK)
        rest = await wire.rest()
        assert b'"code": "engine_timeout"' in rest
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")


async def test_a_stream_that_stops_short_ends_in_an_error_event() -> None:
    async with stage(stops_short, conditions=within(idle_s=0.05)) as s:
        wire = await s.connect(ASK)
        rest = await wire.rest()
        assert CHUNK in rest
        assert b"for 0.05 s (idle_s)" in rest
        assert not rest.endswith(b"0\r\n\r\n")
        await until(s.engine.seen[0].gone.is_set)
        assert (s.finished[0].outcome, s.finished[0].status) == ("engine_timeout", 200)


async def test_a_long_silent_prompt_is_not_cut_by_default() -> None:
    async def late(talk: Conversation) -> None:
        await asked.wait()
        await talk.head(SSE)
        await talk.chunk(b"data: [DONE]\n\n")
        await talk.end()

    async with stage(late, conditions=within(idle_s=0.01)) as s:
        asked = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                response, body = await s.post(stream=True)
                assert (response.status, body) == (200, b"data: [DONE]\n\n")

            tasks.start_soon(ask)
            await until(lambda: s.engine.seen)
            s.bench.clock.advance(86_400)
            s.bench.board.tick()
            await anyio.sleep(0.1)
            assert not s.finished
            asked.set()


async def test_a_client_that_takes_nothing_is_let_go_of_after_its_stall() -> None:
    async def floods(talk: Conversation) -> None:
        await talk.head(SSE)
        while True:
            await talk.chunk(b"data: " + b"x" * 65536 + b"\n\n")

    conditions = Conditions(write_stall_s=0.1, loading=LoadingState.OFF)
    async with stage(floods, conditions=conditions) as s:
        wire = await s.connect(ASK)
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: s.finished)
        assert s.finished[0].outcome == "client_gone"
