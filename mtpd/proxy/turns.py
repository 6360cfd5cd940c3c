"""Whose turn it is on a device: one engine starts or stops at a time.

The order of locks: the lock of a lane first, the turn of its device second. Only a hold
has the locks of several lanes, and there is one hold at a time. Whoever has a turn never
waits for the lock of a lane: it borrows the lanes whose owners wait for the same turn
(``Lane.lent``), and waits for running requests, which need neither. So nobody waits in a
circle.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.proxy.lane import Lane
    from mtpd.units import DeviceKey

__all__ = ["DRAIN_S", "Turns"]

DRAIN_S = 120.0
"""How long running requests are waited for before a change."""


class Turns:
    """The turns of all devices."""

    def __init__(self) -> None:
        self._locks: defaultdict[DeviceKey, anyio.Lock] = defaultdict(anyio.Lock)

    @asynccontextmanager
    async def of(self, *lanes: Lane) -> AsyncIterator[None]:
        """Have the turn of the lanes' devices while the block runs; with the lanes' locks."""
        devices = sorted({lane.seat.device for lane in lanes})
        for lane in lanes:
            lane.park(parked=True)
        taken: list[anyio.Lock] = []
        try:
            try:
                for device in devices:
                    await self._locks[device].acquire()
                    taken.append(self._locks[device])
            finally:
                for lane in lanes:
                    lane.park(parked=False)
            yield
        finally:
            for lock in reversed(taken):
                lock.release()

    @asynccontextmanager
    async def alone(
        self, lane: Lane, reason: str, *, force: bool = False, timeout_s: float = DRAIN_S
    ) -> AsyncIterator[None]:
        """Have a lane drained and the turn of its device; see ``Lane.exclusive``.

        Raises:
            DrainTimeoutError: Requests still run and ``force`` was not asked for.
        """
        async with lane.exclusive(reason, force=force, timeout_s=timeout_s), self.of(lane):
            yield
