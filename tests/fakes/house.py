"""A whole daemon in a test: real sockets, a real database, a real or scripted engine."""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import anyio

from mtpd.app import Daemon, daemon
from mtpd.config.data import bundled_model
from mtpd.config.directories import Directories
from mtpd.config.disk import ConfigOnDisk
from mtpd.config.load import load
from tests.fakes.binary import fake_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mtpd.clock import Clock
    from mtpd.views import Json, OperationView, StatusView
    from tests.fakes.script import Script

__all__ = [
    "WITHIN_S",
    "Home",
    "daemon_at",
    "home",
    "run_operation",
    "tuned",
    "until",
    "write_config",
]

WITHIN_S = 40.0

CONFIG = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "{binary}"
threads = 1
[models.alpha]
model = "{model}"
aliases = ["first"]
context = 2048
{alpha}
[models.alpha.drafter]
kind = "mtp"
max_depth = 3
several_slots = "accept"
[models.beta]
model = "{beta}"
context = 2048
[models.beta.drafter]
kind = "mtp"
max_depth = 3
[pools.both]
members = ["alpha", "beta"]
"""


@dataclass(frozen=True, slots=True)
class Home:
    """Where one daemon lives; survives it, so that the next one finds what it left."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "mtpd.toml"

    @property
    def directories(self) -> Directories:
        return Directories(
            state=self.root / "state", runtime=self.root / "run", cache=self.root / "cache"
        )


@asynccontextmanager
async def home(script: Script | None = None, *, alpha: str = "") -> AsyncIterator[Home]:
    """A configuration with two models on a scripted engine; paths short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        place = Home(Path(folder))
        binary = fake_binary(place.root / "llama-server", script)
        write_config(place, binary=str(binary), alpha=alpha)
        yield place


def write_config(
    place: Home,
    *,
    binary: str,
    model: Path | None = None,
    beta: Path | None = None,
    alpha: str = "",
) -> None:
    """Write the configuration of ``home`` with another engine or other model files."""
    path = model or bundled_model("tiny-chained.gguf")
    place.config.write_text(
        CONFIG.format(binary=binary, model=path, beta=beta or path, alpha=alpha)
    )


@asynccontextmanager
async def daemon_at(
    place: Home,
    *,
    hash_delay_s: float = 60.0,
    machine: Path = Path("/"),
    clock: Clock | None = None,
) -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession]]:
    """Run the daemon and give a client of its data plane."""
    config = load(place.config)
    async with (
        daemon(
            config,
            place.directories,
            path_env=os.environ["PATH"],
            hash_delay_s=hash_delay_s,
            machine=machine,
            clock=clock,
            disk=ConfigOnDisk(place.config, partial(load, place.config)),
        ) as running,
        aiohttp.ClientSession(running.url) as client,
    ):
        yield running, client


async def run_operation(running: Daemon, operation: OperationView) -> OperationView:
    """Wait until an operation has ended."""
    with anyio.fail_after(100):
        ended = await running.operations.ended(operation.id)
    assert ended is not None
    return ended


def tuned(place: Home, **keys: object) -> None:
    """Write the table [tuning]."""
    lines = [f"{key} = {value!r}" for key, value in keys.items()]
    place.config.write_text("\n".join([place.config.read_text(), "[tuning]", *lines, ""]))


async def until(running: Daemon, what: Callable[[StatusView], object]) -> StatusView:
    """Wait until the daemon's status is as wanted."""
    with anyio.fail_after(WITHIN_S):
        while True:
            status = await running.control.status()
            if what(status):
                return status
            await anyio.sleep(0.05)


def number(value: Json) -> float:
    """A JSON number; anything else fails the test."""
    assert isinstance(value, int | float)
    return value
