"""Answers the control API: what is, and the operations that change it.

Covers looking things up and starting operations. It takes no decision: the tuner does,
and an operator's order is written down as one. One object, no state of its own beside
the collaborators'.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mtpd.control.beforehand import need_energy
from mtpd.control.explain import explanation
from mtpd.control.facts import DaemonFacts
from mtpd.control.limits import Limits
from mtpd.control.models import unusable
from mtpd.control.ordered import ordered_arm
from mtpd.control.plans import (
    TuneRequest,
    find_profile,
    need_workload,
    probe_plan,
    tune_plan,
)
from mtpd.errors import MtpdError, NotFoundError
from mtpd.store.journal import DecisionFilter
from mtpd.store.samples import MeasurementFilter
from mtpd.units import Seq
from mtpd.views import StatusView, encode
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.bus import Bus, SubscriberDropped
    from mtpd.clock import Clock
    from mtpd.config.model import Config, Profile
    from mtpd.control.choices import Choices
    from mtpd.control.models import ModelReports
    from mtpd.control.recorder import StoreRecorder
    from mtpd.control.tuning import Tuning, TuningPlan
    from mtpd.engine.client import EngineClient
    from mtpd.events import Envelope
    from mtpd.explanation_views import ExplanationView
    from mtpd.gpu.views import DeviceView
    from mtpd.operations import Operations, Progress
    from mtpd.proxy.switch import Switchboard
    from mtpd.store.journal import Journal
    from mtpd.store.samples import Measurements
    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        GateView,
        Json,
        MeasurementView,
        ModelView,
        OperationView,
    )
    from tuner.types import Arm

__all__ = ["Control", "DaemonFacts"]


class Control:
    """The backend of the control API."""

    def __init__(
        self,
        *,
        facts: DaemonFacts,
        config: Config,
        origins: tuple[ConfigValueView, ...],
        clock: Clock,
        bus: Bus,
        switchboard: Switchboard[EngineClient],
        operations: Operations,
        measurements: Measurements,
        journal: Journal,
        recorder: StoreRecorder,
        choices: Choices,
        tuning: Tuning,
        reports: ModelReports,
        gates: Callable[[], Awaitable[tuple[GateView, ...]]],
        devices: Callable[[], Awaitable[tuple[DeviceView, ...]]],
        on_switched: Callable[[str, float], None],
    ) -> None:
        self._facts = facts
        self._config = config
        self._origins = origins
        self._clock = clock
        self._bus = bus
        self._switchboard = switchboard
        self._operations = operations
        self._measurements = measurements
        self._journal = journal
        self._recorder = recorder
        self._choices = choices
        self._tuning = tuning
        self._reports = reports
        self._gates = gates
        self._devices = devices
        self._on_switched = on_switched

    # What is ------------------------------------------------------------------------

    async def status(self) -> StatusView:
        """The daemon on one screen."""
        latest = await self._journal.list(DecisionFilter(limit=1))
        facts, engines = self._facts, self._switchboard.engines()
        return StatusView(
            version=facts.version,
            pid=facts.pid,
            started_at=facts.started_at,
            uptime_s=round(self._clock.now() - facts.started, 3),
            listen=facts.listen,
            control_socket=facts.control_socket,
            mode=self._config.tuning.mode.value,
            engine_binary=facts.engine_binary,
            hardware=self._config.budget.hardware,
            engines=engines,
            memory=tuple([await self._reports.memory(e.arm) for e in engines if e.arm]),
            queue=self._switchboard.queue(),
            gates=await self._gates(),
            choices=self._choices.views(),
            unusable=unusable(self._config),
            last_decision=latest[0] if latest else None,
            operation=self._operations.current,
        )

    async def gpu(self) -> tuple[DeviceView, ...]:
        """Every device with a fresh reading, and who answers for each field."""
        return await self._devices()

    async def models(self) -> tuple[ModelView, ...]:
        """Every profile, in the order of the configuration."""
        return tuple([await self._reports.of(p) for p in self._config.profiles.values()])

    async def model(self, name: str) -> ModelView | None:
        """One profile by name or alias."""
        profile = self._config.profile_for(name)
        return None if profile is None else await self._reports.of(profile)

    def config(self) -> tuple[ConfigValueView, ...]:
        """Every configuration value and where it comes from."""
        return self._origins

    async def measurements(
        self,
        *,
        model: str | None,
        depth: int | None,
        workload: str | None,
        operation_id: str | None,
        ids: tuple[int, ...] | None,
        limit: int,
    ) -> tuple[MeasurementView, ...]:
        """Newest first; None does not restrict."""
        profile = None if model is None else find_profile(self._config, model).name
        found = await self._measurements.list(
            MeasurementFilter(
                profile=profile,
                depth=depth,
                workload=workload,
                operation_id=operation_id,
                ids=ids,
                limit=limit,
            )
        )
        if not found and workload is not None:
            # What was measured with a workload that is gone by now is still found.
            need_workload(self._config, workload)
        return found[::-1]

    async def decisions(self, *, subject: str | None, limit: int) -> tuple[DecisionView, ...]:
        """Newest first; an alias stands for its model."""
        found = await self._journal.list(DecisionFilter(subject=self._named(subject), limit=limit))
        return found[::-1]

    async def decision(self, decision_id: int, /) -> DecisionView | None:
        """One decision."""
        return await self._journal.get(decision_id)

    async def explain(self, decision_id: int | None, subject: str | None, /) -> ExplanationView:
        """A decision by number, else the latest of a subject, else the latest of all.

        Raises:
            NotFoundError: No decision fits.
        """
        if decision_id is not None:
            decision = await self._journal.get(decision_id)
        else:
            where = DecisionFilter(subject=self._named(subject), limit=1)
            latest = await self._journal.list(where)
            decision = latest[0] if latest else None
        if decision is None:
            what, hint = f"decision {decision_id}", "mtpctl decisions lists them"
            if decision_id is None:
                what = "decision yet" if subject is None else f"decision about {subject!r} yet"
                hint = f"mtpctl tune {subject or 'MODEL'} measures and takes one"
            msg = f"there is no {what}"
            raise NotFoundError(msg, hint=hint)
        cells = MeasurementFilter(ids=decision.measurement_ids)
        recorded = await self._journal.inputs(decision.id)
        return explanation(
            decision,
            await self._measurements.list(cells),
            await self._measurements.observations(cells),
            None if recorded is None else recorded[1],
        )

    def position(self) -> tuple[str, int]:
        """The last event that was published; sequence 0 before the first."""
        return self._bus.boot, self._bus.seq

    @asynccontextmanager
    async def subscribe(
        self, after: tuple[str, int] | None
    ) -> AsyncIterator[AsyncIterator[Envelope | SubscriberDropped]]:
        """Events after a position of this boot; another boot's position replays all kept."""
        seq = None
        if after is not None:
            seq = Seq(after[1] if after[0] == self._bus.boot else 0)
        async with self._bus.subscribe(seq) as events:
            yield events

    # What is ordered ----------------------------------------------------------------

    async def operations(self, limit: int) -> tuple[OperationView, ...]:
        """Newest first."""
        return (await self._operations.list(limit=limit))[::-1]

    async def operation(self, operation_id: str, /) -> OperationView | None:
        """One operation."""
        return await self._operations.get(operation_id)

    async def cancel(self, operation_id: str, /) -> OperationView | None:
        """Ask an operation to end; one that has ended is returned as it is."""
        return await self._operations.cancel(operation_id)

    async def switch(
        self,
        *,
        model: str,
        depth: int | None,
        force: bool,
        idempotency_key: str | None,
        measured: bool = False,
    ) -> OperationView:
        """Begin to serve a model; None means the depth at which it is served now.

        ``measured`` goes back to the measured choice from the depth that an operator set.
        """
        profile = self._profile_or_pool(model)
        arm = ordered_arm(self._choices, profile, depth, measured=measured)
        params: dict[str, Json] = {"model": profile.name, "depth": arm.depth, "force": force}
        if measured:
            params["measured"] = True
        pin = None if measured else depth is not None

        async def run(progress: Progress) -> dict[str, Json]:
            return await self._switch(arm, pin=pin, force=force, progress=progress)

        return await self._operations.start("switch", params, run, idempotency_key=idempotency_key)

    async def load(self, *, model: str, idempotency_key: str | None) -> OperationView:
        """Begin to start a model's engine at its chosen depth."""
        profile = self._profile_or_pool(model)

        async def run(progress: Progress) -> dict[str, Json]:
            arm = self._choices.arm_for(profile.name)
            return await self._switch(arm, pin=False, force=False, progress=progress)

        return await self._operations.start(
            "load", {"model": profile.name}, run, idempotency_key=idempotency_key
        )

    async def unload(self, *, model: str | None, idempotency_key: str | None) -> OperationView:
        """Begin to stop a model's engine; None means every engine."""
        name = None if model is None else self._profile_or_pool(model).name

        async def run(progress: Progress) -> dict[str, Json]:
            progress.report(0, None, f"draining and stopping {name or 'every engine'}")
            await self._switchboard.stop_engine(name, "an operator asked for it")
            return {"engines": encode(self._switchboard.engines())}

        return await self._operations.start(
            "unload", {"model": name}, run, idempotency_key=idempotency_key
        )

    async def tune(
        self,
        *,
        subject: str,
        method: str,
        depths: tuple[int, ...] | None,
        workloads: tuple[str, ...] | None,
        prompts: int | None,
        repetitions: int | None,
        max_tokens: int | None,
        apply: bool,
        idempotency_key: str | None,
        max_starts: int | None = None,
        max_cells: int | None = None,
        max_minutes: float | None = None,
        max_joules: float | None = None,
    ) -> OperationView:
        """Begin to measure a pool or model; None means the default."""
        plan = tune_plan(
            self._config,
            TuneRequest(
                subject=subject,
                method=method,
                depths=depths,
                workloads=workloads,
                prompts=prompts,
                repetitions=repetitions,
                max_tokens=max_tokens,
                apply=apply,
                limits=Limits(
                    max_starts=max_starts,
                    max_cells=max_cells,
                    max_seconds=None if max_minutes is None else 60 * max_minutes,
                    max_joules=max_joules,
                ),
            ),
        )
        if plan.limits.max_joules is not None:
            need_energy(plan.limits, await self._devices())
        kind = "sweep" if method == "sweep" and not apply else "tune"
        return await self._measure(kind, plan, idempotency_key)

    async def probe(self, *, model: str, depth: int, idempotency_key: str | None) -> OperationView:
        """Begin to measure the acceptance of each draft position up to ``depth``."""
        return await self._measure("probe", probe_plan(self._config, model, depth), idempotency_key)

    # Inside -------------------------------------------------------------------------

    async def _measure(
        self, kind: str, plan: TuningPlan, idempotency_key: str | None
    ) -> OperationView:
        params: dict[str, Json] = {
            "subject": plan.subject,
            "method": plan.method,
            "models": [p.name for p in plan.profiles],
            "depths": [list(d) for d in plan.depths],
            "workloads": {w.name: w.prompts for w in plan.workloads},
            "repetitions": plan.repetitions,
            "max_tokens": plan.sampling.max_tokens,
            "limits": encode(plan.limits),
            "apply": plan.apply,
        }

        async def run(progress: Progress) -> dict[str, Json]:
            return await self._tuning.run(plan, progress.operation_id, progress)

        return await self._operations.start(kind, params, run, idempotency_key=idempotency_key)

    async def _switch(
        self, arm: Arm, *, pin: bool | None, force: bool, progress: Progress
    ) -> dict[str, Json]:
        """Serve an arm; a pin of True sets the depth, None drops what was set."""
        reason = f"an operator asked for {arm.profile} at depth {arm.depth}"
        chosen = self._choices.measured(arm.profile)
        said = "" if chosen is None else f"; measured choice: depth {chosen.depth}"
        progress.report(0, None, f"switching to {arm}")
        decision = await self._recorder.decide(
            Decision(act=Act.SWITCH, subject=arm.profile, arm=arm, reason=reason + said),
            operation_id=progress.operation_id,
            inputs={"force": force, "pin": bool(pin)},
        )
        began = self._clock.now()
        try:
            view = await self._switchboard.switch(arm, reason=reason, force=force)
        except MtpdError as error:
            self._on_switched("failed", self._clock.now() - began)
            await self._journal.outcome(decision.id, f"failed: {error}")
            raise
        self._on_switched("done", self._clock.now() - began)
        if pin:
            self._choices.pin(arm, reason=reason, decision_id=decision.id)
        elif pin is None:
            self._choices.unpin(arm.profile)
        await self._journal.outcome(decision.id, f"{view.state}, {view.residency.state}")
        held = self._choices.of_profile(self._config.profiles[arm.profile])
        choice = self._choices.view(arm.profile, held)
        return {"decision": decision.id, "engine": encode(view), "choice": encode(choice)}

    def _named(self, subject: str | None) -> str | None:
        """The name under which decisions about a subject are journalled."""
        if subject is None or subject in self._config.pools:
            return subject
        profile = self._config.profile_for(subject)
        return subject if profile is None else profile.name

    def _profile_or_pool(self, name: str) -> Profile:
        pool = self._config.pools.get(name)
        if pool is not None:
            return self._config.profiles[self._choices.of_pool(pool).arm.profile]
        return find_profile(self._config, name)
