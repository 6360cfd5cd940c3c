"""A held device whose engines are the scripted llama-server, served from this process.

The HTTP side is the one that passes the contract suite; what is scripted here is which
start fails and which request gets no proper answer.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from aiohttp import web

from mtpd.calibrate import Started
from mtpd.engine.client import EngineClient
from mtpd.engine.heard import RequestFacts
from mtpd.errors import EngineError
from mtpd.types import UnixEndpoint, Verdict
from tests.fakes.generation import Spec
from tests.fakes.http_api import Engine, application
from tests.fakes.log_lines import Log
from tests.fakes.script import Script
from tuner.types import Arm, Host, Residency

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

__all__ = ["Asked", "ScriptedDevice", "scripted"]

SCRIPT = Script(acceptance=(0.9, 0.8, 0.5), row_cost=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A generation that was asked for.

    Attributes:
        start: Which start of this arm answers, from 1.
        number: Which request of this start, from 1; the warm-up is the first.
    """

    arm: Arm
    start: int
    number: int
    path: str
    body: dict[str, Any]


class ScriptedDevice:
    """Starts arms; ``trouble`` says which requests end badly.

    Args:
        folder: For sockets.
        trouble: "die" (the process ends), "hang", "mute" (no timings) or None, per request.
        broken: Why an arm does not start, by its name and which start it is.
        residency: Verdict on a start.
    """

    def __init__(
        self,
        folder: Path,
        stack: AsyncExitStack,
        *,
        script: Script = SCRIPT,
        trouble: Callable[[Asked], str | None] = lambda _asked: None,
        broken: Callable[[Arm, int], str | None] = lambda _arm, _start: None,
        residency: Callable[[Arm], Residency] = lambda _arm: Host(),
    ) -> None:
        self._folder, self._outer, self._script = folder, stack, script
        self._trouble, self._broken, self._residency = trouble, broken, residency
        self._engine = AsyncExitStack()
        self._alive: Started | None = None
        self.starts: list[Arm] = []
        """Every start that was tried."""
        self.running: Arm | None = None
        self.fingerprint = ""
        """Of every start from now on; empty names the profile."""
        self.asked: list[Asked] = []
        self.hanging = anyio.Event()
        """Set once a request hangs."""

    async def start(self, arm: Arm) -> Started:
        """As the hold does: the arm that this hold started is kept while it lives."""
        if self._alive is not None and self.running == arm:
            return self._alive
        await self.stop()
        self.starts.append(arm)
        number = self.starts.count(arm)
        if (why := self._broken(arm, number)) is not None:
            raise EngineError(why, failure="crash")
        self._engine = await self._outer.enter_async_context(AsyncExitStack())
        path = self._folder / f"{len(self.starts)}.sock"
        runner = web.AppRunner(self._application(arm, number), handler_cancellation=True)
        await runner.setup()
        self._engine.push_async_callback(runner.cleanup)
        await web.UnixSite(runner, str(path)).start()
        client = await self._engine.enter_async_context(EngineClient(UnixEndpoint(str(path))))
        self.running = arm
        self._alive = Started(
            client=client,
            verdict=Verdict(residency=self._residency(arm), reason="scripted"),
            start_id=f"engine-{len(self.starts)}",
            fingerprint=self.fingerprint or f"fingerprint-of-{arm.profile}",
            heard=RequestFacts(),
        )
        return self._alive

    async def stop(self) -> None:
        """Stop what runs."""
        self.running = None
        await self.close()

    async def close(self) -> None:
        """End the process that is alive; ``running`` keeps saying what served last."""
        self._alive = None
        await self._engine.aclose()

    def _application(self, arm: Arm, start: int) -> web.Application:
        engine = Engine(
            script=self._script,
            log=Log(0),
            spec=Spec(arm.depth),
            slots=1,
            context=4096,
            seed=-1,
            keys=(),
            with_metrics=True,
            with_slots=True,
            model=f"{arm.profile}.gguf",
            ready=True,
        )
        number = 0

        @web.middleware
        async def watched(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            nonlocal number
            if request.method != "POST":
                return await handler(request)
            number += 1
            asked = Asked(
                arm=arm,
                start=start,
                number=number,
                path=request.path,
                body=json.loads(await request.read()),
            )
            self.asked.append(asked)
            match self._trouble(asked):
                case "die":
                    self._alive = None
                    assert request.transport is not None
                    request.transport.abort()
                case "hang":
                    self.hanging.set()
                    await anyio.sleep_forever()
                case "mute":
                    return web.json_response({"content": "words without timings"})
                case _:
                    pass
            return await handler(request)

        app = application(engine)
        app.middlewares.append(watched)
        return app


@asynccontextmanager
async def scripted(folder: Path, **options: Any) -> AsyncIterator[ScriptedDevice]:
    """A device; whatever runs on it ends with the block."""
    async with AsyncExitStack() as stack:
        device = ScriptedDevice(folder, stack, **options)
        try:
            yield device
        finally:
            with anyio.CancelScope(shield=True):
                await device.close()
