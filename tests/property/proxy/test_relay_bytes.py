"""What is relayed is what the engine sent, however it was cut."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.chunks import LAST, framed
from mtpd.proxy.outcomes import UpstreamLostError
from mtpd.proxy.usage import Summary, Tap
from tests.fakes.streams import chunked, events
from tests.fakes.wire import answered

if TYPE_CHECKING:
    from collections.abc import Awaitable

CHUNKINGS = 10_000
STREAMS = 500
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Taker:
    """The client's side: takes pieces, and now and then has no room for more."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.came, self.tap = hashlib.sha256(), Tap(sse=True)
        self._rng, self._full = rng, False

    def take(self, piece: bytes) -> bool:
        assert not self._full, "a piece was handed on where there was no room"
        assert piece, "an empty piece would be the end"
        self.came.update(piece)
        self.tap.feed(piece)
        self._full = self._rng is not None and self._rng.random() < 0.1
        return not self._full

    async def room(self) -> None:
        if self._full:
            await anyio.lowlevel.checkpoint()
            self._full = False

    async def wait(self, coming: Awaitable[None]) -> None:
        await coming


async def relayed(reads: list[bytes], *, rng: random.Random | None = None) -> tuple[bytes, Summary]:
    """What came out at the client's side, and what the copy said."""
    answer, wire = answered(reads[0])
    taker = Taker(rng)
    relaying = asyncio.get_running_loop().create_task(answer.relay(taker))
    for data in reads[1:]:
        while not wire.reading:
            await anyio.lowlevel.checkpoint()
        wire.feed(data)
    await relaying
    return taker.came.digest(), taker.tap.summary()


def sent(pieces: list[bytes]) -> bytes:
    """A whole response, one chunk for every piece."""
    return HEAD + b"".join(map(framed, pieces)) + LAST


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_byte_arrives_in_order_in_ten_thousand_chunkings() -> None:
    rng = random.Random(5)  # noqa: S311 - a reproducible chunking
    for _ in range(STREAMS):
        whole = events(rng)
        digest, expected = await relayed([sent([whole])])
        assert digest == hashlib.sha256(whole).digest()
        assert expected.complete
        for number in range(CHUNKINGS // STREAMS):
            # The engine's chunks and what is read at once are cut apart from each other.
            reads = chunked(sent(chunked(whole, rng)), rng)
            slow = rng if number % 4 == 0 else None
            assert await relayed(reads, rng=slow) == (digest, expected)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=30), st.integers(1, 200))
async def test_bytes_that_are_no_stream_arrive_all_the_same(chunks: list[bytes], step: int) -> None:
    wire = sent(chunks)
    reads = [wire[a:b] for a, b in pairwise([*range(0, len(wire), step), len(wire)])]
    digest, _ = await relayed(reads)
    assert digest == hashlib.sha256(b"".join(chunks)).digest()


BEGUN = st.sampled_from([b"", HEAD, HEAD + b"5\r\nwhole\r\n"])


@given(BEGUN, st.lists(st.binary(min_size=1, max_size=200), max_size=10))
async def test_whatever_an_engine_says_ends_as_a_whole_response_or_a_lost_one(
    begun: bytes, reads: list[bytes]
) -> None:
    answer, wire = answered(begun)
    for data in reads:
        if wire.reading and not wire.closed:
            wire.feed(data)
    wire.end()
    with suppress(UpstreamLostError):
        while await answer.chunk():
            pass
    assert answer.over


@given(st.binary(max_size=400), st.integers(1, 50))
def test_the_copy_says_the_same_in_any_chunking(whole: bytes, step: int) -> None:
    at_once, cut = Tap(sse=True), Tap(sse=True)
    at_once.feed(whole)
    for start in range(0, len(whole), step):
        cut.feed(whole[start : start + step])
    assert at_once.summary() == cut.summary()
