"""The daemon's own control loop on a simulated card: real parts, scripted engine, fast clock.

Only the switchboard, the engine's counters and the tuning are not the daemon's own; what they
do is what a card with these speeds and acceptances would do.
"""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from mtpd.api import problem
from mtpd.bus import Bus
from mtpd.config.live import LiveConfig
from mtpd.config.model import Config, TuningConfig, TuningMode
from mtpd.control import memory
from mtpd.control.choices import Choices
from mtpd.control.contests import Contests
from mtpd.control.deciding import SWEEP, DepthInputs, decide
from mtpd.control.effects import Effects
from mtpd.control.live import LiveTraffic
from mtpd.control.loop import ControlLoop
from mtpd.control.recorded import encode_inputs
from mtpd.control.recorder import StoreRecorder
from mtpd.control.sensing import Sensing
from mtpd.engine.fingerprint import Fingerprint
from mtpd.engine.prom import SpecCounters
from mtpd.errors import MtpdError
from mtpd.events import EngineTransition, RequestFinished
from mtpd.gpu.window import Around
from mtpd.operations import Operations
from mtpd.proxy.outcomes import DrainTimeoutError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.live_states import LiveStates
from mtpd.store.operations_table import OperationRows
from mtpd.store.samples import Measurements
from mtpd.types import Absent, NotApplicable, Value
from mtpd.views import ArmView, EngineView, GateView, QueueView, ResidencyView
from tests.fakes.clock import FakeClock
from tests.unit.control.made import profile, workload
from tests.unit.tuner.machine import WORKLOADS, Machine
from tuner.classes import Band, WorkloadClass
from tuner.plan import History
from tuner.types import Arm, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path
    from typing import Any

    from mtpd.config.model import Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.tuning import TuningPlan
    from mtpd.operations import Progress
    from mtpd.types import Reading
    from mtpd.views import DecisionView, Json

MODEL = profile("m")
PROMPT_TOKENS = {Band.SHORT: 200, Band.MEDIUM: 4000, Band.LONG: 12_000}
FIELDS: dict[str, Any] = {"engine": "e" * 64, "power_cap_w": 225.0, "context": 4096}


@dataclass(slots=True, kw_only=True)
class Card:
    """What is true of the card and the head; a test changes it.

    Attributes:
        alphas: Conditional acceptances by class; ``other`` is for all that are not in it.
        noise: Relative noise of a request's step time.
        start_s: Seconds that an engine start takes.
    """

    other: tuple[float, ...] = (0.93, 0.74, 0.58)
    alphas: dict[WorkloadClass, tuple[float, ...]] = field(default_factory=dict)
    row_cost: float = 0.41
    raw_tps: float = 32.4
    noise: float = 0.03
    start_s: float = 40.0

    def of(self, klass: WorkloadClass) -> tuple[float, ...]:
        return self.alphas.get(klass, self.other)

    def step_s(self, depth: int) -> float:
        return (1 + self.row_cost * depth) / self.raw_tps

    def s_per_token(self, klass: WorkloadClass, depth: int) -> float:
        """Seconds per token in the mean."""
        reach, expected = 1.0, 1.0
        for alpha in self.of(klass)[:depth]:
            reach *= alpha
            expected += reach
        return self.step_s(depth) / expected

    def machine(self) -> Machine:
        """The same card as a calibration meets it."""
        left, kept = 1.0, list[int]()
        for alpha in self.other:
            left *= alpha
            kept.append(round(1000 * left))
        return Machine(
            accepted=tuple(kept), steps=1000, row_cost=self.row_cost, raw_tps=self.raw_tps
        )


@dataclass(slots=True)
class Board:
    """One engine; a switch takes the card's time and nothing else.

    Attributes:
        free_looks: How often the queue is still seen empty before a request runs; None: for ever.
    """

    clock: FakeClock
    card: Card
    arm: Arm
    starts: list[Arm] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    came: anyio.Event = field(default_factory=anyio.Event)
    told: list[EngineTransition] = field(default_factory=list)
    up: bool = True
    free_looks: int | None = None

    @property
    def engine_id(self) -> str:
        return f"e{len(self.starts)}"

    def engines(self) -> tuple[EngineView, ...]:
        nowhere = ResidencyView(
            state="resident", layers=None, spilled_bytes=None, reason="it fits", evidence=()
        )
        return (
            EngineView(
                id=self.engine_id,
                device="0000:03:00.0",
                profile=self.arm.profile,
                state="ready" if self.up else "stopped",
                arm=ArmView.of(self.arm),
                residency=nowhere,
                pid=1,
                endpoint=None,
                since="",
                starts=len(self.starts),
                failure=None,
                log_tail=(),
            ),
        )

    def queue(self) -> QueueView:
        if self.free_looks is not None:
            self.running = int(self.free_looks <= 0)
            self.free_looks -= 1
        return QueueView(waiting=self.waiting, limit=64, timeout_s=120.0, in_flight=self.running)

    async def until_waited_for(self) -> None:
        while not self.waiting:
            self.came = anyio.Event()
            await self.came.wait()

    def arrives(self) -> None:
        """A request waits."""
        self.waiting += 1
        self.came.set()

    async def switch(self, arm: Arm, *, reason: str, drain_timeout_s: float) -> EngineView:
        self._must_be_free(drain_timeout_s)
        if arm != self.arm or not self.up:
            self.start(arm, reason)
        return self.engines()[0]

    async def stop_engine(self, profile: str, reason: str, *, drain_timeout_s: float) -> None:
        self._must_be_free(drain_timeout_s)
        self.up = False

    def start(self, arm: Arm, reason: str) -> None:
        self.told.append(self._moved("stopped", "spawning", reason))
        self.clock.advance(self.card.start_s)
        self.arm, self.up = arm, True
        self.starts.append(arm)
        self.told.append(self._moved("probing", "ready", reason))

    def _must_be_free(self, patience_s: float) -> None:
        if self.running:
            msg = f"{self.running} request(s) still ran after {patience_s:g} s"
            raise DrainTimeoutError(msg)

    def _moved(self, old: str, new: str, reason: str) -> EngineTransition:
        return EngineTransition(
            engine_id=self.engine_id,
            profile=self.arm.profile,
            arm=str(self.arm),
            old=old,
            new=new,
            reason=reason,
        )


@dataclass(slots=True)
class Tunes:
    """Measures as the card is, unless it is told to take its time."""

    house: House | None = None
    hangs: bool = False
    fails: bool = False
    asked: list[TuningPlan] = field(default_factory=list)
    begun: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, plan: TuningPlan, operation_id: str, progress: Progress) -> dict[str, Json]:
        assert self.house is not None
        self.asked.append(plan)
        if self.fails:
            msg = "no arm could be started"
            raise MtpdError(msg)
        if self.hangs:
            await self.house.repetition(operation_id)
            self.begun.set()
            await anyio.sleep_forever()
        await self.house.measure(operation_id=operation_id)
        return {"subject": plan.subject}


@dataclass(slots=True)
class House:
    """Everything, and what a test does with it."""

    loop: ControlLoop
    traffic: LiveTraffic
    board: Board
    card: Card
    clock: FakeClock
    journal: Journal
    measurements: Measurements
    recorder: StoreRecorder
    operations: Operations
    effects: Effects
    choices: Choices
    config: LiveConfig
    tunes: Tunes
    fields: dict[str, Any]
    cap_w: list[float]
    gates: list[GateView]
    rng: random.Random
    counters: dict[str, SpecCounters]
    spent_s: float = 0.0
    served: list[tuple[float, tuple[float, ...]]] = field(default_factory=list)
    """When a request was served, and what it takes in the mean at every depth."""

    async def repetition(self, operation_id: str) -> None:
        """One stored repetition of a measurement that goes on."""
        (first, *_) = self.card.machine().sweep(0, profile="m")
        await self.measurements.add(first, acceptance_source="metrics", operation_id=operation_id)

    async def measure(
        self, *depths: int, operation_id: str | None = None, apply: bool = True
    ) -> DecisionView:
        """Measure the card as it is, and choose."""
        machine = self.card.machine()
        digest = Fingerprint(self.fields).digest
        machine = Machine(
            accepted=machine.accepted,
            steps=machine.steps,
            row_cost=machine.row_cost,
            raw_tps=machine.raw_tps,
            fingerprint=digest,
        )
        taken = machine.sweep(*(depths or (0, 1, 2, 3)), profile="m")
        views = []
        for one in taken:
            number = await self.measurements.add(
                one,
                acceptance_source="metrics",
                operation_id=operation_id,
                fingerprint_fields=dict(self.fields),
            )
            stored = await self.measurements.get(number)
            assert stored is not None
            views.append(stored)
        inputs = DepthInputs(
            subject="m",
            method=SWEEP,
            applied=apply,
            history=History(observations=taken, spent_s=300.0),
            arms=tuple(dict.fromkeys(one.arm for one in taken)),
            workloads=WORKLOADS,
            repetitions=3,
        )
        view = await self.recorder.decide(
            decide(inputs),
            measurements=views,
            operation_id=operation_id,
            inputs=encode_inputs(inputs) | {"verdicts": {}},
        )
        if apply:
            self.choices.adopt(view)
        return view

    async def serve(self, klass: WorkloadClass, *, tokens: int = 400) -> None:
        """One request from its arrival to the loop's look at its end."""
        depth, alphas = self.board.arm.depth, self.card.of(klass)
        steps, hits, made = 0, [0] * depth, 1
        while made < tokens:
            steps += 1
            place = 0
            while place < depth and self.rng.random() < alphas[place]:
                hits[place] += 1
                place += 1
            made += place + 1
        decode_s = steps * self.card.step_s(depth) * (1 + self.rng.gauss(0, self.card.noise))
        self.spent_s += made * self.card.s_per_token(klass, depth)
        depths = range(MODEL.drafter.max_depth + 1)
        costs = tuple(made * self.card.s_per_token(klass, k) for k in depths)
        self.served.append((self.clock.now(), costs))
        self.counters["m"] = SpecCounters(
            drafts=steps, drafted=steps * depth, accepted=sum(hits), per_position=tuple(hits)
        )
        self.clock.advance(decode_s)
        self.loop.hear(
            RequestFinished(
                request_id="r",
                profile="m",
                depth=depth,
                path="/v1/chat/completions",
                outcome="complete",
                status=200,
                duration_s=decode_s,
                prompt_tokens=PROMPT_TOKENS[klass.band],
                completion_tokens=made,
                drafted=steps * depth if depth else None,
                accepted=sum(hits) if depth else None,
                engine_id=self.board.engine_id,
                generated=made,
                decode_s=decode_s,
                kind=klass.kind.value,
                sampling=klass.sampling.value,
                reasoning=klass.reasoning,
            )
        )
        await self.look()

    async def look(self) -> None:
        """Let the loop look; what the board has told meanwhile is heard."""
        await self.loop.step()
        if self.board.told:
            while self.board.told:
                self.loop.hear(self.board.told.pop(0))
            await self.loop.step()

    async def quiet(self, seconds: float, *, every_s: float = 30.0) -> None:
        """Nobody asks for so long."""
        left = seconds
        while left > 0:
            self.clock.advance(min(every_s, left))
            left -= every_s
            await self.look()

    def least_s(self, since_s: float, until_s: float) -> float:
        """What the requests of a time would have taken at the one depth that is best for them."""
        then = [costs for at_s, costs in self.served if since_s <= at_s < until_s]
        return min(map(sum, zip(*then, strict=True)))

    async def own(self) -> list[DecisionView]:
        """What the loop decided, oldest first."""
        found = await self.journal.list()
        return [one for one in found if not one.measurement_ids or one.act == "switch"]

    def live(self) -> Any:
        """The model as the API shows it."""
        (found,) = self.loop.view().profiles
        return found


class _Memory:
    async def forecast(self, profile: Profile) -> MemoryForecast:
        unknown = Unknown("the file is no model")
        return memory.forecast(
            profile, unknown, NotApplicable("there is no device"), margin_bytes=None
        )


class _Planner:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def fingerprint(self, profile: Profile) -> Fingerprint:
        return Fingerprint(dict(self._fields))


class _Counters:
    def __init__(self, counted: Mapping[str, SpecCounters]) -> None:
        self._counted = counted

    async def moved(self, profile: str, engine_id: str) -> SpecCounters | Absent:
        return self._counted.get(profile, Absent("nothing was served yet"))


@asynccontextmanager
async def living(
    folder: Path,
    *,
    card: Card | None = None,
    depth: int = 0,
    mode: str = "idle",
    seed: int = 1,
    operations_type: type[Operations] = Operations,
    **tuning: Any,
) -> AsyncIterator[House]:
    """A daemon's loop that was not asked anything yet; the model runs at ``depth``."""
    clock, truth = FakeClock(), card or Card()
    config = LiveConfig(
        Config(
            profiles={"m": MODEL},
            workloads={name: workload(name) for name in ("short", "prose", "code")},
            tuning=TuningConfig(mode=TuningMode(mode), **tuning),
        )
    )
    fields, cap_w, gates = dict(FIELDS), [225.0], list[GateView]()
    counters: dict[str, SpecCounters] = {}
    board, tunes = Board(clock, truth, MODEL.arm(depth)), Tunes()
    async with await Database.open(folder / "mtpd.sqlite3", clock) as db:
        measurements = Measurements(db=db, clock=clock)
        journal, bus = Journal(db=db, clock=clock), Bus(boot="b", clock=clock)
        operations = operations_type(
            rows=OperationRows(db=db), bus=bus, clock=clock, describe=problem.described
        )

        async def described(_profile: str, _digest: str) -> dict[str, Json] | None:
            return dict(fields)

        async def shown() -> tuple[GateView, ...]:
            return tuple(gates)

        def cap() -> Reading[float]:
            return Value(cap_w[-1], "test")

        recorder = StoreRecorder(
            measurements=measurements, journal=journal, bus=bus, describe=described
        )
        choices = Choices(config)
        planner = _Planner(fields)
        traffic = LiveTraffic(
            config=config,
            states=LiveStates(db=db, clock=clock),
            meter=_Counters(counters),
            around=lambda _begin, _end: Around(),
            on_card=True,
            clock=clock,
        )
        await traffic.restore()
        effects = Effects(
            config=config,
            board=board,
            operations=operations,
            recorder=recorder,
            journal=journal,
            measurements=measurements,
            choices=choices,
            tuning=tunes,
            clock=clock,
            on_switched=lambda _outcome, _seconds: None,
        )
        loop = ControlLoop(
            config=config,
            traffic=traffic,
            sensing=Sensing(
                traffic=traffic,
                choices=choices,
                planner=planner,
                memory=_Memory(),
                misfit=lambda _profile, _arm: None,
                journal=journal,
                recorder=recorder,
                measurements=measurements,
                contests=Contests(
                    config=config,
                    choices=choices,
                    digest=lambda one: planner.fingerprint(one).digest,
                    memory=_Memory().forecast,
                    misfit=lambda _profile, _arm: None,
                    journal=journal,
                    recorder=recorder,
                    clock=clock,
                ),
                cap_w=cap,
                gates=shown,
                clock=clock,
            ),
            effects=effects,
            recorder=recorder,
            board=board,
            operations=operations,
            clock=clock,
        )
        house = House(
            loop=loop,
            traffic=traffic,
            board=board,
            card=truth,
            clock=clock,
            journal=journal,
            measurements=measurements,
            recorder=recorder,
            operations=operations,
            effects=effects,
            choices=choices,
            config=config,
            tunes=tunes,
            fields=fields,
            cap_w=cap_w,
            gates=gates,
            rng=random.Random(seed),  # noqa: S311 - a test's reproducible draw
            counters=counters,
        )
        tunes.house = house
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(operations.run)
            yield house
            tasks.cancel_scope.cancel()
