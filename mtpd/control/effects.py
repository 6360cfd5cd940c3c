"""What the daemon does by itself: another depth, a restart, a measurement.

Covers the operation of each, its row in the journal with the policy's own sentence, and
giving way: to a request that comes first, nothing is done; to one that comes while
something is measured, the measurement ends. It takes no decision.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.control.calibration import Calibration
from mtpd.control.plans import TuneRequest, plan_params, tune_plan
from mtpd.control.recorded import encode_inputs
from mtpd.control.recorder import COMPARED
from mtpd.errors import MtpdError
from mtpd.proxy.outcomes import DrainTimeoutError
from mtpd.store.samples import MeasurementFilter
from tuner.types import Act

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.choices import Choices
    from mtpd.control.contests import Contest
    from mtpd.control.recorder import StoreRecorder
    from mtpd.control.tuning import TuningPlan
    from mtpd.operations import Operations, Progress
    from mtpd.store.journal import Journal
    from mtpd.store.samples import Measurements
    from mtpd.views import DecisionView, EngineView, Json, OperationView, QueueView
    from tuner.types import Arm, Decision

__all__ = ["Board", "Effects"]

log = structlog.get_logger()

CAME_FIRST = "a request came first: nothing was changed"
METHOD = "model-based"
OUTCOME_S = 5.0
"""Bound on writing down what came of a measurement that was ended."""


class Board(Protocol):
    """What is needed of the switchboard."""

    def engines(self) -> tuple[EngineView, ...]:
        """Every engine."""

    def queue(self) -> QueueView:
        """Who waits and who runs."""

    async def until_waited_for(self) -> None:
        """Return as soon as a request waits."""

    async def switch(self, arm: Arm, *, reason: str, drain_timeout_s: float) -> EngineView:
        """Serve an arm; raises DrainTimeoutError where requests still run."""

    async def stop_engine(self, profile: str, reason: str, *, drain_timeout_s: float) -> None:
        """Stop an engine; likewise."""


class Tunes(Protocol):
    """What is needed of the tuning."""

    async def run(self, plan: TuningPlan, operation_id: str, progress: Progress) -> dict[str, Json]:
        """Measure, decide, and serve what is chosen."""


class Effects:
    """Carries out what was decided, one thing at a time, among the operator's operations.

    Args:
        config: What may be measured.
        board: Owns the engines.
        operations: The lane of operations.
        recorder: Makes decisions durable and known.
        journal: Takes their outcomes.
        measurements: Counts what a measurement that gave way has left.
        choices: What is served from now on.
        tuning: Measures.
        clock: Times switches.
        on_switched: Told how a switch ended and how many seconds it took.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        board: Board,
        operations: Operations,
        recorder: StoreRecorder,
        journal: Journal,
        measurements: Measurements,
        choices: Choices,
        tuning: Tunes,
        clock: Clock,
        on_switched: Callable[[str, float], None],
    ) -> None:
        self._config, self._board, self._operations = config, board, operations
        self._recorder, self._journal, self._measurements = recorder, journal, measurements
        self._choices, self._tuning = choices, tuning
        self._clock, self._on_switched = clock, on_switched
        self._failed: dict[str, Profile] = {}

    async def switch(self, decision: Decision, arm: Arm, calibration: Calibration | None) -> bool:
        """Serve another depth of the running profile from now on.

        Returns:
            Whether anything was done; not where a request came first.
        """

        async def run(progress: Progress) -> dict[str, Json]:
            async with self._decided(decision, progress, calibration) as number:
                await self._brought_up(arm, decision.reason)
                self._choices.adopt(await self._written(number))
            return {"decision": number, "done": True}

        params: dict[str, Json] = {"model": arm.profile, "depth": arm.depth}
        return await self._done("switch", params, run)

    async def switch_model(self, decision: Decision, arm: Arm, contest: Contest) -> bool:
        """Answer for a pool with another of its models from now on; see ``switch``.

        Nothing is done where a reload has taken the model away since it was compared.
        """
        about = self._config.profiles.get(arm.profile)
        if about is None:
            log.info("live.not_configured", model=arm.profile, pool=contest.pool.name)
            return False
        inputs: dict[str, Json] = {COMPARED: encode_inputs(contest.inputs)}

        async def run(progress: Progress) -> dict[str, Json]:
            async with self._decided(decision, progress, contest, inputs) as number:
                with self._choices.proposed(await self._written(number), contest.inputs):
                    await self._brought_up(arm, decision.reason)
                await self._at_its_depth(decision, arm, contest, progress)
            return {"decision": number, "done": True}

        params: dict[str, Json] = {
            "model": arm.profile,
            "depth": arm.depth,
            "pool": contest.pool.name,
        }
        return await self._done("switch", params, run, about=about)

    async def _at_its_depth(
        self, decision: Decision, arm: Arm, contest: Contest, progress: Progress
    ) -> None:
        """Serve the model at the depth that was measured, if nothing had chosen that yet."""
        profile = self._config.profiles[arm.profile]
        held = self._choices.of_profile(profile).arm
        if held == arm:
            return
        reason = f"{arm} is what the stored measurements of {arm.profile} name"
        view = await self._recorder.decide(
            replace(decision, act=Act.CHOOSE, subject=arm.profile, previous=held, reason=reason),
            measurements=[one for one in contest.measurements if one.arm.profile == arm.profile],
            operation_id=progress.operation_id,
            inputs={"automatic": True},
        )
        self._choices.adopt(view)

    async def restart(self, decision: Decision, arm: Arm) -> bool:
        """Start the running arm anew; see ``switch``."""

        async def run(progress: Progress) -> dict[str, Json]:
            async with self._decided(decision, progress, None) as number:
                await self._board.stop_engine(arm.profile, decision.reason, drain_timeout_s=0.0)
                await self._brought_up(arm, decision.reason)
            return {"decision": number, "done": True}

        params: dict[str, Json] = {"model": arm.profile, "depth": arm.depth, "restart": True}
        return await self._done("switch", params, run)

    async def measure(self, decision: Decision, profile: str) -> bool:
        """Measure a profile, and serve what is chosen if it is the one that runs.

        A request that comes ends it; what served before comes back.
        """
        before = decision.previous
        try:
            plan = tune_plan(
                self._config.now,
                TuneRequest(
                    subject=profile,
                    method=METHOD,
                    depths=None,
                    workloads=None,
                    prompts=None,
                    repetitions=None,
                    max_tokens=None,
                    apply=True,
                ),
            )
            plan = replace(plan, serve=before is None or before.profile == profile)
        except MtpdError as error:
            log.warning("live.not_measurable", model=profile, reason=str(error))
            return False

        async def run(progress: Progress) -> dict[str, Json]:
            async with self._decided(decision, progress, None) as number:
                result = await self._tuning.run(plan, progress.operation_id, progress)
            return result | {"decision": number, "done": True}

        (about,) = plan.profiles
        return await self._done("tune", plan_params(plan), run, gives_way=True, about=about)

    @property
    def hopeless(self) -> frozenset[str]:
        """Models that failed when they were to be measured or switched to.

        Until their profile changes, or the daemon starts anew: nothing else has changed.
        """
        profiles = self._config.profiles
        return frozenset(n for n, one in self._failed.items() if profiles.get(n) == one)

    # Inside -------------------------------------------------------------------------

    async def _done(
        self,
        kind: str,
        params: dict[str, Json],
        run: Callable[[Progress], Awaitable[dict[str, Json]]],
        *,
        gives_way: bool = False,
        about: Profile | None = None,
    ) -> bool:
        """Run an operation to its end; False where nothing came of it because of a request."""

        async def careful(progress: Progress) -> dict[str, Json]:
            queue = self._board.queue()
            if queue.in_flight + queue.waiting:
                return {"done": False, "why": CAME_FIRST}
            try:
                return await run(progress)
            except DrainTimeoutError:
                return {"done": False, "why": CAME_FIRST}

        try:
            operation = await self._operations.start(kind, params | {"automatic": True}, careful)
        except MtpdError as error:
            log.warning("live.not_started", kind=kind, reason=str(error))
            return False
        async with anyio.create_task_group() as tasks:
            if gives_way:
                tasks.start_soon(self._give_way, operation.id)
            ended = await self._ended(operation.id)
            tasks.cancel_scope.cancel()
        if about is not None and ended is not None and ended.state == "failed":
            self._failed[about.name] = about
        result = None if ended is None else ended.result
        return ended is None or ended.state != "done" or bool(result and result.get("done"))

    async def _ended(self, operation_id: str) -> OperationView | None:
        """How an operation ended; None where that cannot be read."""
        try:
            return await self._operations.ended(operation_id)
        except MtpdError as error:
            log.warning("live.outcome_unknown", operation=operation_id, reason=str(error))
            return None

    async def _give_way(self, operation_id: str) -> None:
        await self._board.until_waited_for()
        log.info("live.gives_way", operation=operation_id)
        try:
            await self._operations.cancel(operation_id)
        except MtpdError as error:  # it has ended, or the daemon ends
            log.warning("live.not_cancelled", operation=operation_id, reason=str(error))

    @asynccontextmanager
    async def _decided(
        self,
        decision: Decision,
        progress: Progress,
        rests_on: Calibration | Contest | None,
        more: dict[str, Json] | None = None,
    ) -> AsyncIterator[int]:
        """Journal the decision before its effect, and what came of it after."""
        inputs: dict[str, Json] = {"automatic": True} | (more or {})
        if isinstance(rests_on, Calibration):
            inputs["rests_on"] = rests_on.decision_id
        view = await self._recorder.decide(
            decision,
            measurements=() if rests_on is None else rests_on.measurements,
            operation_id=progress.operation_id,
            inputs=inputs,
        )
        try:
            yield view.id
        except DrainTimeoutError:
            await self._journal.outcome(view.id, CAME_FIRST)
            raise
        except MtpdError as error:
            await self._journal.outcome(view.id, f"failed: {error}")
            raise
        except BaseException:
            with anyio.move_on_after(OUTCOME_S, shield=True):
                await self._journal.outcome(view.id, await self._aborted(progress))
            raise
        await self._journal.outcome(view.id, self._serves(decision))

    async def _written(self, number: int) -> DecisionView:
        view = await self._journal.get(number)
        assert view is not None  # noqa: S101 - it was just written
        return view

    async def _brought_up(self, arm: Arm, reason: str) -> None:
        began_s = self._clock.now()
        try:
            await self._board.switch(arm, reason=reason, drain_timeout_s=0.0)
        except MtpdError:
            self._on_switched("failed", self._clock.now() - began_s)
            raise
        self._on_switched("done", self._clock.now() - began_s)

    async def _aborted(self, progress: Progress) -> str:
        where = MeasurementFilter(operation_id=progress.operation_id)
        kept = await self._measurements.list(where)
        why = progress.stopped
        if why is None or not why.startswith("aborted"):
            why = "aborted, because a request came or the daemon ends"
        return f"{why}; {len(kept)} repetitions kept"

    def _serves(self, decision: Decision) -> str:
        """What serves after it: what was switched to, or what was measured beside."""
        arm = decision.previous if decision.act is Act.MEASURE else decision.arm
        for engine in self._board.engines():
            if arm is not None and engine.profile == arm.profile and engine.arm is not None:
                where = engine.residency.state
                return f"{engine.arm.arm()} is {engine.state}, {where}"
        return "nothing serves"
