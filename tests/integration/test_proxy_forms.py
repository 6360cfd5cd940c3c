"""Multipart forms on their way through, with real sockets and a scripted engine."""

from __future__ import annotations

import asyncio
import gzip
import io
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from mtpd.proxy.body import Bodies
from mtpd.proxy.endpoints import FORMS, Endpoint
from mtpd.types import UnixEndpoint
from tests.fakes.board import until
from tests.fakes.front import JSON, Stage, bounds, stage
from tests.fakes.patience import SOON_S
from tests.fakes.upstream import Conversation, json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

REPLY = b'{"text":"x"}'
TRANSCRIBE = "/v1/audio/transcriptions"
BOUNDARY = "x-boundary"


def part(name: str, value: bytes, more: str = "") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
KIND = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


@pytest.mark.parametrize("endpoint", FORMS, ids=lambda endpoint: endpoint.path)
async def test_a_form_reaches_the_engine_of_its_model_unchanged(endpoint: Endpoint) -> None:
    audio = bytes(range(256)) * 2048
    raw = part("model", b"b") + part("file", audio, '; filename="a.wav"') + END
    async with stage(json_reply(REPLY)) as s:
        async with s.session.post(s.url(endpoint.path), data=raw, headers=KIND) as response:
            assert await response.read() == REPLY
        (seen,) = s.engine.seen
        assert seen.line == f"POST {endpoint.target} HTTP/1.1"
        assert seen.body == raw
        assert seen.headers["Content-Type"] == KIND["Content-Type"]
        assert s.finished[0].profile == "b"


async def test_a_form_carries_the_name_that_its_engine_knows() -> None:
    file = part("file", bytes(range(256)) * 2048, '; filename="a.wav"')
    raw = part("language", b"en") + part("model", b"a") + file + END
    async with stage(json_reply(REPLY), called={"a": "vendor/whisper-large"}) as s:
        async with s.session.post(s.url(TRANSCRIBE), data=raw, headers=KIND) as response:
            assert await response.read() == REPLY
        (seen,) = s.engine.seen
        assert seen.body == raw.replace(part("model", b"a"), part("model", b"vendor/whisper-large"))
        assert seen.headers["Content-Length"] == str(len(seen.body))


@asynccontextmanager
async def raw_engine(s: Stage, serve: Serve) -> AsyncIterator[None]:
    """An engine for "b" that reads its requests itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "e.sock"
        server = await asyncio.start_unix_server(serve, path)
        s.bench.endpoints["b"] = UnixEndpoint(str(path))
        try:
            yield
        finally:
            server.close()


@asynccontextmanager
async def slow_form(s: Stage, raw: bytes) -> AsyncIterator[tuple[anyio.Event, bytearray]]:
    """An engine that says when a form's first bytes have arrived, and what came in all."""
    began, got = anyio.Event(), bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while len(got) < len(raw) and (data := await reader.read(65536)):
            got.extend(data)
            began.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with raw_engine(s, serve):
        yield began, got


async def test_a_form_is_on_its_way_before_the_client_has_sent_all_of_it() -> None:
    audio = b"a" * 300_000
    raw = part("model", b"b") + part("file", audio, '; filename="a"') + END
    async with stage(json_reply(REPLY)) as s, slow_form(s, raw) as (began, got):

        async def slowly() -> AsyncIterator[bytes]:
            yield raw[:1000]
            with anyio.fail_after(5):
                await began.wait()
            yield raw[1000:]

        headers = {**KIND, "Content-Length": str(len(raw))}
        url = s.url(TRANSCRIBE)
        async with s.session.post(url, data=slowly(), headers=headers) as response:
            assert response.status == 200
        assert bytes(got) == raw


async def test_a_model_behind_the_file_is_found_and_a_form_without_one_means_the_default() -> None:
    file = part("file", b"a" * 100_000, '; filename="a"')
    async with stage(json_reply(REPLY)) as s:
        for raw in (file + part("model", b"b") + END, file + END):
            await s.session.post(s.url(TRANSCRIBE), data=raw, headers=KIND)
        assert [event.profile for event in s.finished] == ["b", "a"]
        assert s.engine.seen[0].body == file + part("model", b"b") + END


@pytest.mark.parametrize(
    ("raw", "headers", "status", "code"),
    [
        (part("model", b"nobody") + END, KIND, 404, "model_not_found"),
        (b"{}", JSON, 415, "unsupported_media_type"),
        (
            gzip.compress(END, mtime=0),
            {**KIND, "Content-Encoding": "gzip"},
            415,
            "unsupported_encoding",
        ),
        (part("model", b"\xff") + END, KIND, 400, "invalid_body"),
    ],
)
async def test_a_form_that_cannot_be_served_is_told_why(
    raw: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.post(s.url(TRANSCRIBE), data=raw, headers=headers) as response:
            assert response.status == status
            assert (await response.json())["error"]["code"] == code
        assert s.engine.seen == []


async def test_a_form_that_ends_before_its_last_boundary_means_the_default() -> None:
    async with stage(json_reply(REPLY)) as s:
        raw = part("file", b"a")
        await s.session.post(s.url(TRANSCRIBE), data=raw, headers=KIND)
        assert (s.finished[0].profile, s.engine.seen[0].body) == ("a", raw)


async def test_a_model_behind_more_than_is_held_is_not_looked_for() -> None:
    bodies = Bodies(lambda: bounds(body_bytes=2_000_000))
    async with stage(json_reply(REPLY), bodies=bodies) as s:
        late = io.BytesIO(part("file", b"a" * 3_000_000) + part("model", b"b") + END)
        async with s.session.post(s.url(TRANSCRIBE), data=late, headers=KIND) as response:
            assert response.status == 413
        first = io.BytesIO(part("model", b"b") + part("file", b"a" * 3_000_000) + END)
        async with s.session.post(s.url(TRANSCRIBE), data=first, headers=KIND) as response:
            assert response.status == 200
        await until(lambda: bodies.held == 0)


async def test_a_form_that_stops_arriving_is_given_up_and_frees_the_engine() -> None:
    raw = part("model", b"b") + part("file", b"a" * 300_000) + END
    async with (
        stage(json_reply(REPLY), bodies=Bodies(lambda: bounds(idle_s=0.05))) as s,
        slow_form(s, raw),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        head = f"POST {TRANSCRIBE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n"
        writer.write((head + f"Content-Type: {KIND['Content-Type']}\r\n\r\n").encode())
        writer.write(raw[:1000])
        with anyio.fail_after(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.transport.abort()
        assert (s.finished[0].outcome, s.finished[0].status) == ("failed", 408)
        assert s.bench.board.queue().in_flight == 0


async def test_a_client_that_leaves_in_the_middle_of_a_form_frees_the_engine() -> None:
    raw = part("model", b"b") + part("file", b"a" * 300_000) + END
    async with stage(json_reply(REPLY)) as s, slow_form(s, raw) as (began, _):
        _reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        head = f"POST {TRANSCRIBE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n"
        kind = f"Content-Type: {KIND['Content-Type']}\r\n\r\n"
        writer.write((head + kind).encode() + raw[:1000])
        await began.wait()
        writer.transport.abort()
        with anyio.fail_after(SOON_S):
            await until(lambda: s.finished)
        assert s.finished[0].outcome == "client_gone"
        assert s.bench.board.queue().in_flight == 0


async def test_a_form_is_sent_once_more_only_while_it_can_be_sent_from_its_beginning() -> None:
    whole = part("model", b"a") + part("file", b"a" * 10) + END
    huge = part("model", b"a") + part("file", b"a" * 900_000) + END

    async def dying(talk: Conversation) -> None:
        talk.kill()

    async with stage(dying) as s:
        for raw, tries in ((whole, 2), (huge, 1)):
            s.engine.seen.clear()
            body = io.BytesIO(raw)
            async with s.session.post(s.url(TRANSCRIBE), data=body, headers=KIND) as response:
                assert response.status == 502
            assert len(s.engine.seen) == tries


async def test_an_engine_that_refuses_a_form_is_heard() -> None:
    refusal = b'{"error":{"code":501,"message":"no audio"}}'
    async with stage(json_reply(refusal, "501 Not Implemented")) as s:
        form = aiohttp.FormData({"model": "a"})
        form.add_field("file", b"a" * 200_000, filename="a.wav")
        async with s.session.post(s.url(TRANSCRIBE), data=form) as response:
            assert (response.status, await response.read()) == (501, refusal)


async def test_a_form_beyond_the_limit_is_refused_whether_or_not_it_says_its_size() -> None:
    raw = part("model", b"b") + part("file", b"a" * 300_000) + END

    async def unsized(first: int) -> AsyncIterator[bytes]:
        yield raw[:first]
        await began.wait()
        yield raw[first:]

    bodies = Bodies(lambda: bounds(form_bytes=200_000))
    async with stage(json_reply(REPLY), bodies=bodies) as s, slow_form(s, raw) as (began, _):
        for data in (raw, unsized(len(raw)), unsized(1000)):
            async with s.session.post(s.url(TRANSCRIBE), data=data, headers=KIND) as response:
                assert response.status == 413
                assert (await response.json())["error"]["code"] == "body_too_large"
        assert s.bench.board.queue().in_flight == 0


async def test_a_form_of_unknown_length_is_passed_on_in_chunks() -> None:
    raw = part("model", b"b") + part("file", b"a" * 200_000) + END
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked\r\n" in head
        while size := int(await reader.readline(), 16):
            got.extend(await reader.readexactly(size))
            await reader.readexactly(2)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def pieces() -> AsyncIterator[bytes]:
        yield raw[:1000]
        yield raw[1000:]

    async with stage(json_reply(REPLY)) as s, raw_engine(s, serve):
        async with s.session.post(s.url(TRANSCRIBE), data=pieces(), headers=KIND) as response:
            assert (response.status, await response.read()) == (200, b"{}")
        assert bytes(got) == raw


async def test_a_refusal_is_passed_on_before_the_client_has_sent_all_of_its_form() -> None:
    raw = part("model", b"b") + part("file", b"a" * 300_000) + END

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\n{}")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with stage(json_reply(REPLY)) as s, raw_engine(s, serve):
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        head = f"POST {TRANSCRIBE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n"
        writer.write((head + f"Content-Type: {KIND['Content-Type']}\r\n\r\n").encode())
        writer.write(raw[:1000])
        with anyio.fail_after(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            await until(lambda: s.finished)
        writer.transport.abort()
        assert (s.finished[0].outcome, s.finished[0].status) == ("failed", 413)
        assert s.bench.board.queue().in_flight == 0
