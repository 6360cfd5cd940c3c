"""Streams through real sockets: every byte, every loss, every client that leaves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.fakes.board import until
from tests.fakes.front import CHAT, stage
from tests.fakes.patience import SOON_S
from tests.fakes.streams import chunked, events
from tests.fakes.upstream import DONE, SSE, Conversation, json_reply, stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from tests.fakes.front import Stage

ASK = b'{"model":"a","stream":true}'
CHUNKINGS = 300
KILLS = 500
LEAVERS = 200


@pytest.mark.slow
async def test_streams_arrive_byte_for_byte_through_sockets_in_any_chunking() -> None:
    rng = random.Random(9)  # noqa: S311 - a reproducible chunking
    async with stage(stream(DONE)) as s:
        for _ in range(CHUNKINGS):
            whole = events(rng)
            s.engine.script = stream(*chunked(whole, rng))
            _, body = await s.post(stream=True)
            assert hashlib.sha256(body).digest() == hashlib.sha256(whole).digest()
        assert [event.outcome for event in s.finished] == ["complete"] * CHUNKINGS


async def test_a_client_of_http_1_0_gets_the_bare_bytes_and_the_end_of_the_connection() -> None:
    async with stage(stream(b": one\n\n", b": two\n\n", DONE)) as s:
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        head = f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(ASK)}\r\n\r\n".encode() + ASK)
        with anyio.fail_after(10):
            head_sent, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b"chunked" not in head_sent.lower()
        assert body == b": one\n\n: two\n\n" + DONE


def body_of(wire: bytes) -> bytes:
    """The body of a chunked response, whether or not it ended."""

    def parts() -> Iterator[bytes]:
        rest = wire.partition(b"\r\n\r\n")[2]
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            yield rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]

    return b"".join(parts())


@pytest.mark.slow
async def test_an_engine_killed_at_any_byte_of_its_stream_is_seen_by_every_client() -> None:
    rng = random.Random(13)  # noqa: S311 - a reproducible offset
    async with stage(stream(DONE)) as s:
        for number in range(KILLS):
            whole = events(rng)
            sent = whole[: rng.randint(1, len(whole) - len(DONE))]
            chunks = chunked(sent, rng)

            async def dying(talk: Conversation, chunks: list[bytes] = chunks) -> None:
                await talk.head(SSE)
                for chunk in chunks:
                    await talk.chunk(chunk)
                talk.kill()

            s.engine.script = dying
            wire = await s.connect(ASK)
            raw = await wire.rest()
            wire.leave()
            body = body_of(raw)
            assert not raw.endswith(b"0\r\n\r\n"), "it looks whole"
            tail = body.rpartition(b"data: ")[2]
            assert json.loads(tail)["error"]["type"] == "upstream_lost"
            came = body.rpartition(b"data: ")[0].removesuffix(b"\n\n")
            assert sent.startswith((came, came + b"\n\n"))
            assert s.finished[number].outcome == "upstream_lost"
        assert len(s.engine.seen) == KILLS, "nothing is sent twice"


# Back-pressure ------------------------------------------------------------------------

PIECE = b": " + b"x" * 65_534
PIECES = 1024
AHEAD_MOST = 16 * 1024 * 1024
"""Of 64 MiB: the kernel's buffers of two connections (4 MiB each way by default) and the
relay's own limits, which are 128 KiB to read and 64 KiB to write."""


async def test_a_client_that_reads_slowly_slows_the_engine_and_fills_no_memory() -> None:
    sent = 0

    async def flood(talk: Conversation) -> None:
        nonlocal sent
        await talk.head({"Content-Type": "text/event-stream"})
        for _ in range(PIECES):
            await talk.raw(PIECE)
            sent += len(PIECE)

    async with stage(flood) as s:
        sock = socket.create_connection(("127.0.0.1", s.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(ASK)}\r\n\r\n".encode() + ASK)
        got, ahead = 0, 0
        while got < PIECES * len(PIECE):
            # The engine may go on as far as it is let, before the client reads again.
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            ahead = max(ahead, sent - got)
            with anyio.fail_after(10):
                got += len(await reader.read(256 * 1024))
        writer.transport.abort()
    assert ahead < AHEAD_MOST


# Clients that leave -------------------------------------------------------------------


async def endless(talk: Conversation) -> None:
    """Silence, or a stream without end, as the request asks; until the other side goes."""
    if b"silent" not in talk.body:
        await talk.head(SSE)
        await talk.chunk(b'data: {"content":"1"}\n\n')
    await talk.until_gone()


async def reached(grows: Sized, length: int) -> None:
    await until(lambda: len(grows) >= length)


@pytest.mark.slow
async def test_two_hundred_clients_that_leave_free_the_engine() -> None:
    async with stage(endless) as s:
        for number in range(LEAVERS):
            silent = number % 2 == 0
            wire = await s.connect(b'{"model":"a","user":"silent"}' if silent else ASK)
            await reached(s.engine.seen, number + 1)
            if not silent:
                await wire.until(b'"1"}\n\n')
            wire.leave()
            with anyio.fail_after(SOON_S):
                await s.engine.seen[number].gone.wait()
                await reached(s.finished, number + 1)
            assert s.bench.board.queue().in_flight == 0
        assert [event.outcome for event in s.finished] == ["client_gone"] * LEAVERS


# Deadlines ----------------------------------------------------------------------------


async def deadline(s: Stage, milliseconds: str, body: bytes = ASK) -> tuple[int, bytes, str]:
    """Status, body and Retry-After of a request with a deadline."""
    headers = {"Content-Type": "application/json", "X-Mtpd-Deadline-Ms": milliseconds}
    async with s.session.post(s.url(), data=body, headers=headers) as response:
        return response.status, await response.read(), response.headers.get("Retry-After", "")


async def test_who_waits_longer_than_its_deadline_is_told_and_leaves_the_queue() -> None:
    async with stage(endless) as s:
        first = await s.connect(ASK)
        await first.until(b'"1"}\n\n')
        status, body, retry = await deadline(s, "30")
        assert (status, json.loads(body)["error"]["code"]) == (503, "queue_timeout")
        assert "within 30 ms" in json.loads(body)["error"]["message"]
        assert int(retry) >= 1
        assert s.bench.board.queue().waiting == 0
        assert len(s.engine.seen) == 1


@pytest.mark.slow
async def test_a_deadline_within_a_silent_prefill_ends_the_generation() -> None:
    async with stage(endless) as s:
        # Long enough to reach the engine on a busy machine.
        status, _, _ = await deadline(s, "1000", b'{"model":"a","user":"silent"}')
        assert status == 503
        with anyio.fail_after(SOON_S):
            await s.engine.seen[0].gone.wait()
        assert s.bench.board.queue().in_flight == 0
        assert (s.finished[0].outcome, s.finished[0].status) == ("rejected", 503)


@pytest.mark.slow
async def test_an_answer_that_has_begun_is_not_cut_by_the_deadline() -> None:
    async def over_time(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(b": early\n\n")
        await passed.wait()
        await talk.chunk(DONE)
        await talk.end()

    passed = anyio.Event()
    async with stage(over_time) as s, anyio.create_task_group() as tasks:
        tasks.start_soon(until_later, passed)
        status, body, _ = await deadline(s, "1000")
        assert (status, body) == (200, b": early\n\n" + DONE)


async def until_later(passed: anyio.Event) -> None:
    """Set the event once a deadline of 1000 ms must have passed."""
    with anyio.move_on_after(1.1):
        await anyio.sleep_forever()
    passed.set()


@pytest.mark.parametrize("asked", ["0", "-1", "1.5", "soon", "86400001", "1" * 400, "\u0663"])
async def test_a_deadline_that_is_no_number_of_milliseconds_is_refused(asked: str) -> None:
    async with stage(json_reply(b"{}")) as s:
        headers = {"Content-Type": "application/json", "X-Mtpd-Deadline-Ms": asked}
        async with s.session.post(s.url(), data=ASK, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "X-Mtpd-Deadline-Ms"
        assert s.engine.seen == []


async def test_who_is_turned_away_is_told_how_long_the_queue_will_take() -> None:
    async def ten_seconds(talk: Conversation) -> None:
        s.bench.clock.advance(10)
        await json_reply(b"{}")(talk)

    async with stage(ten_seconds) as s:
        await s.post()
        s.engine.script = endless
        running = await s.connect(ASK)
        await running.until(b'"1"}\n\n')
        async with anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(s.connect, ASK)
            await until(lambda: s.bench.board.queue().waiting == 64)
            response, _ = await s.post()
            assert response.status == 503
            # 64 of 10 s each, one at a time; two minutes is the most that is ever said.
            assert response.headers["Retry-After"] == "120"
            for wire in s.wires[20:]:
                wire.leave()
            await until(lambda: s.bench.board.queue().waiting < 20)
            status, _, retry = await deadline(s, "20")
            waiting = s.bench.board.queue().waiting
            assert (status, retry) == (503, str(min(120, waiting * 10)))
