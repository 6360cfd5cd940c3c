"""What the usual clients make of an engine that is lost in the middle of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import openai
import pytest

from tests.fakes.front import stage
from tests.fakes.upstream import SSE, Conversation

if TYPE_CHECKING:
    from tests.fakes.upstream import Script

CHAT = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"a",'
    b'"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}\n\n'
)
MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message",'
    b'"role":"assistant","content":[],"model":"a","stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":1,"output_tokens":0}}}\n\n'
)
CREATED = b'event: response.in_progress\ndata: {"type":"response.in_progress"}\n\n'


def dies_after(first: bytes) -> Script:
    async def play(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(first)
        talk.kill()

    return play


async def test_the_openai_client_raises_instead_of_ending_quietly() -> None:
    async with (
        stage(dies_after(CHAT)) as s,
        openai.AsyncOpenAI(base_url=s.url("/v1"), api_key="any", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(
            model="a", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(openai.APIError, match="engine"):
            async for _ in stream:
                pass
        s.engine.script = dies_after(CREATED)
        events = await client.responses.create(model="a", input="hi", stream=True)
        with pytest.raises(openai.APIError, match="engine"):
            async for _ in events:
                pass


async def test_the_anthropic_client_raises_instead_of_ending_quietly() -> None:
    async with (
        stage(dies_after(MESSAGE)) as s,
        anthropic.AsyncAnthropic(base_url=s.url(""), api_key="any", max_retries=0) as client,
    ):
        stream = await client.messages.create(
            model="a", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(anthropic.APIError, match="engine"):
            async for _ in stream:
                pass
