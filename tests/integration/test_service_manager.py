"""The daemon in a process of its own, under a service manager that the test plays."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest

from mtpd.listen import bind_tcp, bind_unix
from tests.fakes.house import home
from tests.fakes.manager import managed
from tests.fakes.script import Script
from tests.fakes.serve import processes_of, serve

if TYPE_CHECKING:
    from tests.fakes.house import Home
    from tests.fakes.manager import Manager
    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")


def told(manager: Manager) -> dict[str, str]:
    """The manager's variables, with a watchdog that nobody keeps."""
    return manager.environment | {"WATCHDOG_USEC": "300000"}


async def ask(url: str) -> None:
    async with (
        aiohttp.ClientSession(url) as client,
        client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply,
    ):
        assert reply.status == 200, await reply.text()


async def test_the_manager_hears_the_whole_life_of_a_daemon() -> None:
    async with home() as place:
        with managed(place.root) as manager:
            async with serve(place, environment=told(manager)) as daemon:
                await manager.until("READY=1\nSTATUS=no model is loaded")
                await manager.until("WATCHDOG=1", times=3)
                await daemon.until_serving()
                await ask(daemon.url)
                await manager.until("STATUS=alpha at depth 0, host")
                daemon.process.send_signal(signal.SIGHUP)
                await manager.until("RELOADING=1\nMONOTONIC_USEC=")
                await manager.until("READY=1", times=2)
                assert await daemon.end(signal.SIGTERM) == 0
            await manager.until("STOPPING=1")
            heard = [one for one in manager.hear() if one != "WATCHDOG=1"]
    assert heard[0] == "EXTEND_TIMEOUT_USEC=15000000"
    assert [one.partition("=")[0] for one in heard if "STATUS" not in one[:6]][-2:] in (
        ["READY", "STOPPING"],
        ["STOPPING", "EXTEND_TIMEOUT_USEC"],
    )


async def test_an_invalid_file_on_reload_is_shown_and_the_reload_ends() -> None:
    async with home() as place:
        with managed(place.root) as manager:
            async with serve(place, environment=told(manager)) as daemon:
                await manager.until("READY=1")
                place.config.write_text(place.config.read_text() + "\n[server2]\n")
                daemon.process.send_signal(signal.SIGHUP)
                await manager.until("READY=1", times=2)
                await manager.until("the configuration on the disk has 1 error(s)")
                assert await daemon.end(signal.SIGTERM) == 0


async def test_a_configuration_that_cannot_be_used_ends_with_78_and_never_ready() -> None:
    async with home() as place:
        place.config.write_text("[servr]\n")
        with managed(place.root) as manager:
            async with serve(place, environment=told(manager)) as daemon:
                with anyio.fail_after(30):
                    assert await daemon.process.wait() == 78
            assert not any("READY" in one for one in manager.hear())


async def test_signs_of_life_go_on_through_a_slow_load_and_end_with_a_stopped_daemon() -> None:
    async with home(Script(load_s=60.0)) as place:
        with managed(place.root) as manager:
            async with serve(place, environment=told(manager)) as daemon:
                await daemon.until_serving()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask, daemon.url)
                    await manager.until("STATUS=alpha loading")
                    await manager.until("WATCHDOG=1", times=manager.hear().count("WATCHDOG=1") + 5)
                    tasks.cancel_scope.cancel()
                daemon.process.send_signal(signal.SIGSTOP)
                await _stopped(daemon.process.pid)
                before = len(manager.hear())
                await anyio.sleep(0.6)
                assert len(manager.hear()) == before
                daemon.process.send_signal(signal.SIGCONT)
                await manager.until("WATCHDOG=1", times=before)


async def _stopped(pid: int) -> None:
    with anyio.fail_after(30):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110, ASYNC240 - the kernel tells nobody
            await anyio.sleep(0.01)


async def test_an_engine_is_told_nothing_of_the_manager_and_gets_none_of_its_sockets() -> None:
    async with home() as place:
        with (
            managed(place.root) as manager,
            bind_tcp("127.0.0.1", 0) as tcp,
            bind_unix(place.root / "control.sock") as unix,
        ):
            unix.listen()
            async with serve(place, environment=told(manager), sockets=(tcp, unix)) as daemon:
                await daemon.until_serving()
                await ask(daemon.url)
                mine = {os.fstat(sock.fileno()).st_ino for sock in (tcp, unix)}
                engines = [pid for pid in processes_of(place) if pid != daemon.process.pid]
                assert engines
                for pid in engines:
                    assert not _variables(pid) & set(OURS)
                    assert not mine & set(_inodes(pid))
                assert mine <= set(_inodes(daemon.process.pid))


def _variables(pid: int) -> set[str]:
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0].decode() for entry in environment}


def _inodes(pid: int) -> list[int]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(entry.stat().st_ino)
        except OSError:
            continue
    return found


async def test_sockets_that_were_handed_over_are_served_and_outlive_the_daemon() -> None:
    async with home() as place:
        path = place.root / "control.sock"
        with bind_tcp("127.0.0.1", 0) as tcp, bind_unix(path) as unix:
            unix.listen()
            port = tcp.getsockname()[1]
            async with serve(place, sockets=(tcp, unix)) as daemon:
                await daemon.until_serving()
                assert daemon.url == f"http://127.0.0.1:{port}"
                assert b"daemon.listens_elsewhere" in daemon.log
                connector = aiohttp.UnixConnector(str(path))
                async with (
                    aiohttp.ClientSession(connector=connector) as client,
                    client.get("http://localhost/mtpd/v1/status") as reply,
                ):
                    status = await reply.json()
                assert (status["listen"], status["control_socket"]) == (
                    f"127.0.0.1:{port}",
                    str(path),
                )
                assert not (place.directories.runtime / "control.sock").exists()
                assert await daemon.end(signal.SIGTERM) == 0
            assert path.is_socket()
            with socket.create_connection(("127.0.0.1", port)) as waiting:
                await _answered_by_the_next(place, (tcp, unix), waiting)


async def _answered_by_the_next(
    place: Home, sockets: tuple[socket.socket, ...], waiting: socket.socket
) -> None:
    """A connection that was made while nobody served is answered by the next daemon."""
    port = waiting.getpeername()[1]
    waiting.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost:%d\r\n\r\n" % port)
    async with serve(place, sockets=sockets) as daemon:
        await daemon.until_serving()
        waiting.settimeout(30)
        head = await anyio.to_thread.run_sync(waiting.recv, 12)
        assert head == b"HTTP/1.0 200"


async def test_a_socket_of_the_wrong_kind_is_a_mistake_of_the_units() -> None:
    async with home() as place:
        with bind_tcp("127.0.0.1", 0) as tcp:
            async with serve(place, sockets=(tcp,), names="control") as daemon:
                assert await _code(daemon) == 78
            assert b"socket 3 (control) is not a stream socket of the right family" in daemon.log


async def _code(daemon: Serving) -> int:
    assert daemon.process.stderr is not None
    with anyio.fail_after(30):
        async for chunk in daemon.process.stderr:
            daemon.log += chunk
        return await daemon.process.wait()
