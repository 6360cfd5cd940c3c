"""The inference endpoints on a loopback port, over a scripted engine and a fake supervisor."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import aiohttp
import anyio.lowlevel
from aiohttp import web

from mtpd.config.model import BodyLimits, ServerTimeouts
from mtpd.proxy.body import Bounds
from mtpd.proxy.callers import CALLER
from mtpd.proxy.conditions import Conditions
from mtpd.proxy.forward import mount
from mtpd.proxy.open_requests import OpenRequests
from mtpd.proxy.poison import Rules
from mtpd.proxy.quarantine import Quarantine
from mtpd.proxy.replies import ModelCard
from mtpd.proxy.route import Names
from mtpd.types import UnixEndpoint
from tests.fakes.board import Bench, Queue, bench
from tests.fakes.upstream import upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from aiohttp.typedefs import Handler

    from mtpd.clock import Clock
    from mtpd.events import RequestFinished
    from mtpd.proxy.body import Bodies
    from mtpd.proxy.carry import Board
    from mtpd.proxy.poison import Entry
    from mtpd.proxy.quotas import Quotas
    from tests.fakes.upstream import Script, Upstream

__all__ = ["Front", "Stage", "bounds", "front", "stage"]

CHAT = "/v1/chat/completions"
CALLER_HEADER = "X-Test-Caller"
USUAL = Bounds.of(BodyLimits(), ServerTimeouts())


def bounds(
    *,
    body_bytes: int = USUAL.body_bytes,
    form_bytes: float = USUAL.form_bytes,
    held_bytes: int = USUAL.held_bytes,
    idle_s: float = USUAL.idle_s,
) -> Bounds:
    """The usual ones, except for those that are named."""
    return Bounds(
        body_bytes=body_bytes, form_bytes=form_bytes, held_bytes=held_bytes, idle_s=idle_s
    )


@dataclass
class Front:
    """A daemon's data plane, and how clients talk to it.

    Attributes:
        finished: Every RequestFinished so far.
        owned: With anything in it, every request is the daemon's own user's.
        quarantined: What the daemon was told of requests that are refused.
        requests: Those that are open.
    """

    port: int
    session: aiohttp.ClientSession
    finished: list[RequestFinished]
    wires: list[Wire]
    owned: list[str]
    quarantine: Quarantine
    quarantined: list[Entry]
    requests: OpenRequests

    def url(self, path: str = CHAT) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def post(
        self, path: str = CHAT, *, model: str = "a", data: bytes | None = None, **fields: object
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """One request and its whole answer."""
        if data is not None:
            call = self.session.post(self.url(path), data=data, headers=JSON)
        else:
            call = self.session.post(self.url(path), json={"model": model, **fields})
        async with call as response:
            return response, await response.read()

    async def connect(self, body: bytes, path: str = CHAT) -> Wire:
        """A request over a bare connection, to see every byte of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        self.wires.append(Wire(reader, writer))
        return self.wires[-1]


JSON = {"Content-Type": "application/json"}


@dataclass
class Stage(Front):
    """With everything behind it scripted."""

    bench: Bench
    engine: Upstream


@dataclass
class Wire:
    """A client's bare connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readuntil(mark)

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    def leave(self) -> None:
        self.writer.transport.abort()


def keep_in(told: list[Entry]) -> Callable[[Entry], Awaitable[None]]:
    """Take down what is told."""

    async def keep(entry: Entry) -> None:
        told.append(entry)

    return keep


@web.middleware
async def as_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Take the name of a token from a header, in the place of real tokens."""
    if (name := request.headers.get(CALLER_HEADER)) is not None:
        request[CALLER] = name
    return await handler(request)


@asynccontextmanager
async def front(
    board: Board,
    clock: Clock,
    *,
    bodies: Bodies | None = None,
    called: Mapping[str, str] = MappingProxyType({}),
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    tick_s: float = 0.01,
    quotas: Quotas | None = None,
    poison_after: int = 2,
) -> AsyncIterator[Front]:
    """The endpoints on a loopback port while the block runs; profiles "a" and "b".

    ``called`` is what their engines call their models.
    """
    finished: list[RequestFinished] = []
    told: list[Entry] = []
    quarantine = Quarantine(
        rules=lambda: Rules(after=poison_after, hold_s=3600.0),
        clock=clock,
        told=keep_in(told),
    )
    owned: list[str] = []
    requests = OpenRequests(clock)
    app = web.Application(middlewares=[as_caller])
    mount(
        app,
        board=board,
        names=lambda: Names(
            profiles={"a": "a", "b": "b", "alias-of-a": "a"}, upstream=called, serving=lambda: "a"
        ),
        models=lambda: [
            ModelCard(id="a", created=1, context=4096, slots=2, aliases=("alias-of-a",)),
            ModelCard(id="b", created=2, context=2048),
        ],
        on_finished=finished.append,
        clock=clock,
        instance="life-1",
        owns=lambda _: bool(owned),
        bodies=bodies,
        conditions=lambda _profile: conditions,
        tick_s=tick_s,
        quotas=quotas,
        quarantine=quarantine,
        reload=anyio.lowlevel.checkpoint,
        requests=requests,
    )
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        sock = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, sock).start()
        session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        port = sock.getsockname()[1]
        made = Front(port, session, finished, [], owned, quarantine, told, requests)
        yield made
        for wire in made.wires:
            wire.leave()


@asynccontextmanager
async def stage(
    script: Script,
    *,
    limits: Queue = Queue(),  # noqa: B008 - frozen
    slots: int = 1,
    bodies: Bodies | None = None,
    called: Mapping[str, str] = MappingProxyType({}),
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    tick_s: float = 0.01,
    quotas: Quotas | None = None,
) -> AsyncIterator[Stage]:
    """Serve while the block runs; profiles "a" and "b" share the scripted engine."""
    async with AsyncExitStack() as stack:
        # A unix socket's path is short; pytest's own folders are not.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = Path(folder) / "engine.sock"
        engine = await stack.enter_async_context(upstream(path, script))
        made = await stack.enter_async_context(bench(limits=limits, slots=slots))
        made.endpoints = {name: UnixEndpoint(str(path)) for name in ("a", "b")}
        ready = await stack.enter_async_context(
            front(
                made.board,
                made.clock,
                bodies=bodies,
                called=called,
                conditions=conditions,
                tick_s=tick_s,
                quotas=quotas,
            )
        )
        yield Stage(**vars(ready), bench=made, engine=engine)
