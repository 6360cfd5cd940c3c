"""What the supervisor's tests start and note: plans, a ledger in memory, a probe by file."""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.faults import NoFaults
from mtpd.supervise.runner import EngineActor
from mtpd.supervise.spawn import ShimSpawner
from mtpd.supervise.watch import no_record
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint
from mtpd.units import DeviceKey, EngineId
from tests.fakes.clock import FakeClock
from tests.fakes.script import VARIABLE
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.engine.facts import Fact
    from mtpd.events import Event
    from mtpd.faults import Faults
    from mtpd.supervise.ports import Card, Probe, Spawner
    from mtpd.supervise.pulse import Pulse
    from mtpd.types import Endpoint, Verdict

ROOT = Path(__file__).parents[2]
KEY = EngineKey(DeviceKey("host"), "tiny")
TINY = str(Path(__file__).with_name("tiny_child.py"))


def plan_of(*argv: str, path: Path, depth: int = 0, load_stall_s: float = 120.0) -> LaunchPlan:
    """A plan for any program; PYTHONPATH lets it find the fakes."""
    return LaunchPlan(
        key=KEY,
        arm=Arm(profile="tiny", drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth),
        command=Command(argv=argv, env={"PYTHONPATH": str(ROOT)}),
        endpoint=UnixEndpoint(str(path)),
        fingerprint="f",
        load_stall_s=load_stall_s,
    )


def tiny(
    directory: Path, *, depth: int = 0, load_stall_s: float = 120.0, **knobs: object
) -> LaunchPlan:
    """A plan for the tiny child."""
    path = directory / "ready"
    argv = (sys.executable, "-I", "-S", TINY, str(path), json.dumps(knobs))
    return plan_of(*argv, path=path, depth=depth, load_stall_s=load_stall_s)


def scripted(
    directory: Path, *, depth: int = 0, load_stall_s: float = 120.0, **knobs: object
) -> LaunchPlan:
    """A plan for the scripted llama-server; the knobs are those of ``tests.fakes.script``."""
    path = directory / "engine.sock"
    argv = [
        sys.executable, "-m", "tests.fakes.llama_server",
        "--model", str(bundled_model("tiny-chained.gguf")),
        "--host", str(path),
        "--verbosity", "4",
    ]  # fmt: skip
    if depth:
        argv += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth)]
    plan = plan_of(*argv, path=path, depth=depth, load_stall_s=load_stall_s)
    env = {**plan.command.env, VARIABLE: json.dumps(knobs)}
    return replace(plan, command=Command(argv=plan.command.argv, env=env))


class MemoryLedger:
    """Notes in memory, in the order of writing."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, ...]] = []

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
        await anyio.lowlevel.checkpoint()
        self.notes.append(("intend", engine_id))

    async def spawned(self, engine_id: EngineId, pid: int, start_ticks: int) -> None:
        await anyio.lowlevel.checkpoint()
        assert start_ticks > 0
        self.notes.append(("spawned", engine_id, str(pid)))

    async def judged(self, engine_id: EngineId, verdict: Verdict) -> None:
        await anyio.lowlevel.checkpoint()
        self.notes.append(("judged", engine_id, verdict.label))

    async def ended(self, engine_id: EngineId, code: int | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.notes.append(("ended", engine_id, str(code)))


class FileProbe:
    """Serves when the endpoint's path exists."""

    def clear(self, endpoint: Endpoint) -> None:
        assert isinstance(endpoint, UnixEndpoint)
        Path(endpoint.path).unlink(missing_ok=True)

    async def check(
        self,
        plan: LaunchPlan,
        *,
        pid: int,
        listening: anyio.Event,
        on_healthy: Callable[[], None],
    ) -> bool | None:
        assert isinstance(plan.endpoint, UnixEndpoint)
        while not await anyio.Path(plan.endpoint.path).exists():  # noqa: ASYNC110 - as a probe polls
            await anyio.sleep(0.01)
        on_healthy()
        return None

    async def fails(self, plan: LaunchPlan) -> bool:
        return not await anyio.Path(plan.endpoint.path).exists()  # type: ignore[union-attr]


class ManualTime(FakeClock):
    """A clock whose sleepers wake when a test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, anyio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        event = anyio.Event()
        self._sleepers.append((self.now() + seconds, event))
        await event.wait()

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for until, event in self._sleepers:
            if until <= self.now():
                event.set()


class Stage:
    """One actor with everything it needs, and all that it said."""

    def __init__(
        self,
        log_dir: Path | None = None,
        *,
        probe: Probe | None = None,
        spawner: Spawner | None = None,
        ledger: MemoryLedger | None = None,
        card: Card | None = None,
        pulse: Pulse | None = None,
        record: Callable[[LaunchPlan], Awaitable[float | None]] = no_record,
        on_event: Callable[[Event], None] | None = None,
        time: ManualTime | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        faults: Faults | None = None,
        prefix: str = "e",
    ) -> None:
        self.events: list[Event] = []
        self.facts: list[Fact] = []
        self.ledger = ledger or MemoryLedger()
        # Processes are found, and ended, by their engine: never those of a test beside this one.
        self._count, self._prefix = 0, f"{prefix}{os.getpid()}-"
        self.actor = EngineActor(
            key=KEY,
            spawner=spawner or ShimSpawner(),
            ledger=self.ledger,
            clock=time or SystemClock(),
            faults=faults or NoFaults(),
            probe=probe or FileProbe(),
            log_dir=log_dir,
            on_event=on_event or self.events.append,
            rng=lambda: 0.5,
            new_id=self.new_id,
            on_fact=lambda _, fact: self.facts.append(fact),
            card=card,
            pulse=pulse,
            record=record,
            sleep=time.sleep if time else sleep,
        )

    def new_id(self) -> EngineId:
        self._count += 1
        return EngineId(f"{self._prefix}{self._count}")

    @property
    def first(self) -> EngineId:
        """The id of the first start."""
        return EngineId(f"{self._prefix}1")

    def states(self) -> list[str]:
        """The names of the states, in order."""
        return [new for event in self.events if (new := getattr(event, "new", None))]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EngineActor]:
        """Run the actor; leaving ends it as the end of the daemon would."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.actor.run)
            yield self.actor
            tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Wait for a condition."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await anyio.sleep(0.005)


async def hurried(seconds: float) -> None:
    """Sleep a tenth of the time: ladders in tests need not take their seconds."""
    await anyio.sleep(0.0 if math.isclose(seconds, 0.0) else seconds / 10)
