"""A scripted machine whose true speeds are known: it answers what a design asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.design import Ask, Cell, Design, History, Stop, WorkloadPlan
from tuner.types import (
    Arm,
    Drafter,
    Evicted,
    Host,
    Observation,
    Residency,
    Resident,
    ShortStep,
    Start,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKLOADS = (WorkloadPlan(name="code", prompts=2), WorkloadPlan(name="prose", prompts=2))
UNKNOWN = Unknown("no log was read")
__all__ = ["UNKNOWN", "WORKLOADS", "Evicted", "Host", "Machine", "Resident", "arm", "arms", "cells"]


def arm(depth: int, profile: str = "m") -> Arm:
    drafter = Drafter.MTP if depth else Drafter.NONE
    return Arm(profile=profile, drafter=drafter, depth=depth)


def arms(*depths: int, profile: str = "m") -> tuple[Arm, ...]:
    return tuple(arm(depth, profile) for depth in depths)


def cells(workloads: Sequence[WorkloadPlan] = WORKLOADS, repetitions: int = 3) -> tuple[Cell, ...]:
    return tuple(
        Cell(workload=plan.name, prompt=prompt, repetition=repetition)
        for plan in workloads
        for prompt in range(plan.prompts)
        for repetition in range(repetitions)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """True acceptance per position (unconditional), row cost, speed and memory ceiling.

    ``draft_share`` of a row's cost drafts its token; None: the engine gives no short steps.
    ``slow_from``: depth from which it is evicted although every log says that it is not.
    ``measures_evicted``: an arm that does not fit is measured, as its profile accepts it.
    """

    accepted: tuple[int, ...] = (186, 137, 80)
    steps: int = 200
    row_cost: float = 0.41
    raw_tps: float = 32.4
    evicts_from: int | None = None
    residency: Residency = Resident()  # noqa: RUF009 - frozen
    fingerprint: str = "f"
    texts_differ: bool = False
    positions: bool = True
    wobble: float = 0.002
    draft_share: float | None = None
    slow_from: int | None = None
    measures_evicted: bool = False

    def resides(self, depth: int) -> Residency:
        if self.evicts_from is not None and depth >= self.evicts_from:
            return Evicted(layers=1 + depth - self.evicts_from)
        return self.residency

    def tps(self, depth: int) -> float:
        tokens = 1 + sum(self.accepted[:depth]) / self.steps
        return self.raw_tps * tokens / (1 + self.row_cost * depth) / self.slowdown(depth)

    def slowdown(self, depth: int) -> float:
        unread = self.slow_from is not None and depth >= self.slow_from
        return 2.0 if unread or isinstance(self.resides(depth), Evicted) else 1.0

    def short_steps(self, ask: Ask, start_id: str) -> tuple[ShortStep, ...]:
        if self.draft_share is None:
            return ()
        depth, draft = ask.arm.depth, self.row_cost * self.draft_share
        return tuple(
            ShortStep(
                arm=ask.arm,
                start_id=start_id,
                fingerprint=self.fingerprint,
                rows=rows,
                step_s=self.slowdown(depth)
                * (1 + self.row_cost * rows + (draft * (depth - rows) if rows else 0.0))
                * (1 + self.wobble * (count % 3 - 1))
                / self.raw_tps,
                context_tokens=100,
            )
            for count in range(ask.short_steps)
            for rows in range(depth + 1)
        )

    def observe(self, which: Arm, cell: Cell, start_id: str = "1") -> Observation:
        depth = which.depth
        kept = self.accepted[:depth]
        tokens = 1 + self.steps + sum(kept)
        prompt_factor = 1 + 0.01 * cell.prompt
        timing = 1 + self.wobble * ((cell.repetition * 7 + depth * 3 + cell.prompt) % 5 - 2)
        text = f"{cell.workload}/{cell.prompt}" + (f"@{depth}" if self.texts_differ else "")
        return Observation(
            arm=which,
            workload=cell.workload,
            prompt=cell.prompt,
            repetition=cell.repetition,
            start_id=f"{which}#{start_id}",
            fingerprint=self.fingerprint,
            tokens=tokens,
            decode_s=(tokens - 1) / (self.tps(depth) * prompt_factor * timing),
            steps=self.steps if depth else 0,
            drafted=self.steps * depth,
            accepted=sum(kept),
            accepted_per_position=kept if self.positions and depth else None,
            digest=f"{which.profile}:{text}",
            residency=self.resides(depth),
        )

    def run(
        self, which: Arm, wanted: Sequence[Cell] | None = None, start_id: str = "1"
    ) -> tuple[Observation, ...]:
        todo = cells() if wanted is None else wanted
        return tuple(self.observe(which, cell, start_id) for cell in todo)

    def sweep(self, *depths: int, profile: str = "m") -> tuple[Observation, ...]:
        return tuple(o for depth in depths for o in self.run(arm(depth, profile)))

    def calibrate(self, design: Design, *, limit: int = 20) -> tuple[History, list[Ask], Stop]:
        """Answer a design until it stops; one that does not fit is not measured unless accepted."""
        history, asked = History(), list[Ask]()
        for number in range(limit):
            answer = design.ask(history)
            if isinstance(answer, Stop):
                return history, asked, answer
            asked.append(answer)
            start_id, residency = str(number), self.resides(answer.arm.depth)
            history = history.started(
                Start(arm=answer.arm, start_id=f"{answer.arm}#{start_id}", residency=residency)
            )
            if self.measures_evicted or not isinstance(residency, Evicted):
                history = history.tell(*self.run(answer.arm, answer.cells, start_id))
            if not isinstance(residency, Evicted):
                history = history.stepped(*self.short_steps(answer, f"{answer.arm}#{start_id}"))
        msg = f"the design did not stop within {limit} asks"
        raise AssertionError(msg)
