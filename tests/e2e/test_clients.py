"""The usual clients, unmodified, against the daemon with the real engine."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import anyio
import openai
import pytest

from mtpd.config.data import bundled_model
from mtpd.errors import InvalidError
from tests.fakes.house import daemon_at, home, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anthropic.types import MessageParam

pytestmark = [pytest.mark.real_engine, pytest.mark.slow, pytest.mark.timeout(120)]
DOCS = Path(__file__).parents[2] / "docs" / "data_plane.md"
COLD = {"temperature": 0}
WHOLE: dict[str, Any] = {"temperature": 0, "extra_body": {"ignore_eos": True}}
"""The same text each time, and not ended before it is as long as was asked for."""


@asynccontextmanager
async def daemon() -> AsyncIterator[str]:
    """The address of a daemon over the embedded engine and a tiny model."""
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-chained.gguf"))
        async with daemon_at(place) as (running, _):
            yield running.url


async def test_the_openai_client_works_unmodified() -> None:
    async with daemon() as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            cards = {card.id async for card in client.models.list()}
            assert {"alpha", "beta", "both"} <= cards
            whole = await client.chat.completions.create(
                model="first",
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=6,
                **WHOLE,
            )
            assert whole.usage is not None
            assert whole.usage.completion_tokens == 6
            pieces: list[str] = []
            stream = await client.chat.completions.create(
                model="alpha",
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=6,
                stream=True,
                **WHOLE,
            )
            async for chunk in stream:
                pieces.extend(c.delta.content or "" for c in chunk.choices)
            assert "".join(pieces) == whole.choices[0].message.content
            text = await client.completions.create(
                model="alpha", prompt="hi", max_tokens=3, **WHOLE
            )
            assert text.usage is not None
            assert text.usage.completion_tokens == 3
            answer = await client.responses.create(
                model="alpha", input="hi", max_output_tokens=4, **WHOLE
            )
            assert answer.output_text
            # The client's stateful helper needs a content_index that the engine does not send.
            events = await client.responses.create(
                model="alpha", input="hi", max_output_tokens=4, stream=True, **WHOLE
            )
            kinds = [event.type async for event in events]
            assert kinds[-1] == "response.completed"


EMBEDS = """
[engine]
binary = "embedded"
threads = 1
[models.texts]
model = "bundled:tiny-chained.gguf"
context = 512
[models.vectors]
model = "bundled:tiny-chained.gguf"
context = 512
purpose = "embedding"
pooling = "mean"
"""


async def test_a_model_for_embeddings_embeds_and_is_not_tuned() -> None:
    async with home() as place:
        place.config.write_text('[server]\nlisten = "127.0.0.1:0"\n' + EMBEDS)
        async with (
            daemon_at(place) as (running, _),
            openai.AsyncOpenAI(
                base_url=f"{running.url}/v1", api_key="any", max_retries=0
            ) as client,
        ):
            found = await client.embeddings.create(model="vectors", input=["one", "two"])
            assert [one.index for one in found.data] == [0, 1]
            assert len({len(one.embedding) for one in found.data}) == 1
            assert found.data[0].embedding != found.data[1].embedding
            with pytest.raises(InvalidError, match="vectors generates no text"):
                await running.control.probe(model="vectors", depth=1, idempotency_key=None)


async def test_the_openai_client_understands_what_cannot_be_done() -> None:
    async with daemon() as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError) as unknown:
                await client.completions.create(model="alhpa", prompt="x")
            assert unknown.value.code == "model_not_found"
            assert "did you mean 'alpha'?" in unknown.value.message
            with pytest.raises(openai.InternalServerError, match="does not support embeddings"):
                await client.embeddings.create(model="alpha", input="x")
            with pytest.raises(openai.InternalServerError, match="does not support audio"):
                await client.audio.transcriptions.create(
                    model="alpha", file=("a.wav", io.BytesIO(b"RIFF" + bytes(200_000)))
                )


async def test_the_anthropic_client_works_unmodified() -> None:
    async with daemon() as url:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
            say: list[MessageParam] = [{"role": "user", "content": "hi"}]
            count = await client.messages.count_tokens(model="alpha", messages=say)
            assert count.input_tokens > 0
            whole = await client.messages.create(
                model="alpha", messages=say, max_tokens=6, extra_body=COLD
            )
            assert (whole.usage.output_tokens, whole.stop_reason) == (6, "max_tokens")
            async with client.messages.stream(
                model="alpha", messages=say, max_tokens=6, extra_body=COLD
            ) as stream:
                text = "".join([piece async for piece in stream.text_stream])
            (block,) = whole.content
            assert block.type == "text"
            assert text == block.text
            with pytest.raises(anthropic.NotFoundError, match="did you mean 'alpha'"):
                await client.messages.create(model="alhpa", messages=say, max_tokens=1)


async def test_curl_works_as_documented() -> None:
    commands = re.findall(r"^curl -fsSN? .*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 5
    async with daemon() as url:
        for command in commands:
            argv = shlex.split(command.replace("http://127.0.0.1:8080", url))
            ended = await anyio.run_process(argv, check=False)
            assert ended.returncode == 0, (command, ended.stderr)
            assert ended.stdout


RANKS = """
[engine]
binary = "embedded"
threads = 1
[models.ranks]
model = "bundled:tiny-chained.gguf"
context = 512
purpose = "rerank"
"""


async def test_a_model_for_ranking_ranks_and_is_not_tuned() -> None:
    async with home() as place:
        place.config.write_text('[server]\nlisten = "127.0.0.1:0"\n' + RANKS)
        async with daemon_at(place) as (running, client):
            body = {"model": "ranks", "query": "a", "documents": ["one", "two"]}
            for path in ("/v1/rerank", "/reranking"):
                async with client.post(path, json=body) as reply:
                    assert reply.status == 200
                    ranked = (await reply.json())["results"]
                # What a score is worth is the model's business: this one has no head for it.
                assert sorted(one["index"] for one in ranked) == [0, 1]
                assert all("relevance_score" in one for one in ranked)
            with pytest.raises(InvalidError, match="ranks generates no text"):
                await running.control.probe(model="ranks", depth=1, idempotency_key=None)
