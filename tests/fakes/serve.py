"""`mtpd serve` as a child process, as a user or systemd would start it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio

from tests.fakes.manager import activated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import Process

    from tests.fakes.house import Home

__all__ = ["MTPD", "Serving", "processes_of", "reached", "serve"]

ROOT = Path(__file__).parents[2]
START_S = 30.0
GONE_S = 2.0
MTPD = ("-m", "mtpd.cli.mtpd")


@dataclass(slots=True)
class Serving:
    """A daemon in a process of its own."""

    process: Process
    place: Home
    url: str = ""
    log: bytes = b""

    async def until_serving(self) -> None:
        """Read the log until the daemon says where it listens."""
        assert self.process.stderr is not None
        with anyio.fail_after(START_S):
            while b"daemon.serving" not in self.log:
                self.log += await self.process.stderr.receive()
        line = next(x for x in self.log.splitlines() if b"daemon.serving" in x)
        self.url = json.loads(line)["url"]

    async def read_log(self) -> None:
        """Take what it says until it ends; nobody else reads meanwhile."""
        assert self.process.stderr is not None
        with suppress(anyio.EndOfStream):
            while True:
                self.log += await self.process.stderr.receive()

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        await self.read_log()
        return await self.process.wait()


@asynccontextmanager
async def serve(
    place: Home,
    *more: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    sockets: Sequence[socket.socket] = (),
    names: str = "api:control",
    before: Sequence[str] = (),
    program: Sequence[str] = MTPD,
) -> AsyncIterator[Serving]:
    """Run the daemon; afterwards neither it nor any of its engines may be left.

    ``environment`` is added to ours; ``sockets`` are handed over under ``names``; ``before`` is a
    command line that runs the one behind it in its own place; ``program`` is what Python runs.
    """
    argv = [
        *before,
        *(sys.executable, *program, "serve"),
        *("--config", str(place.config), "--state-dir", str(place.directories.state)),
        *("--runtime-dir", str(place.directories.runtime)),
        *("--cache-dir", str(place.directories.cache), "--log-json", *more),
    ]
    inherited: list[int] = []
    if sockets:
        argv, inherited = activated(argv, sockets, names)
    process = await anyio.open_process(
        argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=None,
        env={**os.environ, **environment},
        pass_fds=inherited,
    )
    try:
        yield Serving(process, place)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
    left = await _left(place)
    for pid in left:  # a failure must not leave them to the next test
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"{left} are left"


async def _left(place: Home) -> list[int]:
    with anyio.move_on_after(GONE_S):
        while processes_of(place):  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(0.02)
    return processes_of(place)


def processes_of(place: Home) -> list[int]:
    """Every living process that was started with this daemon's directories."""
    mark = str(place.root).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def reached(url: str) -> bool:
    """Whether somebody listens there."""
    host, _, port = url.removeprefix("http://").partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False
