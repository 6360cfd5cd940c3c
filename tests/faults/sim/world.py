"""One world: the daemon's own switchboard, supervisors and card account on a fake machine.

Real are ``mtpd.proxy.switch`` and all below it (lanes, admission, changes, engines, seats,
turns, room, feasibility, holds), ``mtpd.supervise.runner`` and all below it (machine, retry,
starter, stopper, watch, pulse, life with the parsers and the residency verdict),
``mtpd.supervise.keeper`` with its shares, and ``mtpd.store.backlog``. Fake are time, processes,
the card, the ledger's disk, clients and operators. HTTP is not part of it.
"""

from __future__ import annotations

import datetime as dt
import errno
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import anyio

from mtpd.clock import Clock
from mtpd.control.residency import Residencies
from mtpd.control.waking import Waking
from mtpd.errors import DiskError, NotFoundError
from mtpd.faults import NoFaults
from mtpd.gpu.base import Device
from mtpd.gpu.card import Card as GpuCard
from mtpd.gpu.layered import LayeredProvider
from mtpd.proxy.seats import Seating
from mtpd.proxy.switch import Switchboard
from mtpd.store.backlog import Backlog
from mtpd.supervise.keeper import CardKeeper
from mtpd.supervise.pulse import Pulse
from mtpd.supervise.runner import EngineActor
from mtpd.units import EngineId
from tests.fakes.board import Queue
from tests.faults.sim.card import CARD, Card
from tests.faults.sim.chance import Chance
from tests.faults.sim.child import Machine
from tests.faults.sim.fate import CRASHED, Fate, draw
from tests.faults.sim.plans import draw_models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mtpd.events import Event
    from mtpd.types import Endpoint, EngineKey, LaunchPlan, Verdict
    from tests.faults.sim.child import Make
    from tests.faults.sim.loop import VirtualLoop
    from tuner.types import Arm, Decision

__all__ = ["World"]


class SimClock(Clock):
    """The loop's time; the wall clock jumps as it likes.

    Attributes:
        wall: How far the wall clock is off.
        asleep_s: How long the machine was suspended.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.wall = dt.timedelta()
        self.asleep_s = 0.0

    def now(self) -> float:
        return self._loop.time()

    def utc(self) -> dt.datetime:
        return (
            dt.datetime(2026, 11, 29, tzinfo=dt.UTC) + self.wall + dt.timedelta(seconds=self.now())
        )

    def slept(self) -> float:
        return self.asleep_s


class Notes:
    """Notes of starts beside the sockets; that file system may be full, too.

    Attributes:
        kept: Engine ids of the starts.
        refuses: Whether it takes none.
        on_drop: Told of a note that is taken back.
    """

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.refuses = False
        self.on_drop: Callable[[str], None] = lambda _engine_id: None

    def put(self, engine_id: EngineId) -> None:
        if self.refuses:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept.add(engine_id)

    def drop(self, engine_id: EngineId) -> None:
        self.kept.discard(engine_id)
        self.on_drop(engine_id)


class Ledger:
    """Rows in memory; a full disk refuses some, and what it refuses is noted and owed.

    Attributes:
        open: Engine ids of processes that may exist.
        refuses: Whether the disk is full.
        notes: Where a start is noted that the disk has refused.
    """

    lasting = True

    def __init__(self, chance: Chance) -> None:
        self._rng = chance.of("ledger")
        self.open: set[str] = set()
        self.refuses = False
        self.notes = Notes()
        self._backlog = Backlog(self, self.notes)
        self._refusals = 0
        self._before: dict[str, int] = {}

    async def write(self, work: Callable[[set[str]], object]) -> None:
        await anyio.sleep(self._rng.choice((0.0, 0.0, 0.004, 0.2)))
        if self.refuses:
            self._refusals += 1
            raise DiskError("the store cannot be written: database or disk is full")
        work(self.open)

    def refused(self, engine_id: EngineId) -> bool:
        """Whether the disk has refused something since this start was intended."""
        return self._refusals > self._before[engine_id]

    async def settle(self) -> None:
        """The disk may take writes again."""
        with suppress(DiskError):
            await self._backlog.settle()

    async def intend(self, engine_id: EngineId, **_row: object) -> None:
        self._before[engine_id] = self._refusals
        await self._backlog.begin(engine_id, lambda rows: rows.add(engine_id))

    async def spawned(self, engine_id: EngineId, pid: int, start_ticks: int) -> None:
        del pid, start_ticks
        await self._backlog.change(engine_id, len)

    async def judged(self, engine_id: EngineId, verdict: Verdict) -> None:
        del verdict
        await self._backlog.change(engine_id, len)

    async def ended(self, engine_id: EngineId, code: int | None) -> None:
        del code
        await self._backlog.change(engine_id, lambda rows: rows.discard(engine_id), ended=True)


class Watched(EngineActor):
    """A supervisor whose orders are noted."""

    def __init__(self, on_order: Callable[[str], None], **parts: Any) -> None:
        super().__init__(**parts)
        self._on_order = on_order

    def start(self, plan: LaunchPlan) -> None:
        self._on_order(self.key.profile)
        super().start(plan)


class World:
    """Everything of one seed.

    Attributes:
        cursed: A model whose engine dies at every start, or None.
        trace: What happened, with its time; the same for the same seed.
        broken: The first rule that was broken; the daemon goes under with it.
        ended_at: When the daemon was told to end, or None.
        forced: Profiles that an operator has forced.
        holding: Whether an operation measures an engine that it has started.
        on_event: Told what the daemon tells.
        on_order: Told of every order to start something, by its profile.
    """

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop, self.chance = loop, Chance(seed)
        rng = self.chance.of("world")
        self.storm = rng.choice((0.0, 0.2, 0.5, 1.0))
        self.models = draw_models(rng)
        self.cursed = rng.choice(self.names) if rng.random() < self.storm / 4 else None
        self.clock, self.card = SimClock(loop), Card(loop, self.chance.of("card"))
        self.waking = Waking(clock=self.clock, publish=lambda _event: None)
        self.machine = Machine(loop, self.card, self._fate)
        self.ledger = Ledger(self.chance)
        self.trace: list[tuple[float, str]] = []
        self.ended_at: float | None = None
        self.broken: AssertionError | None = None
        self.forced: set[str] = set()
        self.holding = False
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_order: Callable[[str], None] = lambda _profile: None
        self.chosen: dict[str, Arm] = {}
        self.actors: dict[str, EngineActor] = {}
        self._starts = 0
        config = self.models.config
        self.seating = Seating(config, device_for=lambda _: CARD)
        self.residencies = Residencies(
            config=config,
            planner=cast("Any", self.models),
            memory=cast("Any", self.models),
            seating=self.seating,
            measurements=cast("Any", None),
            card=GpuCard(
                device=Device(key=CARD, vendor="amd"),
                power_cap_w=self.card.cap_w,
                provider=LayeredProvider(()),
            ),
            sampler=cast("Any", self.card),
            clock=self.clock,
        )
        self.keeper = self.residencies.keeper = CardKeeper(
            self.card, clock=self.clock, needs=self.residencies.needs, pids=self.machine.pids_of
        )
        self.residencies.account._card = self.keeper
        self.limits = Queue(
            max_waiting=rng.choice((3, 16, 64)), queue_timeout_s=rng.choice((20.0, 120.0, 600.0))
        )
        self.board: Switchboard[str] = Switchboard(
            make_actor=self._actor,
            plan_for=self.residencies.plan,
            arm_for=self.arm_for,
            seating=self.seating,
            slots_for=lambda profile: config.profiles[profile].slots,
            connect=self._connect,
            limits=self.limits,
            clock=self.clock,
            feasible=self.residencies.feasible,
            account=self.residencies.account,
            decide=self._decide,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.models.layers)

    def say(self, text: str) -> None:
        """Note what happened."""
        self.trace.append((self.loop.time(), text))

    def arm_for(self, profile: str) -> Arm:
        """The arm that was chosen, or one that fits instead."""
        found = self.models.config.profiles.get(profile)
        if found is None:
            msg = f"{profile} is not configured"
            raise NotFoundError(msg)
        arm = self.chosen.get(profile, found.initial_arm())
        instead = self.residencies.instead(found, arm)
        return arm if instead is None else instead[0]

    def _fate(self, make: Make) -> Fate:
        fate = draw(self.chance.of("fate"), self.storm)
        if make.profile == self.cursed:
            return replace(fate, load_s=0.4, ends_loading=CRASHED, stalls=False)
        return fate

    def _actor(self, key: EngineKey) -> EngineActor:
        rng = self.chance.of(f"jitter/{key.profile}")
        actor = self.actors[key.profile] = Watched(
            self.on_order,
            key=key,
            spawner=self.machine,
            ledger=self.ledger,
            clock=self.clock,
            faults=NoFaults(),
            probe=self.machine,
            log_dir=None,
            on_event=self.on_event,
            rng=rng.random,
            new_id=self._new_id,
            card=self.keeper,
            pulse=Pulse(ask=self.machine.answers, woken=self.waking.woken),
        )
        return actor

    def _new_id(self) -> EngineId:
        self._starts += 1
        return EngineId(f"e{self._starts}")

    async def _decide(self, decision: Decision) -> None:
        await anyio.lowlevel.checkpoint()
        self.say(f"decided: {decision.reason}")

    @asynccontextmanager
    async def _connect(self, endpoint: Endpoint) -> AsyncIterator[str]:
        await anyio.sleep(self.chance.of("connect").choice((0.0, 0.001, 0.05)))
        yield str(endpoint)
