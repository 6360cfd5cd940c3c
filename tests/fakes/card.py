"""A sampler over a fake card, with a clock that only its sleeps move."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sampler import Sampler
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.gpu.worker import TelemetryThread
from tests.fakes import sysfs
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mtpd.events import Event


class Bench:
    """A fake card, its sampler, and what the sampler told."""

    def __init__(
        self,
        tree: sysfs.Tree,
        *,
        serving: Callable[[], bool] = lambda: True,
        deadline_s: float = 10.0,
        wanted_cap_w: float | None = 150.0,
    ) -> None:
        self.tree = tree
        self.clock = FakeClock()
        self.slept: list[float] = []
        self.events: list[Event] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self.thread = TelemetryThread(deadline_s=deadline_s)
        self.sampler = Sampler(
            provider=LayeredProvider((SysfsProvider(files=tree.files()),)),
            device=sysfs.FIRST,
            thread=self.thread,
            clock=self.clock,
            publish=self.events.append,
            serving=serving,
            wanted_cap_w=wanted_cap_w,
            sleep=self._sleep,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Sampler]:
        """The sampler's loop, while the block runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.sampler.run)
            yield self.sampler
            tasks.cancel_scope.cancel()
        self.thread.close()

    async def readings(self, count: int) -> None:
        """Wait until the loop took this many more readings."""
        for _ in range(count):
            await self.sampler.following()

    async def _sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.clock.advance(seconds)
        self.on_sleep()
