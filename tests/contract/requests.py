"""The requests of the contract suite, and a stream read event by event."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from mtpd.engine.client import EngineClient

__all__ = ["MTP", "PROMPT", "chat", "completion", "endless", "going_on"]

MTP = ("--spec-type", "draft-mtp", "--spec-draft-n-max")
QUESTION = "What is json.loads?"
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


def completion(tokens: int, **more: Any) -> dict[str, Any]:
    """A body for `/completion` that is the same every time."""
    return {"prompt": PROMPT, "n_predict": tokens, "temperature": 0, "seed": 1} | more


def going_on(tokens: int, made: Sequence[int] = ()) -> dict[str, Any]:
    """A completion that goes on after its own tokens, and returns the next ones."""
    return completion(tokens, prompt=[PROMPT, *made], return_tokens=True)


def chat(client: EngineClient, *, tokens: int) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """The events of a chat stream."""
    messages = [{"role": "user", "content": QUESTION}]
    body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return _events(client, "/v1/chat/completions", body | {"stream": True})


def endless(client: EngineClient) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """The events of a completion that ends only with the context."""
    return _events(client, "/completion", completion(1_000_000, stream=True, ignore_eos=True))


@asynccontextmanager
async def _events(
    client: EngineClient, path: str, body: dict[str, Any]
) -> AsyncIterator[AsyncIterator[str]]:
    """The data of each event; a connection that breaks ends them."""
    async with client.open("POST", path, body=json.dumps(body).encode()) as response:

        async def data() -> AsyncIterator[str]:
            with suppress(aiohttp.ClientError):
                async for line in response.content:
                    if line.startswith(b"data: "):
                        yield line.removeprefix(b"data: ").decode().strip()

        yield data()
