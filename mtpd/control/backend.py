"""Answers the control API: what is, and the operations that change it.

Covers looking things up and starting operations. It takes no decision: the tuner does,
and an operator's order is written down as one. One object, no state of its own beside
the collaborators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.control.beforehand import need_energy
from mtpd.control.limits import Limits
from mtpd.control.ordered import ordered_arm
from mtpd.control.plans import (
    TuneRequest,
    find_profile,
    plan_params,
    probe_plan,
    tune_plan,
)
from mtpd.control.quality import PerplexityRequest
from mtpd.control.quarantine import release
from mtpd.control.queries import Queries
from mtpd.engine.kept import lost_sentence
from mtpd.errors import MtpdError
from mtpd.views import encode
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.config.model import Profile
    from mtpd.control.tuning import TuningPlan
    from mtpd.operations import Progress
    from mtpd.views import (
        Json,
        OperationView,
        QuarantineView,
    )
    from tuner.types import Arm

__all__ = ["Control"]


class Control(Queries):
    """The backend of the control API."""

    # What is ordered ----------------------------------------------------------------

    async def cancel(self, operation_id: str, /) -> OperationView | None:
        """Ask an operation to end; one that has ended is returned as it is."""
        return await self._p.operations.cancel(operation_id)

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
        arm = ordered_arm(self._p.choices, profile, depth, measured=measured)
        params: dict[str, Json] = {"model": profile.name, "depth": arm.depth, "force": force}
        if measured:
            params["measured"] = True
        pin = None if measured else depth is not None

        async def run(progress: Progress) -> dict[str, Json]:
            return await self._switch(arm, pin=pin, force=force, progress=progress)

        return await self._p.operations.start(
            "switch", params, run, idempotency_key=idempotency_key
        )

    async def load(self, *, model: str, idempotency_key: str | None) -> OperationView:
        """Begin to start a model's engine at its chosen depth."""
        profile = self._profile_or_pool(model)

        async def run(progress: Progress) -> dict[str, Json]:
            arm = self._p.choices.arm_for(profile.name)
            return await self._switch(arm, pin=False, force=False, progress=progress)

        return await self._p.operations.start(
            "load", {"model": profile.name}, run, idempotency_key=idempotency_key
        )

    async def unload(self, *, model: str | None, idempotency_key: str | None) -> OperationView:
        """Begin to stop a model's engine; None means every engine."""
        name = None if model is None else self._profile_or_pool(model).name

        async def run(progress: Progress) -> dict[str, Json]:
            progress.report(0, None, f"draining and stopping {name or 'every engine'}")
            await self._p.switchboard.stop_engine(name, "an operator asked for it")
            return {"engines": encode(self._p.switchboard.engines())}

        return await self._p.operations.start(
            "unload", {"model": name}, run, idempotency_key=idempotency_key
        )

    async def release(self, quarantined_id: str, /) -> QuarantineView:
        """Let a quarantined request try again.

        Raises:
            NotFoundError: There is none with this id.
        """
        return await release(self._p.recorder, self._p.quarantine, quarantined_id)

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
        request = TuneRequest(
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
        )

        def plan() -> TuningPlan:
            return tune_plan(self._p.config, request)

        if plan().limits.max_joules is not None:
            need_energy(request.limits, await self._p.devices())
        kind = "sweep" if method == "sweep" and not apply else "tune"
        return await self._measure(kind, plan, idempotency_key)

    async def probe(self, *, model: str, depth: int, idempotency_key: str | None) -> OperationView:
        """Begin to measure the acceptance of each draft position up to ``depth``."""
        return await self._measure(
            "probe", lambda: probe_plan(self._p.config, model, depth), idempotency_key
        )

    async def perplexity(
        self,
        *,
        models: tuple[str, ...],
        corpus: str,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to measure the perplexity of a model, or of a base and its variant.

        Raises:
            InvalidError: A model has no file, or the text cannot be read.
            BinaryError: There is no llama-perplexity.
        """
        request = PerplexityRequest(models=models, corpus=corpus, chunks=chunks, context=context)
        return await self._p.quality.measure(request, idempotency_key=idempotency_key)

    async def bench(
        self,
        *,
        model: str,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to time the model body alone with llama-bench.

        Raises:
            InvalidError: The model has no file.
            BinaryError: There is no llama-bench.
        """
        return await self._p.quality.bench(
            model=model,
            prompt_tokens=prompt_tokens,
            gen_tokens=gen_tokens,
            repetitions=repetitions,
            idempotency_key=idempotency_key,
        )

    async def make_b2(
        self,
        *,
        model: str,
        corpus: str | None,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to write a model's file anew with a smaller output tensor, beside the original.

        Raises:
            InvalidError: The recipe does nothing, or there is no room or right to write.
            ConflictError: The new file is there already.
            BinaryError: There is no llama-quantize.
        """
        return await self._p.recipes.make_b2(
            model=model,
            corpus=corpus,
            chunks=chunks,
            context=context,
            idempotency_key=idempotency_key,
        )

    async def reload(self, *, idempotency_key: str | None) -> OperationView:
        """Begin to apply the configuration as it lies on the disk.

        Raises:
            ConfigError: It has errors; nothing was changed.
        """
        return await self._p.reload.start(idempotency_key=idempotency_key)

    # Inside -------------------------------------------------------------------------

    async def _measure(
        self, kind: str, make_plan: Callable[[], TuningPlan], idempotency_key: str | None
    ) -> OperationView:
        """Begin to measure; planned now, to refuse what cannot be, and anew when its turn comes."""
        plan = make_plan()

        async def run(progress: Progress) -> dict[str, Json]:
            return await self._p.tuning.run(make_plan(), progress.operation_id, progress)

        return await self._p.operations.start(
            kind, plan_params(plan), run, idempotency_key=idempotency_key
        )

    async def _switch(
        self, arm: Arm, *, pin: bool | None, force: bool, progress: Progress
    ) -> dict[str, Json]:
        """Serve an arm; a pin of True sets the depth, None drops what was set."""
        reason = f"an operator asked for {arm.profile} at depth {arm.depth}"
        chosen = self._p.choices.measured(arm.profile)
        said = "" if chosen is None else f"; measured choice: depth {chosen.depth}"
        progress.report(0, None, f"switching to {arm}")
        decision = await self._p.recorder.decide(
            Decision(act=Act.SWITCH, subject=arm.profile, arm=arm, reason=reason + said),
            operation_id=progress.operation_id,
            inputs={"force": force, "pin": bool(pin)},
        )
        began, before = self._p.clock.now(), self._serving()
        try:
            view = await self._p.switchboard.switch(arm, reason=reason, force=force)
        except MtpdError as error:
            self._p.on_switched("failed", self._p.clock.now() - began)
            await self._p.journal.outcome(decision.id, f"failed: {error}")
            raise
        self._p.on_switched("done", self._p.clock.now() - began)
        if pin:
            self._p.choices.pin(arm, reason=reason, decision_id=decision.id)
        elif pin is None:
            self._p.choices.unpin(arm.profile)
        stopped = before - self._serving()
        lost = lost_sentence(self._p.kept.of(stopped)) if stopped else None
        outcome = (view.state, view.residency.state, *(() if lost is None else (lost,)))
        await self._p.journal.outcome(decision.id, ", ".join(outcome))
        held = self._p.choices.of_profile(self._p.config.profiles[arm.profile])
        choice = self._p.choices.view(arm.profile, held)
        return {
            "decision": decision.id,
            "engine": encode(view),
            "choice": encode(choice),
            "prompt_cache": lost,
        }

    def _serving(self) -> frozenset[str]:
        """The starts that have a process now."""
        return frozenset(e.id for e in self._p.switchboard.engines() if e.pid is not None and e.id)

    def _profile_or_pool(self, name: str) -> Profile:
        pool = self._p.config.pools.get(name)
        if pool is not None:
            return self._p.config.profiles[self._p.choices.of_pool(pool).arm.profile]
        return find_profile(self._p.config, name)
