"""What a client that asked for a stream is told while its model is not ready."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import aiohttp
import anthropic
import anyio
import openai
import pytest

from mtpd.config.model import LoadingState
from mtpd.proxy.conditions import Conditions
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import until
from tests.fakes.front import stage
from tests.fakes.upstream import DONE, SSE, Conversation, json_reply, stream
from tests.integration.test_proxy_streams import body_of

if TYPE_CHECKING:
    from tests.fakes.front import Wire

ASK = b'{"model":"a","stream":true}'
COMMENTS = Conditions(shown="tiny", loading=LoadingState.COMMENTS)
REASONING = Conditions(shown="tiny", loading=LoadingState.REASONING)
COMMENT = b": mtpd loading tiny at depth 0, 0.0 s\n\n"
CHUNK = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"a",'
    b'"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":"stop"}]}\n\n'
)
MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
    b'"role":"assistant","content":[],"model":"a","stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":1,"output_tokens":0}}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def spoken(body: bytes) -> bytes:
    """What follows the comments; the first of them may come before the load has begun."""
    while body.startswith(b": mtpd "):
        body = body.partition(b"\n\n")[2]
    return body


async def error_of(wire: Wire) -> dict[str, object]:
    """The event that ends a stream that only held comments; nothing may follow it."""
    rest = await wire.rest()
    assert not rest.endswith(b"0\r\n\r\n")
    assert b"[DONE]" not in rest
    event = rest[rest.rindex(b"data: ") + 6 : rest.rindex(b"\n\n")]
    error = json.loads(event)["error"]
    assert isinstance(error, dict)
    return error


async def test_comments_come_while_a_model_loads_and_then_its_answer_untouched() -> None:
    async with stage(stream(CHUNK, DONE), conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        wire = await s.connect(ASK)
        told = await wire.until(COMMENT)
        assert told.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/event-stream\r\n" in told
        assert b"X-Accel-Buffering: no\r\n" in told
        assert b"X-Mtpd-Profile: a\r\n" in told
        assert s.engine.seen == []
        gate.set()
        rest = await wire.until(b"0\r\n\r\n")
        assert spoken(body_of(told + rest)) == CHUNK + DONE
        await until(lambda: s.finished)
        assert (s.finished[0].outcome, s.finished[0].status) == ("complete", 200)


async def test_llama_swaps_lines_frame_the_load_in_a_chat() -> None:
    async with stage(stream(CHUNK, DONE), conditions=REASONING) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        wire = await s.connect(ASK)
        told = await wire.until(b"loading model")
        gate.set()
        body = body_of(told + await wire.until(b"0\r\n\r\n"))
        *lines, _, end = body.removesuffix(b"\n\n").split(b"\n\n")
        assert end == DONE.strip()
        text = "".join(
            json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]["reasoning_content"]
            for line in lines
        )
        dots = text.count(".") - 1
        assert text == (f"━━━━━\nmtpd loading model: tiny\n{'.' * dots}\nDone! (0.00s)\n━━━━━\n \n")


@pytest.mark.parametrize("conditions", [Conditions(), COMMENTS])
async def test_a_load_that_fails_at_once_or_untold_keeps_its_status(conditions: Conditions) -> None:
    async with stage(stream(DONE), conditions=conditions, tick_s=600) as s:
        s.bench.actor("a").script.append(Fails())
        response, body = await s.post(stream=True)
        assert response.status == 503
        assert json.loads(body)["error"]["code"] == "engine_unavailable"


async def test_nobody_else_is_told_anything() -> None:
    async with stage(json_reply(b'{"choices":[]}'), conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            bodies: list[bytes] = []

            async def ask(path: str, *, stream: bool) -> None:
                bodies.append((await s.post(path, stream=stream))[1])

            tasks.start_soon(lambda: ask("/v1/chat/completions", stream=False))
            tasks.start_soon(lambda: ask("/v1/embeddings", stream=True))
            wire = await s.connect(ASK)
            await wire.until(COMMENT)
            wire.leave()
            gate.set()
        assert bodies == [b'{"choices":[]}'] * 2


async def test_a_load_that_fails_later_is_told_by_an_error_event() -> None:
    async with stage(stream(DONE), conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Fails(gate=(gate := anyio.Event())))
        wire = await s.connect(ASK)
        await wire.until(COMMENT)
        gate.set()
        assert await error_of(wire) == {
            "message": "the model file is truncated",
            "type": "unavailable_error",
            "code": "engine_unavailable",
            "param": None,
        }
        await until(lambda: s.finished)
        assert (s.finished[0].outcome, s.finished[0].status) == ("rejected", 503)


async def test_a_deadline_ends_the_stream_that_was_told() -> None:
    async with stage(stream(DONE), conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(anyio.Event()))
        async with s.session.post(
            s.url(), json={"model": "a", "stream": True}, headers={"X-Mtpd-Deadline-Ms": "300"}
        ) as response:
            assert response.status == 200
            seen = b""
            with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012
                async for chunk in response.content.iter_any():
                    seen += chunk
        assert b'"code": "queue_timeout"' in seen
        assert b"[DONE]" not in seen
        assert s.bench.board.queue().waiting == 0


async def test_a_client_that_leaves_while_it_is_told_leaves_the_queue() -> None:
    async with stage(stream(DONE), conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(anyio.Event()))
        wire = await s.connect(ASK)
        await wire.until(COMMENT)
        wire.leave()
        await until(lambda: s.finished)
        assert s.finished[0].outcome == "client_gone"
        assert s.bench.board.queue().waiting == 0
        assert s.engine.seen == []


async def test_what_the_engine_refuses_is_told_by_an_error_event() -> None:
    refusal = json_reply(b'{"error":{"code":400,"message":"no such template"}}', "400 Bad Request")
    async with stage(refusal, conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        wire = await s.connect(ASK)
        await wire.until(COMMENT)
        gate.set()
        error = await error_of(wire)
        assert error["message"] == "no such template"
        assert error["code"] == "engine_refused"
        await until(lambda: s.finished)
        assert (s.finished[0].outcome, s.finished[0].status) == ("failed", 400)


async def test_an_engine_lost_before_its_answer_is_tried_again_behind_the_comments() -> None:
    async def dies_once(talk: Conversation) -> None:
        if len(s.engine.seen) == 1:
            talk.kill()
            return
        await talk.head(SSE)
        await talk.chunk(CHUNK + DONE)
        await talk.end()

    async with stage(dies_once, conditions=COMMENTS) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        wire = await s.connect(ASK)
        told = await wire.until(COMMENT)
        gate.set()
        await until(lambda: len(s.engine.seen) == 2)
        body = body_of(told + await wire.until(b"0\r\n\r\n"))
        assert body.endswith(CHUNK + DONE)


async def test_the_openai_client_passes_over_the_comments_and_shows_the_reasoning() -> None:
    for conditions in (COMMENTS, REASONING):
        async with (
            stage(stream(CHUNK, DONE), conditions=conditions) as s,
            openai.AsyncOpenAI(base_url=s.url("/v1"), api_key="any", max_retries=0) as client,
        ):
            s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
            chunks = await client.chat.completions.create(
                model="a", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            gate.set()
            text = [chunk.choices[0].delta.content async for chunk in chunks]
            assert [one for one in text if one] == ["one"]


async def test_the_usual_clients_raise_what_ends_a_told_stream() -> None:
    async with (
        stage(stream(DONE), conditions=COMMENTS) as s,
        openai.AsyncOpenAI(base_url=s.url("/v1"), api_key="any", max_retries=0) as client,
    ):
        s.bench.actor("a").script.append(Fails(gate=(gate := anyio.Event())))
        chunks = await client.chat.completions.create(
            model="a", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        gate.set()
        with pytest.raises(openai.APIError, match="truncated"):
            async for _ in chunks:
                pass


async def test_the_anthropic_client_passes_over_the_comments_and_raises_what_ends_them() -> None:
    async with (
        stage(stream(MESSAGE), conditions=COMMENTS) as s,
        anthropic.AsyncAnthropic(base_url=s.url(""), api_key="any", max_retries=0) as client,
    ):
        for model, outcome in (("a", Loads), ("b", Fails)):
            s.bench.actor(model).script.append(outcome(gate=(gate := anyio.Event())))
            events = await client.messages.create(
                model=model, max_tokens=9, messages=[{"role": "user", "content": "x"}], stream=True
            )
            gate.set()
            if outcome is Loads:
                assert [event.type async for event in events] == ["message_start", "message_stop"]
                continue
            with pytest.raises(anthropic.APIError, match="truncated"):
                async for _ in events:
                    pass
