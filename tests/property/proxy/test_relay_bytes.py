"""What is relayed is what the engine sent, however it was cut."""

from __future__ import annotations

import hashlib
import random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.relay import pass_on
from mtpd.proxy.usage import Summary, Tap
from tests.fakes.streams import chunked, events

CHUNKINGS = 10_000
STREAMS = 500


async def relayed(chunks: list[bytes], *, slowly: bool = False) -> tuple[bytes, Summary]:
    """What came out at the client's side, and what the copy said; a slow client yields."""
    left, out, sending = list(chunks), hashlib.sha256(), False
    tap = Tap(sse=True)

    async def more() -> bytes:
        assert not sending, "the next chunk was taken before the last one was sent"
        return left.pop(0) if left else b""

    async def send(data: bytes) -> None:
        nonlocal sending
        sending = True
        if slowly:
            await anyio.lowlevel.checkpoint()
        out.update(data)
        sending = False

    await pass_on(await more(), more, send, tap)
    assert not left
    return out.digest(), tap.summary()


@pytest.mark.slow
async def test_every_byte_arrives_in_order_in_ten_thousand_chunkings() -> None:
    rng = random.Random(5)  # noqa: S311 - a reproducible chunking
    for _ in range(STREAMS):
        whole = events(rng)
        digest, expected = await relayed([whole], slowly=True)
        assert digest == hashlib.sha256(whole).digest()
        assert expected.complete
        for number in range(CHUNKINGS // STREAMS):
            slowly = number == 0
            assert await relayed(chunked(whole, rng), slowly=slowly) == (digest, expected)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30))
async def test_bytes_that_are_no_stream_arrive_all_the_same(chunks: list[bytes]) -> None:
    digest, _ = await relayed(chunks)
    assert digest == hashlib.sha256(b"".join(chunks)).digest()


@given(st.binary(max_size=400), st.integers(1, 50))
def test_the_copy_says_the_same_in_any_chunking(whole: bytes, step: int) -> None:
    at_once, cut = Tap(sse=True), Tap(sse=True)
    at_once.feed(whole)
    for start in range(0, len(whole), step):
        cut.feed(whole[start : start + step])
    assert at_once.summary() == cut.summary()
