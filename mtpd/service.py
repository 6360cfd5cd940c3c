"""The daemon's side of its talk with the service manager.

READY once the API answers; STATUS with what serves, at what depth, and where it lies; a
watchdog sign only from a loop that turns and a supervisor that takes its work; RELOADING,
STOPPING, and more time where a start or a stop takes long. How messages are sent is
``mtpd.notify``'s business.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from mtpd.clock import Clock
    from mtpd.notify import Notifier
    from mtpd.views import ConfigFileView, EngineView, OperationView, QueueView

__all__ = ["Board", "Service", "describe"]

log = structlog.get_logger()

LOOK_S: Final = 1.0
"""Seconds between two looks at what is to be shown."""

EXTEND_S: Final = 15.0

EXTEND_LIMIT_S: Final = 600.0
"""For how long more time is asked for: who starts or stops for longer is stuck."""

STATUS_CHARACTERS: Final = 200


class Board(Protocol):
    """What is asked of the switchboard."""

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine that was ever asked for."""

    def queue(self) -> QueueView:
        """Who waits and who runs."""

    async def answer(self) -> None:
        """Return once the owner has taken what was posted before; not while it is stuck."""


class Service:
    """Speaks for one daemon.

    Args:
        notifier: Takes the messages.
        watchdog_s: How long the manager lets pass without a sign of life; None for any time.
        clock: Source of time.
        extend_s: How much more time is asked for at once while the daemon starts or stops.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        watchdog_s: float | None,
        clock: Clock,
        extend_s: float = EXTEND_S,
    ) -> None:
        self._notifier, self._watchdog_s, self._clock = notifier, watchdog_s, clock
        self._extend_s = extend_s
        self._every_s = LOOK_S if watchdog_s is None else min(LOOK_S, watchdog_s / 3)
        self._shown = ""
        self._answers = True
        self._serves = False
        self._unhurried_until = clock.now() + EXTEND_LIMIT_S

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Ask for more time while the block runs and nothing is served, in bounds."""
        # A timer and no task: an error in the block must come out as itself, in no group.
        loop, timer = asyncio.get_running_loop(), None

        def extend() -> None:
            nonlocal timer
            if not self._serves and self._clock.now() < self._unhurried_until:
                self._notifier.send(f"EXTEND_TIMEOUT_USEC={int(self._extend_s * 1e6)}")
            timer = loop.call_later(self._extend_s / 3, extend)

        extend()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    @asynccontextmanager
    async def serving(self, board: Board, status: Callable[[], str]) -> AsyncIterator[None]:
        """The API answers while the block runs.

        Args:
            board: Is asked for signs of life.
            status: What is to be shown, as one line.
        """
        self._serves = True
        self._shown = status()
        self._notifier.send("READY=1", f"STATUS={self._shown}")
        async with anyio.create_task_group() as tasks:
            if self._notifier.address:
                tasks.start_soon(self._go_on, board, status)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._serves = False
                self._unhurried_until = self._clock.now() + EXTEND_LIMIT_S
                self._notifier.send("STOPPING=1", "STATUS=stopping")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """The configuration is read while the block runs; ready again however it ends."""
        self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.now() * 1e6)}")
        try:
            yield
        finally:
            self._notifier.send("READY=1", f"STATUS={self._shown}")

    async def _go_on(self, board: Board, status: Callable[[], str]) -> None:
        while True:
            if self._watchdog_s is not None:
                await self._give_sign(board, self._watchdog_s)
            if (now := status()) != self._shown:
                self._shown = now
                self._notifier.send(f"STATUS={now}")
            await anyio.sleep(self._every_s)

    async def _give_sign(self, board: Board, watchdog_s: float) -> None:
        """Show that the loop turns and that the supervisor takes what is posted to it."""
        with anyio.move_on_after(watchdog_s / 3) as patience:
            await board.answer()
        answers = not patience.cancelled_caught
        if answers:
            self._notifier.send("WATCHDOG=1")
        elif self._answers:
            log.error("watchdog.withheld", reason="the supervisor does not take its work")
        self._answers = answers


def describe(
    engines: Iterable[EngineView],
    queue: QueueView,
    operation: OperationView | None,
    file: ConfigFileView | None,
    degraded: Iterable[str] = (),
) -> str:
    """What serves, at what depth, where it lies, and who waits, as one line."""
    parts = [_engine(one) for one in engines if one.state != "stopped"] or ["no model is loaded"]
    if queue.in_flight or queue.waiting:
        parts.append(f"{queue.in_flight} running, {queue.waiting} waiting")
    if operation is not None:
        parts.append(f"{operation.kind} {operation.state}")
    if file is not None and file.problems:
        parts.append(f"the configuration on the disk has {len(file.problems)} error(s)")
    parts += [f"degraded: {one}" for one in degraded]
    line = " ".join("; ".join(parts).split())
    if len(line) <= STATUS_CHARACTERS:
        return line
    return f"{line[: STATUS_CHARACTERS - 1]}…"


def _engine(one: EngineView) -> str:
    if one.state != "ready" or one.arm is None:
        return f"{one.profile} {one.state}"
    return f"{one.profile} at depth {one.arm.depth}, {one.residency.state}"
