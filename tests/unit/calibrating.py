"""What a calibration is told: a sink, its progress, a gate, and a design of one ask per arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.calibrate import Calibrator, Sampling
from mtpd.gpu.window import Around
from mtpd.types import GateResult
from tests.fakes.clock import FakeClock
from tests.fakes.values import measurement_view
from tests.unit.control.made import workload
from tuner.design import Ask, Cell, History, Stop, Sweep, WorkloadPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from mtpd.calibrate import Hold, Meter, Repetition
    from mtpd.views import MeasurementView
    from tuner.design import Design
    from tuner.types import Arm

    Metered = Callable[[], AbstractAsyncContextManager[Meter]]

__all__ = ["OPEN", "SHORT", "Once", "Told"]

OPEN = GateResult(passed=True, reason="not applicable (no GPU)")
SHORT = (WorkloadPlan(name="short", prompts=2),)
SAMPLING = Sampling(max_tokens=12)


class Told:
    """Sink, progress and gate of one calibration; remembers everything."""

    def __init__(self, gate: GateResult = OPEN) -> None:
        self.gate = gate
        self.repetitions: list[Repetition] = []
        self.progress: list[tuple[int, str]] = []
        self.clock = FakeClock()
        self.meter: Metered | None = None
        self.around: Callable[[float, float], Around] = lambda _begin_s, _end_s: Around()

    async def add(self, repetition: Repetition) -> MeasurementView:
        self.repetitions.append(repetition)
        self.clock.advance(1.0)
        return measurement_view(id=len(self.repetitions))

    def report(self, done: int, note: str) -> None:
        self.progress.append((done, note))

    async def gated(self) -> GateResult:
        return self.gate

    async def run(
        self,
        hold: Hold,
        *arms: Arm,
        plans: tuple[WorkloadPlan, ...] = SHORT,
        repetitions: int = 2,
        sampling: Sampling = SAMPLING,
    ) -> History:
        design = Sweep(arms=arms, workloads=plans, repetitions=repetitions)
        return await self.follow(design, hold, sampling=sampling)

    async def follow(self, design: Design, hold: Hold, *, sampling: Sampling = SAMPLING) -> History:
        calibrator = Calibrator(
            workloads=lambda: {name: workload(name) for name in ("short", "prose")},
            gate=self.gated,
            clock=self.clock,
            metered=self.meter,
            around=self.around,
        )
        return await calibrator.run(design, hold, self, sampling=sampling, progress=self)


@dataclass(frozen=True)
class Once:
    """Asks for one cell of each arm, and for short steps."""

    arms: tuple[Arm, ...]
    short_steps: int = 3

    def ask(self, history: History) -> Ask | Stop:
        if len(history.starts) == len(self.arms):
            return Stop(reason="all were asked", rejected=())
        cells = tuple(Cell(workload="short", prompt=prompt, repetition=0) for prompt in (0, 1))
        which = self.arms[len(history.starts)]
        return Ask(arm=which, cells=cells, reason="it is next", short_steps=self.short_steps)
