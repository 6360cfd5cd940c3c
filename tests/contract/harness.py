"""Starts one engine process of any kind for the contract suite, and always reaps it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model
from mtpd.engine.client import EngineClient, Health
from mtpd.types import TcpEndpoint, UnixEndpoint
from tests.fakes.binary import FAKE
from tests.fakes.script import VARIABLE, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from _pytest.mark import ParameterSet
    from anyio.abc import Process

__all__ = [
    "KINDS",
    "MODEL",
    "STOP_S",
    "Engine",
    "Finished",
    "Kind",
    "finished",
    "running",
    "serving",
    "serving_on_a_port",
    "until_ready",
]

ROOT = Path(__file__).parents[2]
MODEL = str(bundled_model("tiny-chained.gguf"))
READY_S = 20.0
STOP_S = 1.0
EXTERNAL = "MTPD_TEST_LLAMA_SERVER"

COMMON = ("--parallel", "1", "--threads", "1", "--log-verbosity", "4", "--metrics", "--no-ui")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One implementation of llama-server.

    Attributes:
        name: What the tests call it.
        argv: How it starts, without arguments.
        env: What its environment needs beyond the common variables.
        ends_with_open_stream: Whether one SIGTERM ends it while a client reads a stream.
            llama-server waits for the client, and exits with 1 at the second SIGTERM.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    ends_with_open_stream: bool = False


EMBEDDED = Kind(
    name="embedded",
    argv=(sys.executable, "-m", "mtpd.engine.embedded"),
    ends_with_open_stream=True,
)

FAKED = Kind(
    name="fake", argv=FAKE, env={VARIABLE: Script(realtime=True, tps0=400.0, load_s=0.2).dump()}
)


def _kinds() -> list[ParameterSet]:
    """Those that are there; the user's own llama-server only where the environment names one."""
    path = os.environ.get(EXTERNAL)
    real = [EMBEDDED, *([Kind(name="external", argv=(path,))] if path else [])]
    marked = [pytest.param(kind, id=kind.name, marks=pytest.mark.real_engine) for kind in real]
    return [*marked, pytest.param(FAKED, id=FAKED.name)]


KINDS = _kinds()


@dataclass(slots=True)
class Engine:
    """A process that was started, and the log lines that came so far."""

    process: Process
    lines: list[str] = field(default_factory=list)
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when stderr has ended."""

    @property
    def log(self) -> str:
        """Everything that came on stderr."""
        return "\n".join(self.lines)

    def said(self, pattern: str) -> bool:
        """Whether a line matches."""
        return any(re.search(pattern, line) for line in self.lines)

    async def until_said(self, pattern: str) -> None:
        """Wait for a line."""
        with anyio.fail_after(READY_S):
            while not self.said(pattern):  # noqa: ASYNC110 - lines come from another task
                await anyio.sleep(0.005)

    async def exit_code(self, *, within_s: float) -> int:
        """Wait for the end."""
        with anyio.fail_after(within_s):
            return await self.process.wait()

    def alive(self) -> bool:
        """Whether the process has not been reaped."""
        return self.process.returncode is None


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that ended by itself."""

    code: int
    stdout: str
    log: str


@asynccontextmanager
async def running(
    kind: Kind, *flags: str, home: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Engine]:
    """The process with its log drained, in its own session; nothing of it is left afterwards."""
    process = await anyio.open_process(
        [*kind.argv, *flags],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **kind.env, **(env or {})},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    engine = Engine(process)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, engine)
            yield engine
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await process.aclose()


async def _drain(engine: Engine) -> None:
    rest = ""
    assert engine.process.stderr is not None
    async for chunk in engine.process.stderr:
        *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
        engine.lines += lines
    engine.closed.set()


@asynccontextmanager
async def serving(
    kind: Kind, *flags: str, home: Path, context: int = 4096
) -> AsyncIterator[tuple[Engine, EngineClient]]:
    """An engine that answers on a unix socket below `home`, and a client for it."""
    socket = home / "engine.sock"
    socket.unlink(missing_ok=True)
    where = ("--model", MODEL, "--ctx-size", str(context), "--host", str(socket))
    async with (
        running(kind, *COMMON, *where, *flags, home=home) as engine,
        EngineClient(UnixEndpoint(str(socket))) as client,
    ):
        await until_ready(client)
        await engine.until_said("listening on")
        yield engine, client


@asynccontextmanager
async def serving_on_a_port(
    kind: Kind, *, home: Path, key: str
) -> AsyncIterator[tuple[Engine, TcpEndpoint]]:
    """An engine that answers on a free loopback port, with a key from its environment."""
    where = ("--model", MODEL, "--ctx-size", "4096", "--host", "127.0.0.1", "--port", "0")
    async with running(kind, *COMMON, *where, home=home, env={"LLAMA_API_KEY": key}) as engine:
        await engine.until_said("listening on")
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", engine.log)
        assert found
        yield engine, TcpEndpoint("127.0.0.1", int(found.group(1)), key)


async def until_ready(client: EngineClient) -> list[Health]:
    """Wait for ok; return the states that were seen before it and the ok."""
    seen: list[Health] = []
    with anyio.fail_after(READY_S):
        while not seen or seen[-1] is not Health.OK:
            state = await client.health()
            if not seen or seen[-1] is not state:
                seen.append(state)
            await anyio.sleep(0.005)
    return seen


async def finished(kind: Kind, *flags: str, home: Path) -> Finished:
    """Run to the end."""
    async with running(kind, *flags, home=home) as engine:
        assert engine.process.stdout is not None
        with anyio.fail_after(READY_S):
            out = [chunk async for chunk in engine.process.stdout]
            await engine.closed.wait()
        code = await engine.exit_code(within_s=READY_S)
    return Finished(code, b"".join(out).decode(), engine.log)
