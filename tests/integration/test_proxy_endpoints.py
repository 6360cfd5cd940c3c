from __future__ import annotations

import asyncio
import gzip
import io
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from mtpd.proxy.body import Bodies
from mtpd.proxy.endpoints import ENDPOINTS, FORMS, Endpoint
from mtpd.types import UnixEndpoint
from tests.fakes.actors import Fails
from tests.fakes.board import arm, until
from tests.fakes.front import JSON, Stage, stage
from tests.fakes.upstream import Conversation, json_reply, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REPLY = b'{"tokens":[1]}'
TRANSCRIBE = "/v1/audio/transcriptions"
BOUNDARY = "x-boundary"


def part(name: str, value: bytes, more: str = "") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
KIND = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


# JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
async def test_every_endpoint_reaches_the_engine_with_the_same_bytes(endpoint: Endpoint) -> None:
    path, target = endpoint.path, endpoint.target
    raw = b'{ "model":"alias-of-a", "x":1e2}\n'
    async with stage(json_reply(REPLY)) as s:
        response, body = await s.post(f"{path}?beta=true", data=raw)
        assert (response.status, body) == (200, REPLY)
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == (f"POST {target} HTTP/1.1", raw)
        assert s.finished[0].path == path


@pytest.mark.parametrize("path", ["/slots", "/tools", "/lora-adapters", "/v1/stream", "/predict"])
async def test_other_paths_of_the_engine_are_not_there(path: str) -> None:
    async with stage(json_reply(REPLY)) as s:
        response, _ = await s.post(path)
        assert response.status in {404, 405}
        assert s.engine.seen == []


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_the_models_are_listed_under_both_names(path: str) -> None:
    async with stage(json_reply(REPLY)) as s, s.session.get(s.url(path)) as response:
        assert [card["id"] for card in (await response.json())["data"]] == ["a", "b"]


# Requests that need no slot ------------------------------------------------------------


@pytest.mark.parametrize("path", [e.path for e in ENDPOINTS if e.light])
async def test_counting_does_not_wait_for_the_generation_that_has_the_slot(path: str) -> None:
    async def busy(talk: Conversation) -> None:
        if talk.line.startswith("POST /completion "):
            await talk.head({"Content-Type": "text/event-stream"})
            await talk.raw(b": x\n\n")
            await talk.until_gone()
        await json_reply(REPLY)(talk)

    async with stage(busy) as s:
        wire = await s.connect(b'{"model":"a"}', "/completion")
        await wire.until(b": x\n\n")
        with anyio.fail_after(5):
            response, body = await s.post(path)
            assert (response.status, body) == (200, REPLY)
            async with s.session.get(s.url("/props?model=a")) as reply:
                assert reply.status == 200
        assert s.bench.board.queue().in_flight == 1
        wire.leave()


async def test_counting_loads_a_model_that_is_not_there_and_waits_behind_a_measurement() -> None:
    async with stage(json_reply(REPLY)) as s:
        response, _ = await s.post("/tokenize", model="b")
        assert response.headers["X-Mtpd-Profile"] == "b"
        async with anyio.create_task_group() as tasks:
            async with s.bench.board.hold(reason="measuring"):
                tasks.start_soon(lambda: s.post("/tokenize", model="b"))
                await until(lambda: s.bench.board.queue().waiting == 1)
                assert len(s.engine.seen) == 1
        assert len(s.engine.seen) == 2


async def test_counting_that_is_cut_by_a_switch_is_done_by_the_next_engine() -> None:
    async def first_silent(talk: Conversation) -> None:
        await (talk.until_gone() if len(s.engine.seen) == 2 else json_reply(REPLY)(talk))

    async with stage(first_silent) as s, anyio.create_task_group() as tasks:
        await s.post("/tokenize")

        async def ask() -> None:
            response, body = await s.post("/tokenize")
            assert body == REPLY
            assert response.headers["X-Mtpd-Depth"] == "3"
            assert response.headers["X-Mtpd-Attempt"] == "2"

        tasks.start_soon(ask)
        await until(lambda: len(s.engine.seen) == 2)
        s.bench.chosen["a"] = arm("a", 3)
        await s.bench.board.switch(arm("a", 3), reason="now")


# Properties ---------------------------------------------------------------------------


async def test_properties_come_from_the_models_engine_without_its_paths() -> None:
    whole = {"total_slots": 1, "model_path": "/home/me/x.gguf", "bos_token": "<s>", "ui": True}
    async with stage(json_reply(json.dumps(whole).encode())) as s:
        async with s.session.get(s.url("/props?model=alias-of-a")) as response:
            assert await response.json() == {"total_slots": 1, "bos_token": "<s>"}
            assert response.headers["X-Mtpd-Instance"] == "life-1"
        assert s.engine.seen[0].line == "GET /props HTTP/1.1"
        assert s.bench.board.queue().in_flight == 0
        async with s.session.get(s.url("/props?model=nobody")) as response:
            assert response.status == 404


async def test_properties_of_an_engine_that_cannot_start_or_breaks_off_are_an_error() -> None:
    async def dying(talk: Conversation) -> None:
        talk.kill()

    async with stage(dying) as s:
        s.bench.actor("b").script.append(Fails())
        async with s.session.get(s.url("/props?model=b")) as response:
            assert response.status == 503
        async with s.session.get(s.url("/props?model=a")) as response:
            assert response.status == 502


@pytest.mark.parametrize("reply", [b"[]", b"nonsense", b"[" * 5_000_000])
async def test_properties_that_are_none_are_an_error(reply: bytes) -> None:
    async with stage(json_reply(reply)) as s:
        async with s.session.get(s.url("/props?model=a")) as response:
            assert response.status == 502


# /upstream ----------------------------------------------------------------------------


async def test_upstream_reaches_an_endpoint_of_the_named_engine_with_its_query() -> None:
    async with stage(json_reply(REPLY)) as s:
        await s.post("/upstream/b/tokenize?x=%20y", data=b'{"model":"a"}')
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == ("POST /tokenize?x=%20y HTTP/1.1", b'{"model":"a"}')
        assert s.finished[0].profile == "b"


async def test_upstream_reads_metrics_and_hides_what_belongs_to_others() -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.get(s.url("/upstream/a/metrics")) as response:
            assert response.status == 200
        for method, path in (("GET", "slots"), ("POST", "slots/0"), ("POST", "props")):
            async with s.session.request(method, s.url(f"/upstream/a/{path}")) as response:
                assert response.status == 403
                assert (await response.json())["error"]["code"] == "control_socket_only"
        assert len(s.engine.seen) == 1


async def test_upstreams_properties_are_the_subset_unless_the_owner_asks() -> None:
    whole = b'{"total_slots":1,"model_path":"/p"}'
    async with stage(json_reply(whole)) as s:
        async with s.session.get(s.url("/upstream/a/props")) as response:
            assert await response.json() == {"total_slots": 1}
        s.owned.append("everything")
        async with s.session.get(s.url("/upstream/a/props")) as response:
            assert await response.read() == whole


async def test_the_owner_reaches_all_of_an_engine_with_any_method() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.owned.append("everything")
        url = s.url("/upstream/a/slots/0?action=erase")
        async with s.session.put(url, data=b"x") as response:
            assert await response.read() == REPLY
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == ("PUT /slots/0?action=erase HTTP/1.1", b"x")


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("POST", 308)])
async def test_a_missing_slash_behind_the_name_is_a_redirect(method: str, status: int) -> None:
    async with stage(json_reply(REPLY)) as s:
        url = s.url("/upstream/alias-of-a")
        async with s.session.request(method, url, allow_redirects=False) as response:
            assert response.status == status
            assert response.headers["Location"] == "/upstream/alias-of-a/"


async def test_upstream_of_an_unknown_model_is_not_found() -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.get(s.url("/upstream/alias-of-b/health")) as response:
            assert response.status == 404
            assert "did you mean 'alias-of-a'?" in (await response.json())["error"]["message"]


# Forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [endpoint.path for endpoint in FORMS])
async def test_a_form_reaches_the_engine_of_its_model_unchanged(path: str) -> None:
    audio = bytes(range(256)) * 2048
    raw = part("model", b"b") + part("file", audio, '; filename="a.wav"') + END
    async with stage(json_reply(REPLY)) as s:
        async with s.session.post(s.url(path), data=raw, headers=KIND) as response:
            assert await response.read() == REPLY
        (seen,) = s.engine.seen
        assert seen.line == f"POST {TRANSCRIBE} HTTP/1.1"
        assert seen.body == raw
        assert seen.headers["Content-Type"] == KIND["Content-Type"]
        assert s.finished[0].profile == "b"


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

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "e.sock"
        server = await asyncio.start_unix_server(serve, path)
        s.bench.endpoints["b"] = UnixEndpoint(str(path))
        try:
            yield began, got
        finally:
            server.close()


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
    bodies = Bodies(limit=2_000_000)
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
    async with stage(json_reply(REPLY), bodies=Bodies(idle_s=0.05)) as s, slow_form(s, raw):
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
        with anyio.fail_after(1):
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


# Streams of the newer protocols -------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (
            "/v1/responses",
            b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
        ),
    ],
)
async def test_the_newer_streams_are_complete_with_their_own_end(path: str, last: bytes) -> None:
    async with stage(stream(b'data: {"type":"x"}\n\n', last)) as s:
        _, body = await s.post(path, stream=True)
        assert body.endswith(last)
        assert s.finished[0].outcome == "complete"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/upstream/a/v1/messages"])
async def test_the_newer_streams_tell_a_lost_engine_by_a_named_event(path: str) -> None:
    async with stage(stream(b'event: x\ndata: {"type":"x"}\n\n')) as s:
        wire = await s.connect(b'{"model":"a","stream":true}', path)
        whole = await wire.rest()
        assert b'\nevent: error\ndata: {"type": "error", "error": {"message": ' in whole
        assert not whole.endswith(b"0\r\n\r\n")
        assert s.finished[0].outcome == "upstream_lost"


async def test_a_stream_is_not_held_back_by_a_proxy_in_front() -> None:
    async with stage(stream(b"data: [DONE]\n\n")) as s:
        response, _ = await s.post(stream=True)
        assert response.headers["X-Accel-Buffering"] == "no"


async def test_an_error_has_the_outer_fields_of_every_protocol() -> None:
    async with stage(json_reply(REPLY)) as s:
        response, body = await s.post("/v1/messages", model="nobody")
        assert response.status == 404
        parsed = json.loads(body)
        assert (parsed["type"], parsed["src"]) == ("error", "mtpd")
        assert parsed["error"]["code"] == "model_not_found"
