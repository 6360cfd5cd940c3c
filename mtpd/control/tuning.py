"""Tune, sweep and probe: long work that measures, decides, and writes down why.

Covers one operation from the hold of the device to the journalled decision. The cells
are run by ``mtpd.calibrate``; the conclusions are the tuner's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.calibrate import NothingMeasuredError
from mtpd.control.deciding import MODEL_BASED, SWEEP, DepthInputs, Member, PoolInputs, decide
from mtpd.control.limits import Limits
from mtpd.control.memory_rows import notes as memory_notes
from mtpd.control.memory_rows import seen_notes
from mtpd.control.progress import StartCount
from mtpd.control.recorded import encode_inputs
from mtpd.control.rows import depth_rows
from mtpd.errors import MtpdError
from mtpd.supervise.present import residency_view
from mtpd.types import NotApplicable
from mtpd.views import encode
from tuner.compare import PerplexityRun, Quality
from tuner.cost import RowCost
from tuner.design import SHORT_STEPS
from tuner.plan import ATTEMPTS
from tuner.pools import Objective
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from mtpd.calibrate import Calibrator, Repetition, Sampling, Sink, Started
    from mtpd.config.model import Config, HardwareProfile, Pool, Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.progress import OperationProgress
    from mtpd.types import Verdict
    from mtpd.views import DecisionView, Json, MeasurementView
    from tuner.design import History, WorkloadPlan
    from tuner.summary import ArmSummary
    from tuner.types import Arm, Decision

__all__ = ["DeviceHold", "Recorder", "Tuning", "TuningPlan"]

log = structlog.get_logger()

SEARCH_STARTS = 6
"""Engine starts of one model that a search may use; it needs two on average."""

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
    """A sink that remembers what went through it."""

    def __init__(self, inner: Sink) -> None:
        self._inner = inner
        self.taken: list[MeasurementView] = []

    async def add(self, repetition: Repetition) -> MeasurementView:
        view = await self._inner.add(repetition)
        self.taken.append(view)
        return view


class _Witness:
    """A hold that remembers on what evidence each start was judged."""

    def __init__(self, inner: DeviceHold) -> None:
        self._inner = inner
        self._verdicts: dict[str, Verdict] = {}

    async def start(self, arm: Arm) -> Started:
        started = await self._inner.start(arm)
        self._verdicts[started.start_id] = started.verdict
        return started

    def json(self, inputs: DepthInputs | PoolInputs) -> dict[str, Json]:
        """The residency of every start that a decision rests on, with its evidence."""
        if isinstance(inputs, DepthInputs):
            told = [inputs.history]
        else:
            told = [member.history for member in inputs.members]
        used = {start.start_id for history in told for start in history.starts}
        return {
            name: encode(residency_view(verdict))
            for name, verdict in self._verdicts.items()
            if name in used
        }


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
        memory: Callable[[Profile], Awaitable[MemoryForecast]],
    ) -> None:
        self._config = config
        self._calibrator = calibrator
        self._recorder = recorder
        self._hold = hold
        self._serving = serving
        self._incumbent = incumbent
        self._adopt = adopt
        self._busy = busy
        self._memory = memory

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
        witness = _Witness(hold)
        rows: list[ArmSummary] = []
        decisions: list[DecisionView] = []
        members: list[Member] = []
        left_out: list[str] = []
        arm: Arm | None = None
        limits, total = plan.limits, plan.total()
        for profile, depths in zip(plan.profiles, plan.depths, strict=True):
            before, why = len(sink.taken), ""
            forecast = await self._memory(profile)
            hardware = self._config.hardware
            task = _task(plan, profile, depths, forecast, limits, hardware=hardware)
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
            limits = limits.after(history)
            found = summarise(history.observations, history.starts)
            rows += found
            inputs = replace(
                task,
                notes=(*task.notes, *seen_notes(forecast, found), *warnings),
                history=history,
                incumbent=self._incumbent(profile.name),
            )
            view, arm = await self._record(inputs, sink.taken[before:], operation_id, witness)
            decisions.append(view)
            if arm is not None:
                members.append(_member(profile, arm, history, forecast))
            else:
                left_out.append(f"{profile.name} was not compared: {why or view.reason}")
        if plan.pool is not None:
            pool = replace(
                _pool_task(plan, plan.pool, (*left_out, *warnings)),
                incumbent=self._incumbent(plan.pool.name),
                members=tuple(members),
            )
            view, arm = await self._record(pool, sink.taken, operation_id, witness)
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
        witness: _Witness,
    ) -> tuple[DecisionView, Arm | None]:
        """Decide, and write down with the inputs what is needed to decide so again."""
        decision = decide(inputs)
        view = await self._recorder.decide(
            decision,
            measurements=measurements,
            operation_id=operation_id,
            inputs=encode_inputs(inputs) | {"verdicts": witness.json(inputs)},
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
    plan: TuningPlan,
    profile: Profile,
    depths: Sequence[int],
    forecast: MemoryForecast,
    limits: Limits,
    *,
    hardware: HardwareProfile | None,
) -> DepthInputs:
    """What is asked of one profile, before anything was told.

    Depths that are certain not to fit are not asked for; where the prediction is certain of
    all the others, too, the design says so itself, and needs no witness for them.
    """
    wanted = tuple(profile.arm(depth) for depth in depths)
    deepest, out = forecast.deepest, {one.arm for one in forecast.out}
    accept_offload = profile.offload.value == "accept"
    if accept_offload:
        deepest, out = None, set()  # a depth that evicts may be wanted all the same
    arms = wanted if deepest is not None else tuple(arm for arm in wanted if arm not in out)
    starts = SEARCH_STARTS if plan.method == MODEL_BASED else ATTEMPTS * len(arms)
    return DepthInputs(
        subject=profile.name,
        method=plan.method,
        applied=plan.apply,
        notes=memory_notes(forecast, [arm for arm in wanted if arm in out]),
        memory_bytes={arm: size for arm, size in forecast.memory_bytes.items() if arm in wanted},
        deepest=deepest,
        row_cost=_row_cost(hardware, forecast),
        arms=arms or wanted,
        workloads=plan.workloads,
        repetitions=plan.repetitions,
        short_steps=0 if plan.method == SWEEP else SHORT_STEPS,
        budget=limits.budget(max_starts=starts),
        accept_offload=accept_offload,
    )


def _row_cost(hardware: HardwareProfile | None, forecast: MemoryForecast) -> RowCost | None:
    """What the card's profile says of a row; an engine on the host does not run on that card."""
    if hardware is None or hardware.row_cost is None:
        return None
    if isinstance(forecast.budget, NotApplicable):
        return None
    return RowCost(
        c=hardware.row_cost,
        sd=hardware.row_cost_sd,
        source=f"the hardware profile {hardware.name}",
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
        least_context_tokens=pool.min_context or 0,
        quality_bound=pool.quality_bound,
    )


def _member(profile: Profile, arm: Arm, history: History, forecast: MemoryForecast) -> Member:
    """A candidate of a pool; its short steps play no role between models."""
    return Member(
        arm=arm,
        history=replace(history, short_steps=()),
        quality=_quality(profile),
        tags=frozenset(profile.tags),
        context_tokens=profile.context // profile.slots,
        memory_bytes=forecast.memory_bytes.get(arm),
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
