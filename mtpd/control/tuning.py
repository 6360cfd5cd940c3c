"""Tune, sweep and probe: long work that measures, decides, and writes down why.

Covers one operation from the hold of the device to the journalled decision. The cells
are run by ``mtpd.calibrate``; the conclusions are the tuner's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog
from anyio import to_thread

from mtpd.calibrate import LOGS_HINT, NothingMeasuredError
from mtpd.control.deciding import SWEEP, DepthInputs, PoolInputs, decide
from mtpd.control.limits import Limits
from mtpd.control.memory_rows import seen_notes
from mtpd.control.progress import StartCount
from mtpd.control.recorded import encode_inputs
from mtpd.control.rows import depth_rows
from mtpd.control.standing import cut_short, joined
from mtpd.control.tasks import depth_task, member_of, not_started, pool_task
from mtpd.errors import CalibrationError, MtpdError
from mtpd.supervise.present import residency_view
from mtpd.views import encode
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from mtpd.calibrate import Calibrator, Repetition, Sampling, Sink, Started
    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool, Profile
    from mtpd.control.choices import Choice
    from mtpd.control.deciding import Member
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.progress import OperationProgress
    from mtpd.control.standing import Standing
    from mtpd.views import DecisionView, Json, MeasurementView
    from tuner.design import WorkloadPlan
    from tuner.plan import History
    from tuner.summary import ArmSummary
    from tuner.types import Arm, Decision

__all__ = ["DeviceHold", "Recorder", "Tuning", "TuningPlan", "bring_back"]

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
        serve: Whether it is loaded at the end; else what served before comes back.
        limits: What all of it may spend.
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
    limits: Limits = field(default_factory=Limits)
    serve: bool = True

    def total(self) -> int | None:
        """Repetitions to measure, or None where the design decides as it goes."""
        if self.method != SWEEP:
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

    async def standing(self, decision_id: int) -> Standing | None:
        """What a choice that still holds rests on; None where it was not recorded."""

    async def decide(
        self,
        decision: Decision,
        *,
        measurements: Sequence[MeasurementView],
        operation_id: str,
        inputs: dict[str, Json],
    ) -> DecisionView:
        """Journal a decision, log its sentence, and tell everybody."""


class _Collecting:
    """A sink that remembers what went through it, none of it measured across a suspend."""

    def __init__(self, inner: Sink, awake: Callable[[], Awaitable[None]]) -> None:
        self._inner, self._awake = inner, awake
        self.taken: list[MeasurementView] = []

    async def add(self, repetition: Repetition) -> MeasurementView:
        await self._awake()
        view = await self._inner.add(repetition)
        self.taken.append(view)
        return view


class _Witness:
    """A hold that remembers on what evidence each start was judged."""

    def __init__(self, inner: DeviceHold) -> None:
        self._inner = inner
        self._shown: dict[str, Json] = {}

    async def start(self, arm: Arm) -> Started:
        started = await self._inner.start(arm)
        self._shown[started.start_id] = encode(residency_view(started.verdict))
        return started

    def told(self, verdicts: Mapping[str, Json]) -> None:
        """Take what was recorded of earlier starts."""
        self._shown |= verdicts

    def json(self, inputs: DepthInputs | PoolInputs) -> dict[str, Json]:
        """The residency of every start that a decision rests on, with its evidence."""
        if isinstance(inputs, DepthInputs):
            told = [inputs.told]
        else:
            told = [member.history for member in inputs.members]
        used = {start.start_id for history in told for start in history.starts}
        return {name: shown for name, shown in self._shown.items() if name in used}


@dataclass(slots=True, kw_only=True)
class _Found:
    """What an operation found up to now, over its models."""

    rows: list[ArmSummary] = field(default_factory=list)
    decisions: list[DecisionView] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    measurements: list[MeasurementView] = field(default_factory=list)
    not_started: list[str] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)


class Tuning:
    """Runs tuning plans; the operations lane runs one at a time."""

    def __init__(
        self,
        *,
        config: Configuration,
        calibrator: Calibrator,
        recorder: Recorder,
        hold: Callable[[str], AbstractAsyncContextManager[DeviceHold]],
        serving: Callable[[], Arm | None],
        chosen: Callable[[str], Choice | None],
        adopt: Callable[[DecisionView, PoolInputs | None], None],
        busy: Callable[[], str | None],
        memory: Callable[[Profile], Awaitable[MemoryForecast]],
        awake: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._calibrator = calibrator
        self._recorder = recorder
        self._hold = hold
        self._serving = serving
        self._chosen = chosen
        self._adopt = adopt
        self._busy = busy
        self._memory, self._awake = memory, awake

    async def run(
        self, plan: TuningPlan, operation_id: str, progress: OperationProgress
    ) -> dict[str, Json]:
        """Measure every profile of the plan, decide, and serve what should serve.

        What served before comes back when nothing is applied, when nothing could be
        chosen, and when the operation is cancelled.
        """
        note = self._busy()
        warnings = () if note is None else (note,)
        most_s = self._config.server.queue_timeout_s
        waits = f"draining; requests wait until the end, each at most {most_s:g} s"
        progress.report(0, plan.total(), waits)
        async with self._hold(f"{plan.method} of {plan.subject}") as hold:
            before = self._serving()
            try:
                result, chosen = await self._measure(plan, operation_id, hold, progress, warnings)
            except BaseException:
                await bring_back(hold, before, progress)
                raise
            applied = plan.apply and plan.serve and chosen is not None
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
        sink = _Collecting(self._recorder.sink(operation_id), self._awake)
        witness = _Witness(hold)
        found = _Found()
        arm: Arm | None = None
        limits, total = plan.limits, plan.total()
        for profile, depths in zip(plan.profiles, plan.depths, strict=True):
            before, why = len(sink.taken), ""
            forecast = await self._memory(profile)
            hardware = self._config.hardware
            task = depth_task(plan, profile, depths, forecast, limits, hardware=hardware)
            counted = StartCount(
                design=task.design,
                shown=progress,
                before=before,
                total=total,
                at_most=task.budget.max_restarts,
            )
            try:
                history = await self._calibrator.run(
                    counted, witness, sink, sampling=plan.sampling, progress=counted
                )
            except NothingMeasuredError as error:
                if plan.pool is None:
                    raise
                history, why = error.history, str(error)  # the other members are still compared
                found.unmeasured.append(f"{profile.name}: {error.why}")
            await self._awake()
            seen = await _summarised(history)
            inputs = replace(
                task, notes=(*task.notes, *seen_notes(forecast, seen), *warnings), history=history
            )
            inputs, earlier = await self._beside_standing(inputs, limits, witness)
            found.not_started += await to_thread.run_sync(not_started, inputs)
            limits = limits.after(history)
            found.rows += await _summarised(inputs.told)
            used = (*earlier, *sink.taken[before:])
            found.measurements += used
            view, arm = await self._record(inputs, used, operation_id, witness)
            found.decisions.append(view)
            if arm is not None:
                found.members.append(member_of(profile, arm, inputs.told, forecast))
            else:
                found.left_out.append(f"{profile.name} was not compared: {why or view.reason}")
        if len(found.unmeasured) == len(plan.profiles):
            msg = f"no member of {plan.subject} could be measured: {'; '.join(found.unmeasured)}"
            raise CalibrationError(msg, hint=LOGS_HINT)
        if plan.pool is not None:
            pool = replace(
                pool_task(plan, plan.pool, (*found.left_out, *warnings)),
                incumbent=_arm_of(self._chosen(plan.pool.name)),
                members=tuple(found.members),
            )
            view, arm = await self._record(pool, found.measurements, operation_id, witness)
            found.decisions.append(view)
        result: dict[str, Json] = {
            "subject": plan.subject,
            "method": plan.method,
            "applied": plan.apply,
            "decisions": [encode(d) for d in found.decisions],
            "depths": [encode(r) for r in depth_rows(found.rows)],
            "not_started": list(found.not_started),
            "warnings": list(warnings),
        }
        return result, arm

    async def _beside_standing(
        self, inputs: DepthInputs, limits: Limits, witness: _Witness
    ) -> tuple[DepthInputs, tuple[MeasurementView, ...]]:
        """The inputs with the choice that holds now, and its cells where a limit cut these short.

        Returns:
            Also the stored repetitions that were joined.
        """
        chosen = self._chosen(inputs.subject)
        inputs = replace(inputs, incumbent=_arm_of(chosen))
        if (by := await to_thread.run_sync(cut_short, inputs, limits)) is None:
            return inputs, ()
        number = None if chosen is None else chosen.decision_id
        standing = None if number is None else await self._recorder.standing(number)
        inputs = joined(inputs, by, standing)
        if standing is None or inputs.standing != standing.told:
            return inputs, ()
        witness.told(standing.verdicts)
        return inputs, standing.measurements

    async def _record(
        self,
        inputs: DepthInputs | PoolInputs,
        measurements: Sequence[MeasurementView],
        operation_id: str,
        witness: _Witness,
    ) -> tuple[DecisionView, Arm | None]:
        """Decide, and write down with the inputs what is needed to decide so again."""
        decision = await to_thread.run_sync(decide, inputs)
        view = await self._recorder.decide(
            decision,
            measurements=measurements,
            operation_id=operation_id,
            inputs=encode_inputs(inputs) | {"verdicts": witness.json(inputs)},
        )
        if inputs.applied and decision.arm is not None:
            self._adopt(view, inputs if isinstance(inputs, PoolInputs) else None)
        return view, decision.arm


async def _summarised(history: History) -> tuple[ArmSummary, ...]:
    return await to_thread.run_sync(summarise, history.observations, history.starts)


def _arm_of(choice: Choice | None) -> Arm | None:
    return None if choice is None else choice.arm


async def bring_back(hold: DeviceHold, before: Arm | None, progress: OperationProgress) -> None:
    """Serve again what served; a failure here must not hide why the operation ends."""
    serves = "nothing serves" if before is None else f"{before} does not serve again yet"
    with anyio.CancelScope(shield=True), anyio.move_on_after(RESTORE_S):
        try:
            await _serve(hold, before)
            serves = "nothing served before" if before is None else f"{before} serves again"
        except MtpdError as error:
            log.warning("tuning.not_brought_back", arm=str(before), reason=str(error))
    progress.ending(serves)


async def _serve(hold: DeviceHold, target: Arm | None) -> None:
    if target is None:
        await hold.stop()
    else:
        await hold.start(target)
