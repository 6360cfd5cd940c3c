"""What an engine actor needs from others, as protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.engine.memory_look import MemoryLook
    from mtpd.supervise.output import Output
    from mtpd.supervise.spawn import Exit
    from mtpd.supervise.states import Cause
    from mtpd.types import Command, Endpoint, LaunchPlan, Verdict
    from mtpd.units import DeviceKey, EngineId
    from tuner.types import Arm

__all__ = ["Card", "Child", "LedgerWriter", "NoCard", "Probe", "Spawner"]


class LedgerWriter(Protocol):
    """Durable notes of which processes may exist; raises StoreError when it cannot write."""

    async def intend(
        self,
        engine_id: EngineId,
        *,
        profile: str,
        device: DeviceKey,
        arm: Arm,
        argv_digest: str,
        endpoint: Endpoint,
        fingerprint: str,
    ) -> None:
        """Note that a process is about to be created; committed when this returns."""

    async def spawned(self, engine_id: EngineId, pid: int, start_ticks: int) -> None:
        """Note which process it became."""

    async def judged(self, engine_id: EngineId, verdict: Verdict) -> None:
        """Note the residency verdict."""

    async def ended(self, engine_id: EngineId, code: int | None) -> None:
        """Note the end: the exit code, minus the signal, or None where nobody saw it."""


class Child(Protocol):
    """A process that was created."""

    @property
    def pid(self) -> int:
        """Its process id, which is also its group's and its session's."""

    @property
    def start_ticks(self) -> int:
        """Field 22 of its /proc/PID/stat."""

    def signal(self, number: int) -> None:
        """Signal its group; does nothing once it has ended."""

    def catch_up(self) -> None:
        """Read what it has printed so far."""

    async def closed(self) -> None:
        """Wait until it has ended and its pipes are closed."""


class Spawner(Protocol):
    """Creates processes."""

    def spawn(
        self,
        command: Command,
        *,
        engine_id: EngineId,
        output: Output,
        on_exit: Callable[[Exit], None],
    ) -> Child:
        """Create a process; raises OSError. ``on_exit`` is called once, from the loop."""


class Probe(Protocol):
    """Finds out whether a process serves."""

    def clear(self, endpoint: Endpoint) -> None:
        """Remove what an earlier process left at the endpoint; raises EngineError."""

    async def check(
        self,
        plan: LaunchPlan,
        *,
        pid: int,
        listening: anyio.Event,
        on_healthy: Callable[[], None],
    ) -> bool | None:
        """Return once the canary came back; raises EngineError when it will not.

        What is returned is whether its slots draft, or None where they do not say.
        ``listening`` is set when the log says that requests are taken; a build that never
        says so is asked all the same. How long a load may take is the machine's business:
        this waits until cancelled.
        """

    async def fails(self, plan: LaunchPlan) -> bool:
        """Whether a completion is answered with an error; one that is late fails not."""


class Card(Protocol):
    """The device that an engine runs on: what is read of it, and whether it is free."""

    async def admit(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook | None:
        """Look at the card before a start; None where there is no card to read.

        Waits while the memory of another engine moves.

        Raises:
            EngineError: It is not free for this plan, or does not answer.
        """

    def withdrawn(self, engine_id: EngineId) -> None:
        """Do not wait for the memory of a start any more.

        Its process never came to exist, or does not go away, or the daemon ends.
        """

    async def look(self, engine_id: EngineId, pid: int) -> MemoryLook | None:
        """Look at the card and at what this engine holds of it."""

    def took(self, engine_id: EngineId) -> int | None:
        """Bytes that a start was measured to take when it was last looked at, or None."""

    async def free_now(self) -> int | None:
        """Memory of the card that nobody holds; None where that cannot be said."""

    async def following(self, engine_id: EngineId, pid: int) -> MemoryLook | None:
        """The next look of those that are taken anyway, about one a second."""

    async def released(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> Cause | None:
        """Wait until an ended engine's memory is back; None if it is, or if nobody can tell.

        Returns in bounded time, with the reason where the card is not free by then.

        Args:
            engine_id: The start that ended.
            pid: Its process, in case that it was never looked at.
            before: The card before it.
            reset: Wait first until a card answers that may be in a reset.
        """


class NoCard:
    """Memory that nobody counts: back when the process is gone, and nothing to read."""

    async def admit(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook | None:
        """Admit everything."""
        del engine_id, plan
        return None

    def withdrawn(self, engine_id: EngineId) -> None:
        """Keep no account."""
        del engine_id

    async def look(self, engine_id: EngineId, pid: int) -> MemoryLook | None:
        """See nothing."""
        del engine_id, pid
        return None

    def took(self, engine_id: EngineId) -> int | None:
        """Know nothing."""
        del engine_id
        return None

    async def free_now(self) -> int | None:
        """Know nothing."""
        return None

    async def following(self, engine_id: EngineId, pid: int) -> MemoryLook | None:
        """Wait for ever: there is nothing to see."""
        del engine_id, pid
        await anyio.sleep_forever()
        return None

    async def released(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> Cause | None:
        """Wait for nothing."""
        del engine_id, pid, before, reset
        return None
