"""Listening sockets: who gets them, what is refused in one sentence, what is cleaned up."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest
from aiohttp import web

from mtpd.config.model import ServerTimeouts
from mtpd.errors import MtpdError
from mtpd.listen import bind_tcp, bind_unix, free_port, serving
from tests.fakes.front import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Handler:
    """A route that answers at once, and one that waits until it is cancelled."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.cancelled = anyio.Event()

    async def hello(self, _request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def wait(self, _request: web.Request) -> web.Response:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        raise AssertionError

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self.hello)
        app.router.add_get("/wait", self.wait)
        return app


@asynccontextmanager
async def over(path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(str(path))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


def test_a_port_in_use_is_one_sentence_with_a_hint() -> None:
    with bind_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(MtpdError) as caught:
            bind_tcp("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert caught.value.hint == ("another program may listen there; choose another address or port")
    assert caught.value.exit_code == 1


def test_an_address_of_another_machine_is_refused() -> None:
    # TEST-NET-1 of RFC 5737: no interface has it.
    with pytest.raises(MtpdError, match=r"cannot listen on 192\.0\.2\.1:0: "):
        bind_tcp("192.0.2.1", 0)


def test_a_port_that_was_just_left_can_be_bound_again() -> None:
    with bind_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = first.accept()
    # Whoever closes first keeps the port in TIME_WAIT; a restarted daemon must not wait for it.
    served.close()
    client.close()
    with bind_tcp("127.0.0.1", port) as second:
        assert second.getsockname()[1] == port


def test_port_zero_gets_a_free_port() -> None:
    with bind_tcp("127.0.0.1", 0) as sock:
        assert sock.getsockname()[1] > 0
        assert sock.getsockname()[0] == "127.0.0.1"


def test_a_free_port_can_be_bound() -> None:
    port = free_port()
    with bind_tcp("127.0.0.1", port) as sock:
        assert sock.getsockname()[1] == port


def test_the_control_socket_is_for_its_user_only_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    before = os.umask(0)
    try:
        with bind_unix(path):
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)


def test_the_leftover_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with bind_unix(path) as dead:
        dead.listen()
    assert path.is_socket()
    with bind_unix(path) as mine, socket.socket(socket.AF_UNIX) as client:
        mine.listen()
        client.connect(str(path))


def test_the_socket_of_a_living_daemon_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with bind_unix(path) as living, socket.socket(socket.AF_UNIX) as client:
        living.listen()
        with pytest.raises(MtpdError) as caught:
            bind_unix(path)
        assert str(caught.value) == (
            f"cannot listen on the control socket {path}: Address already in use"
        )
        assert caught.value.hint == (
            "choose another runtime directory, or set [server] control_socket"
        )
        client.connect(str(path))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_path_that_is_no_socket_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "control.sock"
    if kind == "file":
        path.write_text("somebody's notes")
    else:
        path.mkdir()
    with pytest.raises(MtpdError, match=r"cannot listen on the control socket .*: Address already"):
        bind_unix(path)
    assert path.is_dir() if kind == "folder" else path.read_text() == "somebody's notes"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "control.sock"
    with pytest.raises(MtpdError) as caught:
        bind_unix(path)
    assert str(caught.value).endswith(f"{path}: No such file or directory")


def test_a_path_that_is_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(MtpdError, match="AF_UNIX path too long"):
        bind_unix(tmp_path / ("x" * 120))


async def test_one_application_answers_on_both_sockets(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    tcp, unix = bind_tcp("127.0.0.1", 0), bind_unix(path)
    port = tcp.getsockname()[1]
    async with serving(Handler().application(), (tcp, unix)):
        async with over(path) as session, session.get("http://localhost/") as reply:
            assert await reply.text() == "hello"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/") as reply,
        ):
            assert await reply.text() == "hello"
    with bind_tcp("127.0.0.1", port):
        pass


async def test_a_client_that_leaves_cancels_its_handler(tmp_path: Path) -> None:
    path, handler = tmp_path / "control.sock", Handler()
    async with serving(handler.application(), (bind_unix(path),)):
        stream = await anyio.connect_unix(path)
        await stream.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(10):
            await handler.begun.wait()
            assert not handler.cancelled.is_set()
            await stream.aclose()
            await handler.cancelled.wait()


async def test_the_end_does_not_wait_for_a_handler_that_does_not_end(tmp_path: Path) -> None:
    path, handler = tmp_path / "control.sock", Handler()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            async with serving(handler.application(), (bind_unix(path),), shutdown_s=0.05):
                stream = await anyio.connect_unix(path)
                await stream.send(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await handler.begun.wait()
            assert handler.cancelled.is_set()
            await stream.aclose()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def wire(timeouts: ServerTimeouts, handler: Handler) -> AsyncIterator[Wire]:
    with bind_tcp("127.0.0.1", 0) as sock:
        async with serving(handler.application(), (sock,), timeouts=lambda: timeouts):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            made = Wire(reader, writer)
            try:
                yield made
            finally:
                made.leave()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
async def test_a_head_that_does_not_come_in_time_ends_the_connection(sent: bytes) -> None:
    timeouts = ServerTimeouts(head_s=0.1, keep_alive_s=600)
    async with wire(timeouts, Handler()) as client:
        client.writer.write(sent)
        assert await client.rest() == b""


async def test_a_head_that_drips_is_no_reason_to_wait_longer() -> None:
    async with wire(ServerTimeouts(head_s=0.1, keep_alive_s=600), Handler()) as client:
        with anyio.fail_after(10):
            while not client.reader.at_eof():
                client.writer.write(b"G")
                with anyio.move_on_after(0.01):
                    await client.reader.read()


async def test_a_second_head_must_come_in_time_too_and_an_idle_connection_is_closed() -> None:
    for timeouts, more in (
        (ServerTimeouts(head_s=0.1, keep_alive_s=600), b"GET / HT"),
        (ServerTimeouts(head_s=600, keep_alive_s=0.1), b""),
    ):
        async with wire(timeouts, Handler()) as client:
            client.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.until(b"hello")
            client.writer.write(more)
            assert await client.rest() == b""


async def test_a_request_that_is_answered_slowly_is_not_ended() -> None:
    handler = Handler()
    async with wire(ServerTimeouts(head_s=0.05, keep_alive_s=0.05), handler) as client:
        client.writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await handler.begun.wait()
        with anyio.move_on_after(0.5) as scope:
            await client.rest()
        assert scope.cancelled_caught
        assert not handler.cancelled.is_set()


async def test_without_limits_nobody_is_hurried() -> None:
    async with wire(ServerTimeouts(head_s=0, keep_alive_s=0), Handler()) as client:
        with anyio.move_on_after(0.2) as scope:
            await client.rest()
        assert scope.cancelled_caught
        client.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.until(b"hello")
