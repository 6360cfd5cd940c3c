"""What an engine actor needs from others, as protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from mtpd.supervise.output import Output
    from mtpd.supervise.spawn import Exit
    from mtpd.types import Command, Endpoint, EngineKey, LaunchPlan, Verdict
    from mtpd.units import DeviceKey, EngineId
    from tuner.types import Arm

__all__ = ["Child", "LedgerWriter", "Probe", "Release", "Spawner", "no_device"]


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
    ) -> None:
        """Return once the canary came back; raises EngineError when it will not.

        ``listening`` is set when the log says that requests are taken; a build that never
        says so is asked all the same. How long a load may take is the machine's business:
        this waits until cancelled.
        """


class Release(Protocol):
    """Waits until an ended engine's device memory is back."""

    async def __call__(self, key: EngineKey) -> None:
        """Return in bounded time, also if the memory never comes back."""


async def no_device(key: EngineKey) -> None:
    """Wait for nothing: host memory is back when the process is gone."""
    del key
