"""What the control API asks and does not change: status, models, the journal, events.

``mtpd.control.backend`` adds what is ordered.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.clock import rfc3339
from mtpd.config.checks import did_you_mean
from mtpd.config.model import Purpose
from mtpd.config.origins import describe_origins
from mtpd.control import reporting
from mtpd.control.chain import ModelStory, model_chain
from mtpd.control.compared import quality_of_row
from mtpd.control.explain import explanation
from mtpd.control.models import unusable
from mtpd.control.plans import find_profile, need_workload
from mtpd.control.reporting import ModelRecord, Wanted
from mtpd.control.spent import Spent
from mtpd.control.tasks import quality_of
from mtpd.errors import NotFoundError, UnknownNameError
from mtpd.report_views import ReportView
from mtpd.store.journal import DecisionFilter
from mtpd.store.samples import MeasurementFilter
from mtpd.units import Seq
from mtpd.views import StatusView
from tuner.candidates import Objective
from tuner.plan import History
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from collections.abc import Set as AbstractSet

    from mtpd.bus import SubscriberDropped
    from mtpd.config.model import Pool, Profile
    from mtpd.control.parts import Parts
    from mtpd.events import Envelope
    from mtpd.explanation_views import ExplanationView
    from mtpd.gpu.views import DeviceView
    from mtpd.history_views import HistoryView
    from mtpd.live_views import LiveView
    from mtpd.logfeed import LogFeed
    from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView, RecipeView
    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        MeasurementView,
        ModelView,
        OperationView,
        QuarantineView,
    )
    from tuner.types import Arm

__all__ = ["Queries"]


class Queries:
    """Answers of the control API that change nothing."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._spent = Spent(parts.journal)

    async def status(self) -> StatusView:
        """The daemon on one screen."""
        latest = await self._p.journal.list(DecisionFilter(limit=1))
        shown = await self.standing(latest[0] if latest else None)
        return replace(shown, spent=await self._spent.on(shown.choices))

    async def standing(self, last_decision: DecisionView | None = None) -> StatusView:
        """The same with a decision that is known; asks nothing of the store."""
        facts, engines = self._p.facts, self._p.switchboard.engines()
        memory = [await self._p.reports.memory(e, e.arm) for e in engines if e.arm]
        return StatusView(
            version=facts.version,
            pid=facts.pid,
            started_at=facts.started_at,
            uptime_s=round(self._p.clock.now() - facts.started, 3),
            listen=facts.listen,
            control_socket=facts.control_socket,
            state_dir=facts.state_dir,
            mode=self._p.config.tuning.mode.value,
            engine_binary=facts.engine_binary,
            hardware=self._p.config.budget.hardware,
            engines=engines,
            memory=tuple(one for one in memory if one is not None),
            queue=self._p.switchboard.queue(),
            gates=await self._p.gates(),
            choices=self._p.choices.views(),
            unusable=unusable(self._p.config),
            degraded=self._p.degraded(),
            last_decision=last_decision,
            operation=self._p.operations.current,
            live=self._p.live().profiles,
            config=self._p.reload.view(),
            quarantine=self._p.quarantine.views(),
            queue_rows=self._p.requests.rows(),
            requests=self._p.requests.views(),
        )

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be beside the engines, each with why."""
        return self._p.degraded()

    def quarantine(self) -> tuple[QuarantineView, ...]:
        """Requests that are refused because engines died of them."""
        return self._p.quarantine.views()

    def live(self) -> LiveView:
        """Live traffic by class, and what the daemon would do by itself."""
        return self._p.live()

    def history(
        self, metrics: AbstractSet[str] | None, /, *, since_s: float, step_s: float
    ) -> HistoryView:
        """What was seen since some seconds ago, in steps; None for every metric."""
        return self._p.history.view(metrics, since_s=since_s, step_s=step_s)

    async def gpu(self) -> tuple[DeviceView, ...]:
        """Every device with a fresh reading, and who answers for each field."""
        return await self._p.devices()

    async def models(self) -> tuple[ModelView, ...]:
        """Every profile, in the order of the configuration."""
        return tuple([await self._p.reports.of(p) for p in self._p.config.profiles.values()])

    async def model(self, name: str) -> ModelView | None:
        """One profile by name or alias; of a model with several drafters the one that is served."""
        profile = self._p.config.profile_for(name)
        if profile is not None:
            return await self._p.reports.of(profile)
        pool = self._p.config.pools.get(name)
        if pool is None or not pool.is_model:
            return None
        served = self._p.choices.of_pool(pool).arm.profile
        shown = await self._p.reports.of(self._p.config.profiles[served])
        return replace(shown, variants=pool.members)

    def config(self) -> tuple[ConfigValueView, ...]:
        """Every configuration value and where it comes from."""
        return describe_origins(self._p.config.now)

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
        profile = None if model is None else find_profile(self._p.config, model).name
        found = await self._p.measurements.list(
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
            need_workload(self._p.config, workload)
        return found[::-1]

    async def perplexities(self, *, model: str | None, limit: int) -> tuple[PerplexityView, ...]:
        """Newest first: of a model's file as it lies there now; None for every row."""
        return await self._p.quality.perplexities(model, limit)

    async def baselines(self, *, model: str | None, limit: int) -> tuple[BaselineView, ...]:
        """Likewise of llama-bench."""
        return await self._p.quality.baselines(model, limit)

    async def comparison(self, base: str, variant: str, /) -> PplComparisonView:
        """The newest comparable pair of stored perplexities.

        Raises:
            InvalidError: One was not measured, or they must not be compared.
        """
        return await self._p.quality.comparison(base, variant)

    async def recipe_b2(self, model: str, /) -> RecipeView:
        """What requantizing the output tensor would make of a model's file.

        Raises:
            InvalidError: The recipe does nothing for it.
        """
        return await self._p.recipes.b2(model)

    async def decisions(self, *, subject: str | None, limit: int) -> tuple[DecisionView, ...]:
        """Newest first; an alias stands for its model.

        Raises:
            UnknownNameError: Nothing has this name, and no decision is about it.
        """
        found = await self._p.journal.list(
            DecisionFilter(subject=self._named(subject), limit=limit)
        )
        if subject is not None and not found:
            self._must_know(subject)
        return found[::-1]

    async def decision(self, decision_id: int, /) -> DecisionView | None:
        """One decision."""
        return await self._p.journal.get(decision_id)

    async def explain(self, decision_id: int | None, subject: str | None, /) -> ExplanationView:
        """A decision by number, else the latest of a subject, else the latest of all.

        Raises:
            NotFoundError: No decision fits, or nothing has this name.
        """
        if decision_id is not None:
            decision = await self._p.journal.get(decision_id)
        else:
            where = DecisionFilter(subject=self._named(subject), limit=1)
            latest = await self._p.journal.list(where)
            decision = latest[0] if latest else None
        if decision is None:
            what, hint = f"decision {decision_id}", "mtpctl decisions lists them"
            if decision_id is None:
                if subject is not None:
                    self._must_know(subject)
                what = "decision yet" if subject is None else f"decision about {subject!r} yet"
                hint = f"mtpctl tune {subject or 'MODEL'} measures and takes one"
            msg = f"there is no {what}"
            raise NotFoundError(msg, hint=hint)
        cells = MeasurementFilter(ids=decision.measurement_ids)
        recorded = await self._p.journal.inputs(decision.id)
        return await to_thread.run_sync(
            explanation,
            decision,
            await self._p.measurements.list(cells),
            await self._p.measurements.observations(cells),
            None if recorded is None else recorded[1],
        )

    async def report(self, subject: str | None, /) -> ReportView:
        """Everything that was measured of a pool, a model, or all models.

        Raises:
            UnknownNameError: Nothing has this name.
        """
        if subject is not None:
            self._must_know(subject)
        profiles, left_out = self._told_by_tokens(subject)
        records = [await self._record(profile) for profile in profiles]
        pool = None if subject is None else self._p.config.pools.get(subject)
        names, choices = {one.name for one in records} | {subject}, self._p.choices.views()
        wanted = () if pool is None else [_of(pool)]

        def compared() -> ReportView:
            return ReportView(
                subject=subject,
                at=rfc3339(self._p.clock.utc()),
                version=self._p.facts.version,
                hardware=self._p.config.budget.hardware,
                engine=self._p.facts.engine_binary,
                matrix=reporting.matrix(records),
                pairs=reporting.pairs(records),
                models=tuple(map(reporting.model_report, records)),
                recommendations=reporting.recommendations(records, wanted)
                if len(records) > 1
                else (),
                choices=tuple(one for one in choices if one.subject in names),
                left_out=left_out,
            )

        return await to_thread.run_sync(compared)

    def feed(self) -> LogFeed:
        """The latest log lines, and those that come."""
        return self._p.feed

    def position(self) -> tuple[str, int]:
        """The last event that was published; sequence 0 before the first."""
        return self._p.bus.boot, self._p.bus.seq

    @asynccontextmanager
    async def subscribe(
        self, after: tuple[str, int] | None
    ) -> AsyncIterator[AsyncIterator[Envelope | SubscriberDropped]]:
        """Events after a position of this boot; another boot's position replays all kept."""
        seq = None
        if after is not None:
            seq = Seq(after[1] if after[0] == self._p.bus.boot else 0)
        async with self._p.bus.subscribe(seq) as events:
            yield events

    def stalled(self) -> None:
        """Count a reader of a stream that took nothing and was disconnected."""
        self._p.bus.stalled()

    async def operations(self, limit: int) -> tuple[OperationView, ...]:
        """Newest first."""
        return (await self._p.operations.list(limit=limit))[::-1]

    async def operation(self, operation_id: str, /) -> OperationView | None:
        """One operation."""
        return await self._p.operations.get(operation_id)

    # Inside -------------------------------------------------------------------------

    def _told_by_tokens(self, subject: str | None) -> tuple[list[Profile], tuple[str, ...]]:
        """The models that a report is about, and those that make no tokens, each with why."""
        config = self._p.config
        pool = None if subject is None else config.pools.get(subject)
        if pool is not None:
            wanted = [config.profiles[name] for name in pool.members]
        elif subject is not None:
            wanted = [find_profile(config, subject)]
        else:
            wanted = list(config.profiles.values())
        why = {
            one.name: f"{one.name}: {'another program' if one.opaque else one.purpose.value}"
            for one in wanted
            if one.opaque is not None or one.purpose is not Purpose.TEXT
        }
        return [one for one in wanted if one.name not in why], tuple(why.values())

    async def _record(self, profile: Profile) -> ModelRecord:
        """All that is known of a model."""
        view = await self._p.reports.of(profile)
        shown, told = await self._p.reports.measured(profile)
        served = self._p.choices.of_profile(profile).arm
        chosen = self._p.choices.chosen(profile.name)
        number = None if chosen is None else chosen.decision_id
        chain = None
        if number is not None:
            found = (await self.explain(number, None)).models
            chain = next((one for one in found if one.profile == profile.name), None)
        if chain is None:
            number = None
            story = ModelStory(
                profile=profile.name,
                history=History(observations=told),
                design=None,
                memory_bytes={},
                verdicts={},
            )
            chain = await to_thread.run_sync(model_chain, story)
        needs = next((one for one in view.memory.depths if one.depth == served.depth), None)
        predicted, perplexity = None if needs is None else needs.predicted, view.perplexity
        return ModelRecord(
            view=view,
            served=served,
            summaries=await to_thread.run_sync(summarise, told),
            ids=await to_thread.run_sync(_ids, shown),
            quality=quality_of(profile) if perplexity is None else quality_of_row(perplexity),
            context_tokens=profile.context // profile.slots,
            memory_bytes=None if predicted is None else predicted.total_bytes,
            chain=chain,
            decision_id=number,
        )

    def _must_know(self, subject: str) -> None:
        config = self._p.config.now
        if subject in config.pools or config.profile_for(subject) is not None:
            return
        known = sorted({*config.pools, *config.profiles})
        msg = f"there is no model or pool {subject!r}{did_you_mean(subject, known)}"
        raise UnknownNameError(msg, hint=f"there are {', '.join(known)}")

    def _named(self, subject: str | None) -> str | None:
        """The name under which decisions about a subject are journalled."""
        if subject is None or subject in self._p.config.pools:
            return subject
        profile = self._p.config.profile_for(subject)
        return subject if profile is None else profile.name


def _ids(shown: Iterable[MeasurementView]) -> dict[Arm, tuple[int, ...]]:
    """The repetitions of each arm."""
    found: dict[Arm, list[int]] = {}
    for one in shown:
        found.setdefault(one.arm.arm(), []).append(one.id)
    return {arm: tuple(ids) for arm, ids in found.items()}


def _of(pool: Pool) -> Wanted:
    """What a pool asks of the rules for models."""
    return Wanted(
        purpose=f"the pool {pool.name} ({pool.objective.value})",
        objective=Objective(pool.objective.value),
        require=frozenset(pool.require_tags),
        accept_offload=pool.offload.value == "accept",
        least_context_tokens=pool.min_context or 0,
        quality_bound=pool.quality_bound,
    )
