"""The daemon is killed and stopped under load while its sockets are held: nobody is refused.

``make test`` restarts it a few times; ``make endurance`` sets MTPD_ENDURANCE and does all.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.listen import bind_tcp, bind_unix
from tests.fakes.house import home
from tests.fakes.serve import serve

if TYPE_CHECKING:
    import socket

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

RESTARTS = 20 if "MTPD_ENDURANCE" in os.environ else 4
CLIENTS = 8
ANSWERS = 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def ask_for_ever(port: int, seen: Counter[str]) -> None:
    """A connection per request, as clients without keep-alive make them."""
    request = b"GET /health HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n" % port
    while True:
        try:
            client = await anyio.connect_tcp("127.0.0.1", port)
        except OSError:
            seen["refused"] += 1
            await anyio.sleep(0.01)
            continue
        answer = b""
        async with client:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await client.send(request)
                while True:
                    answer += await client.receive()
        seen["answered" if answer.startswith(b"HTTP/1.1 200 ") else "cut"] += 1


async def until(seen: Counter[str], answered: int) -> None:
    with anyio.fail_after(60):
        while seen["answered"] < answered:  # noqa: ASYNC110 - a count tells nobody
            await anyio.sleep(0.01)


async def life(
    place: Home, sockets: tuple[socket.socket, ...], seen: Counter[str], number: signal.Signals
) -> None:
    """One daemon from its start under load to its end."""
    async with serve(place, sockets=sockets) as daemon:
        await until(seen, seen["answered"] + ANSWERS)
        await end(daemon, number)


async def end(daemon: Serving, number: signal.Signals) -> None:
    with anyio.fail_after(60):
        code = await daemon.end(number)
    assert code == (-number if number is signal.SIGKILL else 0)


async def test_no_connection_is_refused_across_restarts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: Counter[str] = Counter()
    async with home() as place:
        path = place.root / "control.sock"
        with bind_tcp("127.0.0.1", 0) as tcp, bind_unix(path) as unix:
            unix.listen()
            async with anyio.create_task_group() as clients:
                for _ in range(CLIENTS):
                    clients.start_soon(ask_for_ever, tcp.getsockname()[1], seen)
                for turn in range(RESTARTS):
                    number = signal.SIGTERM if turn % 4 == 3 else signal.SIGKILL
                    await life(place, (tcp, unix), seen, number)
                clients.cancel_scope.cancel()
    with capsys.disabled():
        print(f" {RESTARTS} restarts: {dict(seen)}", end="")  # noqa: T201
    assert seen["refused"] == 0
    assert seen["cut"] <= RESTARTS * CLIENTS  # who was being answered when it was killed


async def test_without_the_sockets_held_connections_are_refused() -> None:
    """What the other test would count if its daemon bound its own port."""
    seen: Counter[str] = Counter()
    async with home() as place:
        with bind_tcp("127.0.0.1", 0) as tcp:
            port = tcp.getsockname()[1]
        listen = ("--listen", f"127.0.0.1:{port}")
        async with serve(place, *listen) as daemon, anyio.create_task_group() as clients:
            await daemon.until_serving()
            clients.start_soon(ask_for_ever, port, seen)
            await until(seen, 1)
            daemon.process.kill()
            with anyio.fail_after(60):
                while not seen["refused"]:  # noqa: ASYNC110 - a count tells nobody
                    await anyio.sleep(0.01)
            clients.cancel_scope.cancel()
