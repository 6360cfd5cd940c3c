"""Devices that are held for a measurement: nobody else starts, stops or uses engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio

from mtpd.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from mtpd.proxy.engines import Running
    from mtpd.proxy.lane import Lane
    from mtpd.views import EngineView
    from tuner.types import Arm

__all__ = ["Hold"]

C = TypeVar("C")


class Attempt(Protocol[C]):
    """Brings an arm up on a lane."""

    async def __call__(
        self, lane: Lane, arm: Arm, reason: str, *, fresh: bool = False
    ) -> Running[C]:
        """See ``Switchboard``."""


class Halt(Protocol):
    """Stops what runs on a lane."""

    async def __call__(self, lane: Lane, reason: str) -> None:
        """See ``Switchboard``."""


class LaneOf(Protocol):
    """Finds the lane of a profile."""

    def __call__(self, profile: str) -> Lane:
        """See ``Switchboard``."""


class Hold(Generic[C]):
    """Made by ``Switchboard.hold``; valid inside its block."""

    def __init__(
        self,
        *,
        lane_of: LaneOf,
        attempt: Attempt[C],
        halt: Halt,
        stack: AsyncExitStack,
        reason: str,
        drain_timeout_s: float,
    ) -> None:
        self._lane_of, self._attempt, self._halt = lane_of, attempt, halt
        self._stack, self._reason, self._drain_timeout_s = stack, reason, drain_timeout_s
        self._held: list[Lane] = []
        self._running: Running[C] | None = None

    async def take(self, lane: Lane) -> None:
        """Hold one more lane; the turn of its device is taken once all are held.

        Raises:
            DrainTimeoutError: Requests still ran on it.
        """
        await self._stack.enter_async_context(
            lane.exclusive(self._reason, force=False, timeout_s=self._drain_timeout_s)
        )
        lane.park(parked=True)
        self._held.append(lane)

    async def start(self, arm: Arm) -> EngineView:
        """Start an arm anew, alone, and wait until it is ready; one this hold started is kept.

        Raises:
            EngineError: It did not become ready; nothing runs on its device then.
        """
        lane = self._lane_of(arm.profile)
        if lane not in self._held:
            msg = f"{arm.profile} has come into the configuration since the device is held"
            raise EngineError(msg, failure="config")
        for other in self._held:
            if other is not lane and other.seat.device == lane.seat.device:
                await self._halt(other, self._reason)
        mine = self._running is not None and self._running.plan.arm == arm
        self._running = None
        try:
            self._running = await self._attempt(lane, arm, self._reason, fresh=not mine)
        except EngineError:
            await self._halt(lane, f"{arm} did not become ready")
            raise
        return self._running.actor.view()

    async def stop(self) -> None:
        """Stop what runs on the held devices; requests bring it back after the hold.

        Raises:
            EngineError: The kernel does not let go of the process.
        """
        self._running = None
        for lane in self._held:
            await self._halt(lane, self._reason)

    async def end(self, leave: Callable[[Lane], Awaitable[None]]) -> None:
        """Do something with each held lane before requests are let in again.

        Raises:
            EngineError: The kernel does not let go of a process.
        """
        with anyio.CancelScope(shield=True):
            for lane in self._held:
                await leave(lane)

    @property
    def running(self) -> Running[C]:
        """What this hold started last: plan, verdict and start id.

        Raises:
            EngineError: Nothing was started, or the start failed.
        """
        if self._running is None:
            raise EngineError("no engine was started in this hold", failure="killed_by_operator")
        return self._running

    def client(self) -> C:
        """Talks to the engine that was started last."""
        return self.running.client
