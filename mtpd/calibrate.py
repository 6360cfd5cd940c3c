"""Runs the cells that a design asks for, on a held device, and tells what it measured.

Covers one calibration: start the arm, wait for the gate, warm up at the arm's own depth,
measure every repetition, store it. It does not decide which arm is next
(``tuner.design``) nor what the numbers mean (``tuner.select``).
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from anyio import to_thread

from mtpd import prompts
from mtpd.engine import prom, timings
from mtpd.engine.acceptance import read_acceptance
from mtpd.engine.prom import SpecCounters
from mtpd.errors import BinaryError, CalibrationError, EngineError, GateClosedError, UpstreamError
from mtpd.gpu.window import Around
from mtpd.proxy.feasibility import MisfitError
from mtpd.short_steps import StepClock
from mtpd.types import Absent
from tuner.design import Ask, History
from tuner.types import Observation, Start, Unknown, passes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mtpd.clock import Clock
    from mtpd.config.model import Workload
    from mtpd.engine.acceptance import Source
    from mtpd.engine.client import EngineClient
    from mtpd.engine.heard import RequestFacts
    from mtpd.errors import MtpdError
    from mtpd.types import GateResult, Verdict
    from mtpd.views import MeasurementView
    from tuner.design import Cell, Design
    from tuner.power import Energy
    from tuner.types import Arm, Residency

__all__ = [
    "LOGS_HINT",
    "Calibrator",
    "Hold",
    "Meter",
    "NothingMeasuredError",
    "Progress",
    "Repetition",
    "Sampling",
    "Sink",
    "Started",
]

log = structlog.get_logger()

REPLY_TIMEOUT_S = 600.0
LOG_S = 0.5
"""How long the log lines of a finished request may take to come through the pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An engine that runs for a calibration.

    Attributes:
        client: Talks to it.
        verdict: Its residency.
        start_id: This engine start.
        fingerprint: Digest of all that a result depends on except the depth.
        heard: What its log says about requests.
    """

    client: EngineClient
    verdict: Verdict
    start_id: str
    fingerprint: str
    heard: RequestFacts


class Hold(Protocol):
    """The device, held: requests wait until it is given back."""

    async def start(self, arm: Arm) -> Started:
        """Start the arm and wait until it is ready.

        Raises:
            EngineError: It did not become ready.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """One measured repetition, on its way to the store.

    Attributes:
        observation: What the tuner is told.
        source: Who answered for the draft counters.
        prompt_digest: SHA-256 of the request's text.
        around: The card's state meanwhile.
    """

    observation: Observation
    source: Source
    prompt_digest: str
    around: Around = field(default_factory=Around)


class Sink(Protocol):
    """Where measured repetitions go."""

    async def add(self, repetition: Repetition) -> MeasurementView:
        """Store one repetition durably."""


class Progress(Protocol):
    """Shows how far the calibration is."""

    def report(self, done: int, note: str) -> None:
        """Say that ``done`` repetitions are measured, and what comes now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How every repetition is generated; the same for all cells of a comparison.

    Attributes:
        seed: Fixed seed.
        max_tokens: Tokens per repetition, or None for the workload's own number.
        warmup_tokens: Tokens of the unmeasured run after each start. The first run after
            a start can be a slow outlier, and only at the arm's own depth does it warm
            what will be measured (docs/studies, real GPU at depth 5: -38 %).
    """

    seed: int = 42
    max_tokens: int | None = None
    warmup_tokens: int = 16


LOGS_HINT: Final = "mtpctl logs MODEL prints what the engine said"


class NothingMeasuredError(CalibrationError):
    """No arm of a calibration gave a single repetition.

    Attributes:
        why: The first failure, else what ended the search.
        history: The engine starts, each with its failure.
    """

    def __init__(self, why: str, *, history: History) -> None:
        super().__init__(f"nothing could be measured: {why}", hint=LOGS_HINT)
        self.why, self.history = why, history


class Meter(Protocol):
    """Counts the energy of a stretch of time; ``mtpd.gpu.window`` is the real one."""

    def energy(self) -> Energy | Unknown:
        """Joules from edge to edge, once the stretch is over."""


def _unwatched(_begin_s: float, _end_s: float) -> Around:
    return Around()


class Calibrator:
    """Runs designs on a hold of the device; keeps nothing between two runs.

    Args:
        workloads: Says which there are, by name.
        gate: Waits until a measurement may start.
        clock: Counts the seconds of a budget.
        metered: Counts the energy while its block runs; None where nothing can, and then a
            budget in joules cannot be kept.
        around: What the card's readings between two moments of the clock say of it.
    """

    def __init__(
        self,
        *,
        workloads: Callable[[], Mapping[str, Workload]],
        gate: Callable[[], Awaitable[GateResult]],
        clock: Clock,
        metered: Callable[[], AbstractAsyncContextManager[Meter]] | None = None,
        around: Callable[[float, float], Around] = _unwatched,
    ) -> None:
        self._workloads = workloads
        self._gate = gate
        self._clock = clock
        self._metered = metered
        self._around = around

    async def run(
        self,
        design: Design,
        hold: Hold,
        sink: Sink,
        *,
        sampling: Sampling,
        progress: Progress,
    ) -> History:
        """Measure until the design stops; return everything that was told to it.

        Raises:
            NothingMeasuredError: No arm gave a single repetition.
            CalibrationError: A gate did not open.
        """
        began = self._clock.now()
        run = _Run(
            workloads=self._workloads(),
            gate=self._gate,
            clock=self._clock,
            around=self._around,
            hold=hold,
            sink=sink,
            sampling=sampling,
            progress=progress,
            history=History(spent_j=None if self._metered is None else 0.0),
        )
        while isinstance(asked := await to_thread.run_sync(design.ask, run.history), Ask):
            known_j, used_j = run.history.spent_j, await self._arm(run, asked)
            spent_j = None if known_j is None or used_j is None else known_j + used_j
            run.history = replace(run.history, spent_s=self._clock.now() - began, spent_j=spent_j)
        if not run.history.observations:
            why = next((s.failure for s in run.history.starts if s.failure), asked.reason)
            raise NothingMeasuredError(why, history=run.history)
        log.info("calibration.done", reason=asked.reason, cells=len(run.history.observations))
        return run.history

    async def _arm(self, run: _Run, asked: Ask) -> float | None:
        """Run one arm; its joules, or None where they cannot be read."""
        if self._metered is None:
            await run.arm(asked)
            return None
        async with self._metered() as meter:
            await run.arm(asked)
        used = meter.energy()
        if isinstance(used, Unknown):
            log.info("calibration.energy_unknown", arm=str(asked.arm), reason=used.reason)
            return None
        return used.joules


@dataclass(slots=True, kw_only=True)
class _Run:
    """One calibration; the only writer of its history."""

    workloads: Mapping[str, Workload]
    gate: Callable[[], Awaitable[GateResult]]
    clock: Clock
    around: Callable[[float, float], Around]
    hold: Hold
    sink: Sink
    sampling: Sampling
    progress: Progress
    history: History

    async def arm(self, asked: Ask) -> None:
        """Start an arm once and run its cells; its failure is told, not raised."""
        self._report(f"starting {asked.arm}")
        started = failed = None
        try:
            started = await self.hold.start(asked.arm)
            await self._cells(asked, started)
        except (BinaryError, EngineError, UpstreamError) as error:
            log.warning("calibration.arm_failed", arm=str(asked.arm), reason=str(error))
            failed = error
        self.history = self.history.started(self._start(asked.arm, started, failed))

    def _start(self, arm: Arm, started: Started | None, failed: MtpdError | None) -> Start:
        """One row per engine start, with its verdict also where it died in mid-cell."""
        number = len(self.history.starts)
        failure = None if failed is None else str(failed)
        if started is None:
            residency: Residency = Unknown("the engine did not become ready")
            if isinstance(failed, MisfitError):  # known from an earlier start
                residency = failed.verdict.residency
            name = f"not-started-{number}"
            return Start(arm=arm, start_id=name, residency=residency, failure=failure)
        start_id = started.start_id
        if any(known.start_id == start_id for known in self.history.starts):
            # The same process was asked again; an attempt that does not count would never end.
            start_id = f"{start_id}-again-{number}"
        residency = started.verdict.residency
        return Start(arm=arm, start_id=start_id, residency=residency, failure=failure)

    async def _cells(self, asked: Ask, started: Started) -> None:
        gate = await self.gate()
        if not gate.passed:
            raise GateClosedError(gate.reason)
        log.info("calibration.gate", gate=gate.gate, edge_c=gate.edge_c, reason=gate.reason)
        await self._warm_up(asked.cells[0], started.client)
        for cell in asked.cells:
            await self._repetition(asked.arm, cell, started)
            self._report(
                f"{asked.arm} {cell.workload} prompt {cell.prompt + 1} run {cell.repetition + 1}"
            )
        # An arm that runs from host memory has another row cost; it is out already.
        if asked.short_steps and passes(started.verdict.residency):
            await self._short_steps(asked, started)

    async def _repetition(self, arm: Arm, cell: Cell, started: Started) -> None:
        """Measure and store one repetition; one that heat slowed is left out, and repeated once.

        Raises:
            CalibrationError: The card was slowed both times.
        """
        slowed = None
        for _attempt in range(2):
            began_s = self.clock.now()
            taken = await self._measure(arm, cell, started)
            around = self.around(began_s, self.clock.now())
            slowed = around.slowed
            observation = around.told_of(taken.observation)
            await self.sink.add(replace(taken, observation=observation, around=around))
            self.history = self.history.tell(observation)
            if slowed is None:
                return
            log.warning("calibration.throttled", arm=str(arm), reason=slowed)
        msg = f"the card was slowed twice in a row: {slowed}"
        raise CalibrationError(msg, hint="look at its cooling and its power cap: mtpctl gpu")

    async def _short_steps(self, asked: Ask, started: Started) -> None:
        """Time single steps on the texts of the cells; what was had is told as it comes."""
        self._report(f"{asked.arm} row cost")
        cells = dict.fromkeys((cell.workload, cell.prompt) for cell in asked.cells)
        clock = StepClock(
            client=started.client,
            arm=asked.arm,
            start_id=started.start_id,
            fingerprint=started.fingerprint,
            seed=self.sampling.seed,
        )
        asked_of = [self.workloads[name].prompts[number] for name, number in cells]
        texts = [await prompts.seen(prompt, started.client) for prompt in asked_of]
        async with aclosing(clock.steps(texts, asked.short_steps)) as steps:
            async for step in steps:
                self.history = self.history.stepped(step)

    def _report(self, note: str) -> None:
        self.progress.report(len(self.history.observations), note)

    async def _warm_up(self, cell: Cell, client: EngineClient) -> None:
        prompt = self.workloads[cell.workload].prompts[cell.prompt]
        body = prompts.body(prompt, seed=self.sampling.seed, max_tokens=self.sampling.warmup_tokens)
        await client.complete(prompt.path, body, timeout_s=REPLY_TIMEOUT_S)

    async def _measure(self, arm: Arm, cell: Cell, started: Started) -> Repetition:
        workload = self.workloads[cell.workload]
        prompt = workload.prompts[cell.prompt]
        max_tokens = self.sampling.max_tokens or workload.max_tokens
        body = prompts.body(prompt, seed=self.sampling.seed, max_tokens=max_tokens)
        started.heard.clear()
        before = prom.spec_counters(await started.client.metrics_text())
        reply = await started.client.complete(prompt.path, body, timeout_s=REPLY_TIMEOUT_S)
        after = prom.spec_counters(await started.client.metrics_text())
        timed = timings.from_response(reply)
        if isinstance(timed, Absent):
            msg = f"the engine's reply has no timings: {timed.reason}"
            raise UpstreamError(msg, hint="mtpd needs a llama-server that reports timings")
        counted = _counted(before, after)
        # Only builds without counters by position, and cut drafts, need the log waited for.
        listed = isinstance(counted, SpecCounters) and counted.per_position and not arm.p_min
        known = arm.depth == 0 or listed
        facts = () if known else await started.heard.of(started.start_id, within_s=LOG_S)
        read = read_acceptance(arm.depth, counters=counted, timings=timed, facts=facts)
        return Repetition(
            observation=Observation(
                arm=arm,
                workload=cell.workload,
                prompt=cell.prompt,
                repetition=cell.repetition,
                start_id=started.start_id,
                fingerprint=started.fingerprint,
                tokens=timed.predicted_n,
                decode_s=timed.predicted_ms / 1000,
                steps=read.steps,
                drafted=read.drafted,
                accepted=read.accepted,
                accepted_per_position=read.per_position,
                offered_per_position=read.offered,
                digest=prompts.digest(prompts.text(reply)),
                residency=started.verdict.residency,
            ),
            source=read.source,
            prompt_digest=prompts.digest(prompt.prompt or repr(prompt.messages)),
        )


def _counted(before: SpecCounters | Absent, after: SpecCounters | Absent) -> SpecCounters | Absent:
    """What one request added to the counters, or why that cannot be said."""
    if isinstance(before, Absent):
        return before
    return after if isinstance(after, Absent) else prom.delta(before, after)
