from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest
from aiohttp import web

from mtpd.engine.client import EngineClient, Health
from mtpd.errors import UpstreamError
from mtpd.types import Absent, NotApplicable, TcpEndpoint, UnixEndpoint, Value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEY = "the-engines-own-key"


@asynccontextmanager
async def engine(handler: Handler, path: Path) -> AsyncIterator[EngineClient]:
    """A server on a unix socket that answers everything with one handler, and its client."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(path / "e.sock")).start()
    try:
        async with EngineClient(UnixEndpoint(str(path / "e.sock"))) as client:
            yield client
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine_on_a_port(handler: Handler) -> AsyncIterator[EngineClient]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0]
    try:
        async with EngineClient(TcpEndpoint("127.0.0.1", port, KEY)) as client:
            yield client
    finally:
        await runner.cleanup()


def answer(status: int, body: Any) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text)

    return handler


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"status": "ok"}, Health.OK),
        (503, {"error": {"code": 503, "message": "Loading model"}}, Health.LOADING),
        (503, {"error": "something else"}, Health.ERROR),
        (500, "", Health.ERROR),
    ],
)
async def test_health_is_told_by_status_and_message(
    status: int, body: Any, expected: Health, tmp_path: Path
) -> None:
    async with engine(answer(status, body), tmp_path) as client:
        assert await client.health() is expected


async def test_health_without_a_socket_file_is_refused(tmp_path: Path) -> None:
    async with EngineClient(UnixEndpoint(str(tmp_path / "none.sock"))) as client:
        assert await client.health() is Health.REFUSED


async def test_health_without_a_listener_on_the_port_is_refused() -> None:
    async with engine_on_a_port(answer(200, {})) as client:
        endpoint = client.endpoint

    async with EngineClient(endpoint) as late:
        assert await late.health() is Health.REFUSED


async def test_health_of_an_engine_that_hangs_up_is_an_error(tmp_path: Path) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with engine(hang_up, tmp_path) as client:
        assert await client.health() is Health.ERROR


async def test_the_engines_key_is_sent_and_the_clients_own_is_not() -> None:
    seen: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.json_response({})

    async with engine_on_a_port(handler) as client:
        sent = [("AUTHORIZATION", "Bearer user"), ("x-api-key", "user"), ("X-Trace", "7")]
        async with client.open("POST", "/completion", headers=sent, body=b"{}") as response:
            assert response.status == 200
        assert await client.health() is Health.OK

    for headers in seen:
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert "user" not in json.dumps(headers)
    assert seen[0]["X-Trace"] == "7"
    assert KEY not in repr(client.endpoint)


async def test_on_a_unix_socket_no_key_is_sent(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"authorization": request.headers.get("Authorization")})

    async with engine(handler, tmp_path) as client:
        sent = [("Authorization", "Bearer user")]
        async with client.open("GET", "/props", headers=sent) as response:
            assert await response.json() == {"authorization": None}


async def test_a_reply_is_relayed_as_it_came_and_redirects_are_not_followed(
    tmp_path: Path,
) -> None:
    packed = b"\x1f\x8b not really gzip"

    async def handler(request: web.Request) -> web.Response:
        assert "Accept-Encoding" not in request.headers
        if request.path == "/moved":
            raise web.HTTPFound("/elsewhere")
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    async with engine(handler, tmp_path) as client:
        async with client.open("GET", "/file") as response:
            assert await response.read() == packed
        async with client.open("GET", "/moved") as response:
            assert response.status == 302


async def test_closing_an_exchange_reaches_the_engine(tmp_path: Path) -> None:
    gone = anyio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: x\n\n")
                await anyio.sleep(0.01)
        finally:
            gone.set()

    async with engine(endless, tmp_path) as client:
        async with client.open("POST", "/completion") as response:
            await response.content.readline()
        with anyio.fail_after(5):
            await gone.wait()


async def test_a_completion_returns_the_reply(tmp_path: Path) -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path, "body": await request.json()})

    async with engine(echo, tmp_path) as client:
        reply = await client.complete("/completion", {"prompt": "x"}, timeout_s=5)

    assert reply == {"path": "/completion", "body": {"prompt": "x"}}


async def test_a_refused_completion_quotes_status_and_reason(tmp_path: Path) -> None:
    async with engine(answer(400, {"error": "too long"}), tmp_path) as client:
        assert await client.post_json("/completion", {}, timeout_s=5) == (
            400,
            {"error": "too long"},
        )
        with pytest.raises(UpstreamError, match=r"/completion with status 400: .*too long"):
            await client.complete("/completion", {}, timeout_s=5)


async def test_a_reply_that_is_no_json_is_quoted_in_part(tmp_path: Path) -> None:
    async with engine(answer(200, "<html>" + "x" * 1000), tmp_path) as client:
        with pytest.raises(UpstreamError, match=r"not JSON: <html>x{194}…$"):
            await client.post_json("/completion", {}, timeout_s=5)


async def test_a_reply_nested_without_end_is_no_json(tmp_path: Path) -> None:
    async with engine(answer(200, "[" * 100_000), tmp_path) as client:
        with pytest.raises(UpstreamError, match="not JSON"):
            await client.post_json("/completion", {}, timeout_s=5)


async def test_an_engine_that_does_not_answer_is_given_up_after_the_time(tmp_path: Path) -> None:
    async def hang(request: web.Request) -> web.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async with engine(hang, tmp_path) as client:
        with pytest.raises(UpstreamError, match=r"did not answer /completion: no answer within"):
            await client.post_json("/completion", {}, timeout_s=0.05)


@pytest.mark.parametrize("status", [200, 501])
async def test_metrics_are_text_or_a_refusal(status: int, tmp_path: Path) -> None:
    async with engine(answer(status, "llamacpp:x 1\n"), tmp_path) as client:
        if status == 200:
            assert await client.metrics_text() == "llamacpp:x 1\n"
        else:
            with pytest.raises(UpstreamError, match="/metrics with status 501"):
                await client.metrics_text()


async def test_slots_are_a_list_and_props_an_object(tmp_path: Path) -> None:
    async with engine(answer(200, [1]), tmp_path) as client:
        assert await client.slots() == [1]
        with pytest.raises(UpstreamError, match="/props without an object"):
            await client.props()


async def test_slots_that_are_no_list_are_refused(tmp_path: Path) -> None:
    async with engine(answer(200, {"a": 1}), tmp_path) as client:
        assert await client.props() == {"a": 1}
        with pytest.raises(UpstreamError, match="/slots without a list"):
            await client.slots()


async def test_the_peer_of_a_unix_socket_is_who_listens(tmp_path: Path) -> None:
    async with engine(answer(200, {}), tmp_path) as client:
        assert await client.peer_pid() == Value(os.getpid(), "SO_PEERCRED")


async def test_no_peer_is_absent_and_a_port_has_none(tmp_path: Path) -> None:
    nobody = EngineClient(UnixEndpoint(str(tmp_path / "none.sock")))

    assert isinstance(await nobody.peer_pid(), Absent)
    assert isinstance(await EngineClient(TcpEndpoint("127.0.0.1", 1, "")).peer_pid(), NotApplicable)


async def test_a_client_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="not open"):
        _ = EngineClient(UnixEndpoint("/x")).session


async def test_an_idle_connection_is_dropped_before_the_engine_drops_it(tmp_path: Path) -> None:
    async with EngineClient(UnixEndpoint(str(tmp_path / "e.sock"))) as client:
        connector = client.session.connector

    assert isinstance(connector, aiohttp.UnixConnector)
    assert isinstance(connector._keepalive_timeout, float)
    assert connector._keepalive_timeout <= 4
