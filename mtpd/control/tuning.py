"""Tune, sweep and probe: long work that measures, decides, and writes down why.

Covers one operation from the hold of the device to the journalled decision. The cells
are run by ``mtpd.calibrate``; the conclusions are the tuner's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.calibrate import NothingMeasuredError
from mtpd.control.deciding import MODEL_BASED, DepthInputs, Member, PoolInputs, decide
from mtpd.control.recorded import encode_inputs
from mtpd.control.rows import depth_rows
from mtpd.errors import MtpdError
from mtpd.views import encode
from tuner.compare import PerplexityRun, Quality
from tuner.design import SHORT_STEPS
from tuner.pools import Objective
from tuner.summary import summarise
from tuner.types import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from mtpd.calibrate import Calibrator, Repetition, Sampling, Sink, Started
    from mtpd.config.model import Config, Pool, Profile
    from mtpd.views import DecisionView, Json, MeasurementView
    from tuner.design import History, WorkloadPlan
    from tuner.summary import ArmSummary
    from tuner.types import Arm, Decision

__all__ = ["DeviceHold", "Recorder", "Tuning", "TuningPlan"]

log = structlog.get_logger()

RESTORE_S = 300.0
"""How long bringing back what should serve may take when an operation is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """What an operator asked for, checked.

    Attributes:
        subject: Pool or profile.
        profiles: What is measured.
        pool: The pool, if the subject is one.
        depths: Per profile, shallow to deep.
        method: "sweep", "model-based" or "probe".
        apply: Whether the choice is served from now on.
    """

    subject: str
    profiles: tuple[Profile, ...]
    pool: Pool | None
    depths: tuple[tuple[int, ...], ...]
    method: str
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int
    sampling: Sampling
    apply: bool

    def total(self) -> int | None:
        """Repetitions to measure, or None where the design decides as it goes."""
        if self.method == MODEL_BASED:
            return None
        cells = sum(w.prompts for w in self.workloads) * self.repetitions
        return cells * sum(len(depths) for depths in self.depths)


class DeviceHold(Protocol):
    """The device, held for a calibration."""

    async def start(self, arm: Arm) -> Started:
        """Start the arm and wait until it is ready."""

    async def stop(self) -> None:
        """Stop what runs."""


class Recorder(Protocol):
    """Where measurements and decisions become durable and known."""

    def sink(self, operation_id: str) -> Sink:
        """Where an operation's repetitions go."""

    async def decide(
        self,
        decision: Decision,
        *,
        measurements: Sequence[MeasurementView],
        operation_id: str,
        inputs: dict[str, Json],
    ) -> DecisionView:
        """Journal a decision, log its sentence, and tell everybody."""


class OperationProgress(Protocol):
    """How far the whole operation is; ``mtpd.operations.Progress`` is the real one."""

    def report(self, done: int, total: int | None, note: str) -> None:
        """Say that ``done`` of ``total`` repetitions are measured."""


class _Collecting:
    """A sink that remembers what went through it."""

    def __init__(self, inner: Sink) -> None:
        self._inner = inner
        self.taken: list[MeasurementView] = []

    async def add(self, repetition: Repetition) -> MeasurementView:
        view = await self._inner.add(repetition)
        self.taken.append(view)
        return view


class _Shifted:
    """Progress of one profile within an operation over several."""

    def __init__(self, inner: OperationProgress, before: int, total: int | None) -> None:
        self._inner, self._before, self._total = inner, before, total

    def report(self, done: int, note: str) -> None:
        self._inner.report(self._before + done, self._total, note)


class Tuning:
    """Runs tuning plans; the operations lane runs one at a time."""

    def __init__(
        self,
        *,
        config: Config,
        calibrator: Calibrator,
        recorder: Recorder,
        hold: Callable[[str], AbstractAsyncContextManager[DeviceHold]],
        serving: Callable[[], Arm | None],
        incumbent: Callable[[str], Arm | None],
        adopt: Callable[[DecisionView], None],
        busy: Callable[[], str | None],
    ) -> None:
        self._config = config
        self._calibrator = calibrator
        self._recorder = recorder
        self._hold = hold
        self._serving = serving
        self._incumbent = incumbent
        self._adopt = adopt
        self._busy = busy

    async def run(
        self, plan: TuningPlan, operation_id: str, progress: OperationProgress
    ) -> dict[str, Json]:
        """Measure every profile of the plan, decide, and serve what should serve.

        What served before comes back when nothing is applied, when nothing could be
        chosen, and when the operation is cancelled.
        """
        note = self._busy()
        warnings = () if note is None else (note,)
        async with self._hold(f"{plan.method} of {plan.subject}") as hold:
            before = self._serving()
            try:
                result, chosen = await self._measure(plan, operation_id, hold, progress, warnings)
            except BaseException:
                await _bring_back(hold, before)
                raise
            applied = plan.apply and chosen is not None
            # From here on a cancelled operation has decided: what was chosen is served.
            with anyio.CancelScope(shield=True), anyio.move_on_after(RESTORE_S):
                await _serve(hold, chosen if applied else before)
        return result

    async def _measure(
        self,
        plan: TuningPlan,
        operation_id: str,
        hold: DeviceHold,
        progress: OperationProgress,
        warnings: tuple[str, ...],
    ) -> tuple[dict[str, Json], Arm | None]:
        sink = _Collecting(self._recorder.sink(operation_id))
        rows: list[ArmSummary] = []
        decisions: list[DecisionView] = []
        members: list[Member] = []
        arm: Arm | None = None
        for profile, depths in zip(plan.profiles, plan.depths, strict=True):
            before = len(sink.taken)
            task = _task(plan, profile, depths, warnings)
            try:
                history = await self._calibrator.run(
                    task.design,
                    hold,
                    sink,
                    sampling=plan.sampling,
                    progress=_Shifted(progress, before, plan.total()),
                )
            except NothingMeasuredError as error:
                if plan.pool is None:
                    raise
                history = error.history  # the pool's other members are still compared
            rows += summarise(history.observations, history.starts)
            inputs = replace(task, history=history, incumbent=self._incumbent(profile.name))
            view, arm = await self._record(inputs, sink.taken[before:], operation_id)
            decisions.append(view)
            if arm is not None:
                members.append(_member(profile, arm, history))
        if plan.pool is not None:
            pool = replace(
                _pool_task(plan, plan.pool, warnings),
                incumbent=self._incumbent(plan.pool.name),
                members=tuple(members),
            )
            view, arm = await self._record(pool, sink.taken, operation_id)
            decisions.append(view)
        result: dict[str, Json] = {
            "subject": plan.subject,
            "method": plan.method,
            "applied": plan.apply,
            "decisions": [encode(d) for d in decisions],
            "depths": [encode(r) for r in depth_rows(rows)],
            "warnings": list(warnings),
        }
        return result, arm

    async def _record(
        self,
        inputs: DepthInputs | PoolInputs,
        measurements: Sequence[MeasurementView],
        operation_id: str,
    ) -> tuple[DecisionView, Arm | None]:
        """Decide, and write down with the inputs what is needed to decide so again."""
        decision = decide(inputs)
        view = await self._recorder.decide(
            decision,
            measurements=measurements,
            operation_id=operation_id,
            inputs=encode_inputs(inputs),
        )
        if inputs.applied and decision.arm is not None:
            self._adopt(view)
        return view, decision.arm


async def _bring_back(hold: DeviceHold, before: Arm | None) -> None:
    """Serve again what served; a failure here must not hide why the operation ends."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(RESTORE_S):
        try:
            await _serve(hold, before)
        except MtpdError as error:
            log.warning("tuning.not_brought_back", arm=str(before), reason=str(error))


async def _serve(hold: DeviceHold, target: Arm | None) -> None:
    if target is None:
        await hold.stop()
    else:
        await hold.start(target)


def _task(
    plan: TuningPlan, profile: Profile, depths: Sequence[int], notes: tuple[str, ...]
) -> DepthInputs:
    """What is asked of one profile, before anything was told."""
    arms = tuple(profile.arm(depth) for depth in depths)
    return DepthInputs(
        subject=profile.name,
        method=plan.method,
        applied=plan.apply,
        notes=notes,
        arms=arms,
        workloads=plan.workloads,
        repetitions=plan.repetitions,
        short_steps=SHORT_STEPS if plan.method == MODEL_BASED else 0,
        budget=Budget(max_restarts=2 * len(arms)),
    )


def _pool_task(plan: TuningPlan, pool: Pool, notes: tuple[str, ...]) -> PoolInputs:
    return PoolInputs(
        subject=pool.name,
        method=plan.method,
        applied=plan.apply,
        notes=notes,
        objective=Objective(pool.objective.value),
        require=frozenset(pool.require_tags),
        accept_offload=pool.offload.value == "accept",
    )


def _member(profile: Profile, arm: Arm, history: History) -> Member:
    """A candidate of a pool; its short steps play no role between models."""
    return Member(
        arm=arm,
        history=replace(history, short_steps=()),
        quality=_quality(profile),
        tags=frozenset(profile.tags),
    )


def _quality(profile: Profile) -> Quality | None:
    measured = profile.quality
    if measured is None:
        return None
    return Quality(
        value=measured.perplexity,
        stderr=measured.stderr,
        run=PerplexityRun(corpus=measured.corpus, chunks=measured.chunks),
    )
