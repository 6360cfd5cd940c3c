"""What a decision of a calibration rests on, as one value, and the decision that follows.

Covers the depth of a model and the model of a pool. The daemon decides by ``decide`` and
writes its inputs down (``mtpd.control.recorded``); whoever reads them back decides by the
same function, so that a recorded decision can be taken again. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tuner.design import ModelBased, Sweep
from tuner.plan import History
from tuner.pools import Candidate, Objective, choose_model
from tuner.probing import Probe, probed
from tuner.select import choose
from tuner.summary import summarise
from tuner.types import Act, Budget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.compare import Quality
    from tuner.cost import RowCost
    from tuner.design import Design, WorkloadPlan
    from tuner.types import Arm, Decision

__all__ = [
    "MODEL_BASED",
    "PROBE",
    "DepthInputs",
    "Member",
    "PoolInputs",
    "choose_member",
    "decide",
]

MODEL_BASED = "model-based"
PROBE = "probe"
SWEEP = "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthInputs:
    """All that the depth of one model is decided from.

    Attributes:
        subject: The profile.
        method: "sweep", "model-based" or "probe".
        applied: Whether the choice is served; if not, it is a finding only.
        notes: What the operator should know besides, e.g. that the machine was busy.
        history: All that was told.
        standing: What was told to the choice that holds now, where a limit cut this
            measurement short; empty otherwise. Of the same fingerprint.
        incumbent: The arm that was chosen before, or None.
        memory_bytes: Predicted device memory per arm; empty where it is not predicted.
        deepest: Deepest depth that is predicted to fit, or None without a prediction.
        row_cost: Known beforehand for this card, or None.
        arms: Depths that could be asked for.
        workloads: What was run.
        repetitions: Of every prompt.
        short_steps: Wanted per row count of every start.
        budget: Limits.
        accept_offload: Whether an arm with layers outside device memory may be chosen.
    """

    subject: str
    method: str
    applied: bool
    notes: tuple[str, ...] = ()
    history: History = field(default_factory=History)
    standing: History = field(default_factory=History)
    incumbent: Arm | None = None
    memory_bytes: Mapping[Arm, int] = field(default_factory=dict)
    deepest: int | None = None
    row_cost: RowCost | None = None
    arms: tuple[Arm, ...] = ()
    workloads: tuple[WorkloadPlan, ...] = ()
    repetitions: int = 1
    short_steps: int = 0
    budget: Budget = field(default_factory=Budget)
    accept_offload: bool = False

    @property
    def told(self) -> History:
        """All that is compared: what stood before, then what was measured now."""
        before, now = self.standing, self.history
        return replace(
            now,
            observations=before.observations + now.observations,
            starts=before.starts + now.starts,
            short_steps=before.short_steps + now.short_steps,
        )

    @property
    def design(self) -> Design:
        """The strategy that asked for the measurements."""
        if self.method == MODEL_BASED:
            return ModelBased(
                arms=self.arms,
                workloads=self.workloads,
                repetitions=self.repetitions,
                budget=self.budget,
                row_cost=self.row_cost,
                deepest=self.deepest,
                short_steps=self.short_steps,
                accept_offload=self.accept_offload,
            )
        if self.method == PROBE:
            return Probe(
                arms=self.arms,
                workloads=self.workloads,
                repetitions=self.repetitions,
                budget=self.budget,
                deepest=self.deepest,
                short_steps=self.short_steps,
            )
        return Sweep(
            arms=self.arms,
            workloads=self.workloads,
            repetitions=self.repetitions,
            budget=self.budget,
            deepest=self.deepest,
            accept_offload=self.accept_offload,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A model of a pool at the depth that was decided for it.

    Attributes:
        arm: Its arm.
        history: What was told of the model; its row in the comparison comes from this.
        quality: Measured perplexity, or None.
        tags: What it offers.
        context_tokens: Tokens that one request can hold, or None if not known.
        memory_bytes: Predicted device memory of the arm, or None.
    """

    arm: Arm
    history: History
    quality: Quality | None = None
    tags: frozenset[str] = frozenset()
    context_tokens: int | None = None
    memory_bytes: int | None = None

    def candidate(self) -> Candidate:
        """The member as a pool's rules compare it.

        Raises:
            ValueError: Its history says nothing about its arm.
        """
        told = self.history
        rows = summarise(told.observations, told.starts)
        row = next((row for row in rows if row.arm == self.arm), None)
        if row is None:
            msg = f"nothing was told about {self.arm}"
            raise ValueError(msg)
        return Candidate.of(
            row,
            quality=self.quality,
            tags=self.tags,
            context_tokens=self.context_tokens,
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInputs:
    """All that the model of a pool is decided from.

    Attributes:
        subject: The pool.
        method: How its members were measured.
        applied: Whether the choice is served.
        notes: What the operator should know besides.
        objective: balanced, speed, quality or efficiency.
        require: Tags that the model must have.
        accept_offload: Whether layers outside device memory are acceptable.
        least_context_tokens: Tokens that one request must be able to hold; 0 asks for none.
        quality_bound: Largest perplexity as a multiple of the lowest comparable one, or None.
        incumbent: The arm that served the pool before, or None.
        members: Models that can be chosen.
    """

    subject: str
    method: str
    applied: bool
    notes: tuple[str, ...] = ()
    objective: Objective = Objective.BALANCED
    require: frozenset[str] = frozenset()
    accept_offload: bool = False
    least_context_tokens: int = 0
    quality_bound: float | None = None
    incumbent: Arm | None = None
    members: tuple[Member, ...] = ()


def decide(inputs: DepthInputs | PoolInputs) -> Decision:
    """The decision that follows from these inputs and nothing else, as it is journalled.

    What is not applied is a finding, not a choice: its act is to measure, so that it is not
    restored later.
    """
    decision = _of_depth(inputs) if isinstance(inputs, DepthInputs) else _of_pool(inputs)
    noted = replace(decision, evidence=decision.evidence + inputs.notes)
    return noted if inputs.applied else replace(noted, act=Act.MEASURE)


def _of_depth(inputs: DepthInputs) -> Decision:
    told = inputs.told
    if inputs.method == PROBE:
        return probed(told, subject=inputs.subject)
    return choose(
        told,
        inputs.incumbent,
        subject=inputs.subject,
        memory_bytes=inputs.memory_bytes,
        deepest=inputs.deepest,
        row_cost=inputs.row_cost,
        accept_offload=inputs.accept_offload,
    )


def _of_pool(inputs: PoolInputs) -> Decision:
    return choose_member(inputs, [member.candidate() for member in inputs.members])


def choose_member(inputs: PoolInputs, candidates: Sequence[Candidate]) -> Decision:
    """The decision among candidates, by what is asked of a pool; its own members play no role."""
    return choose_model(
        candidates,
        objective=inputs.objective,
        incumbent=inputs.incumbent,
        subject=inputs.subject,
        require=inputs.require,
        accept_offload=inputs.accept_offload,
        least_context_tokens=inputs.least_context_tokens,
        quality_bound=inputs.quality_bound,
    )
