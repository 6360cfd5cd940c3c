from __future__ import annotations

import asyncio
import gzip
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest
from aiohttp import web

from mtpd.proxy.body import Bodies
from mtpd.proxy.outcomes import UpstreamLostError
from mtpd.proxy.upstream import EndpointUpstream
from mtpd.types import TcpEndpoint
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import until
from tests.fakes.front import CHAT, JSON, bounds, stage
from tests.fakes.upstream import Upstream, json_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KIND = "application/json"
ASK = b'{"model":"a","stream":true}'
REPLY = b'{"choices":[{"message":{"content":"x"}}]}'


@pytest.mark.parametrize(
    ("data", "headers", "status", "code"),
    [
        (b'{"model":"A-"}', JSON, 404, "model_not_found"),
        (b'{"model"', JSON, 400, "invalid_body"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        (
            b"{}",
            {"Content-Type": "application/json; charset=latin-1"},
            415,
            "unsupported_media_type",
        ),
        (
            gzip.compress(b"{}", mtime=0),
            {**JSON, "Content-Encoding": "gzip"},
            415,
            "unsupported_encoding",
        ),
    ],
)
async def test_what_cannot_be_served_is_told_in_openais_shape(
    data: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.post(s.url(), data=data, headers=headers) as response:
            body = await response.json()
        assert response.status == status
        assert set(body["error"]) == {"message", "type", "code", "param"}
        assert body["error"]["code"] == code
        assert response.headers["X-Mtpd-Instance"] == "life-1"
        assert s.engine.seen == []


async def test_an_unknown_model_suggests_the_one_that_was_meant() -> None:
    async with stage(json_reply(REPLY)) as s:
        _, body = await s.post(model="alias-of-b")
        assert "did you mean 'alias-of-a'?" in json.loads(body)["error"]["message"]


async def test_a_declared_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    async with stage(json_reply(REPLY)) as s:
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {bounds().body_bytes + 1}\r\n\r\n".encode()
        )
        with anyio.fail_after(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.transport.abort()


async def test_the_models_are_listed_with_what_is_loaded() -> None:
    async with stage(json_reply(REPLY)) as s:
        await s.post()
        async with s.session.get(s.url("/v1/models")) as response:
            body = await response.json()
        assert body["object"] == "list"
        assert body["data"][0] == {
            "id": "a",
            "object": "model",
            "created": 1,
            "owned_by": "mtpd",
            "name": "a",
            "aliases": ["alias-of-a"],
            "context_length": 4096,
            "status": {"value": "loaded"},
            "meta": {
                "context": 4096,
                "n_ctx": 4096,
                "aliases": ["alias-of-a"],
                "status": "loaded",
                "mtpd": {
                    "profile": "a",
                    "slots": 2,
                    "tags": [],
                    "context_total": 8192,
                    "drafter": "none",
                    "depth": 0,
                    "residency": "host",
                },
            },
        }
        assert body["data"][1]["status"] == {"value": "unloaded"}
        assert body["data"][1]["meta"]["mtpd"]["depth"] is None


async def test_health_is_ok_while_a_model_loads_and_not_once_the_daemon_stops() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("a").script.append(Loads(anyio.Event()))
        wire = await s.connect(ASK)
        await until(lambda: s.bench.board.queue().waiting)
        async with s.session.get(s.url("/health")) as response:
            assert (response.status, await response.json()) == (200, {"status": "ok"})
        s.bench.board.close("the daemon is stopping")
        assert b"503" in await wire.until(b"\r\n")
        async with s.session.get(s.url("/health")) as response:
            assert response.status == 503
        wire.leave()


async def test_a_model_that_failed_is_listed_as_failed() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("b").script.append(Fails())
        await s.post(model="b")
        async with s.session.get(s.url("/v1/models")) as response:
            body = await response.json()
        assert [card["meta"]["status"] for card in body["data"]] == ["unloaded", "failed"]
        expected = {"value": "unloaded", "failed": True, "exit_code": 1}
        assert body["data"][1]["status"] == expected


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@asynccontextmanager
async def reading(bodies: Bodies) -> AsyncIterator[str]:
    """A server that says how much of a body it holds."""

    async def read(request: web.Request) -> web.Response:
        with bodies.counted() as buffer:
            refused = await bodies.read(request, buffer)
            return refused or web.json_response({"read": len(buffer)})

    app = web.Application()
    app.router.add_post("/", read)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, sock).start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
    finally:
        await runner.cleanup()


async def send(url: str, *chunks: bytes) -> int:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(url, data=pieces(*chunks), headers=JSON) as response:
                return response.status
        except aiohttp.ClientOSError:  # the server has hung up before it was all sent
            return 413


async def test_a_body_without_a_declared_length_is_refused_once_it_is_too_long() -> None:
    bodies = Bodies(lambda: bounds(body_bytes=100))
    async with reading(bodies) as url:
        assert await send(url, b"x" * 60, b"x" * 40) == 200
        assert await send(url, b"x" * 60, b"x" * 41, b"x" * 1000) == 413
        await until(lambda: bodies.held == 0)


async def test_bodies_that_are_too_large_together_are_refused_with_a_time_to_come_back() -> None:
    async with reading(Bodies(lambda: bounds(body_bytes=100, held_bytes=50))) as url:
        assert await send(url, b"x" * 51) == 503
        assert await send(url, b"x" * 50) == 200


async def test_a_body_that_stops_arriving_is_given_up() -> None:
    async with reading(Bodies(lambda: bounds(idle_s=0.05))) as url:
        port = int(url.rsplit(":", 1)[1].rstrip("/"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: {KIND}\r\nContent-Length: 9\r\n\r\n"
        writer.write(head.encode() + b"{")
        with anyio.fail_after(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.transport.abort()


async def test_an_engine_on_a_port_gets_its_own_key_and_nothing_else() -> None:
    made = Upstream(json_reply(REPLY))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay = EndpointUpstream(TcpEndpoint("127.0.0.1", port, "engine-key"))
    async with relay.open("POST", "/completion", headers={}, data=b"{}") as answer:
        assert (await answer.chunk(), await answer.chunk()) == (REPLY, b"")
    assert made.seen[0].headers["Authorization"] == "Bearer engine-key"
    server.close()
    await server.wait_closed()
    with pytest.raises(UpstreamLostError, match="hung up"):
        async with relay.open("POST", "/completion", headers={}, data=b"{}"):
            pass
    relay.close()
