"""Inputs of a decision as the journal holds them, and back.

Covers the compact JSON of ``decisions.inputs`` (docs/store.md) and what tells a decision
that was taken again from the recorded one. Repetitions have rows of their own; all else is
in the JSON: starts that measured nothing, short steps, limits and predictions. Pure.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from mtpd.control.checked import check
from mtpd.control.deciding import DepthInputs, Member, PoolInputs
from mtpd.errors import StoreError
from mtpd.store import rows
from mtpd.types import Absent
from mtpd.views import ArmView, IntervalView
from tuner.compare import PerplexityRun, Quality
from tuner.cost import RowCost
from tuner.plan import History, WorkloadPlan
from tuner.pools import Objective
from tuner.types import Arm, Budget, ShortStep, Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mtpd.views import DecisionView, Json
    from tuner.types import Decision, Observation

__all__ = ["AUTOMATIC", "decode_inputs", "difference", "encode_inputs"]

Decoded = TypeVar("Decoded", DepthInputs, PoolInputs)

ORDERED = "an operator ordered it: nothing was measured for it"
AUTOMATIC = "live traffic asked for it: the evidence says what it showed"
NOT_RECORDED = "the inputs of this decision were not recorded then"


def encode_inputs(inputs: DepthInputs | PoolInputs) -> dict[str, Json]:
    """The JSON of ``decisions.inputs``, without the repetitions."""
    return _depth_json(inputs) if isinstance(inputs, DepthInputs) else _pool_json(inputs)


def decode_inputs(
    inputs: Mapping[str, Json], observations: Sequence[Observation]
) -> DepthInputs | PoolInputs | Absent:
    """Inputs from the journal, for taking a decision again; never raises.

    Args:
        inputs: The decision's own, as ``Journal.inputs`` gives them.
        observations: The repetitions that the decision rests on, in their order.

    Returns:
        Absent where they were not recorded (schema version 1, an operator's decision) or
        are not what this version writes.
    """
    found: dict[str, Any] = dict(inputs)
    try:
        if "history" in found:
            return _checked(_depth(found, observations))
        if "members" in found:
            return _checked(_pool(found, observations))
        if "automatic" in found:
            return Absent(AUTOMATIC)
        return Absent(ORDERED if "pin" in found else NOT_RECORDED)
    except (AttributeError, KeyError, TypeError, ValueError, StoreError) as problem:
        return Absent(f"the recorded inputs cannot be read: {problem!r}")


def difference(recorded: DecisionView, again: Decision) -> str | None:
    """What differs between a recorded decision and the one taken again, or None."""
    pairs: dict[str, tuple[object, object]] = {
        "act": (recorded.act, again.act.value),
        "subject": (recorded.subject, again.subject),
        "arm": (recorded.arm, _view(again.arm)),
        "arm before": (recorded.previous, _view(again.previous)),
        "sentence": (recorded.reason, again.reason),
        "evidence": (recorded.evidence, again.evidence),
        "predicted speed": (
            recorded.predicted,
            None if again.predicted is None else IntervalView.of(again.predicted),
        ),
    }
    differing = [name for name, (before, now) in pairs.items() if before != now]
    if not differing:
        return None
    what = " and ".join(differing)
    return f"taken again, the decision differs in its {what}: {again.reason}"


def _checked(inputs: Decoded) -> Decoded:
    check(inputs, type(inputs))
    return inputs


def _view(arm: Arm | None) -> ArmView | None:
    return None if arm is None else ArmView.of(arm)


def _depth_json(inputs: DepthInputs) -> dict[str, Json]:
    cost = inputs.row_cost
    return {
        "method": inputs.method,
        "applied": inputs.applied,
        "subject": inputs.subject,
        "notes": list(inputs.notes),
        "incumbent": _arm_or_none(inputs.incumbent),
        "memory_bytes": [[_arm_json(arm), size] for arm, size in inputs.memory_bytes.items()],
        "deepest": inputs.deepest,
        "row_cost": None if cost is None else asdict(cost),
        "arms": [_arm_json(arm) for arm in inputs.arms],
        "workloads": [asdict(plan) for plan in inputs.workloads],
        "repetitions": inputs.repetitions,
        "short_steps": inputs.short_steps,
        "budget": asdict(inputs.budget),
        "accept_offload": inputs.accept_offload,
        "history": _history_json(inputs.history),
        "standing": _history_json(inputs.standing),
    }


def _depth(found: Mapping[str, Any], observations: Sequence[Observation]) -> DepthInputs:
    cost = found["row_cost"]
    before, now = _told(found, observations)
    return DepthInputs(
        method=found["method"],
        applied=found["applied"],
        subject=found["subject"],
        notes=tuple(found["notes"]),
        incumbent=_arm_from(found["incumbent"]),
        memory_bytes={_arm(arm): size for arm, size in found["memory_bytes"]},
        deepest=found["deepest"],
        row_cost=None if cost is None else RowCost(**cost),
        arms=tuple(_arm(arm) for arm in found["arms"]),
        workloads=tuple(WorkloadPlan(**plan) for plan in found["workloads"]),
        repetitions=found["repetitions"],
        short_steps=found["short_steps"],
        budget=Budget(**found["budget"]),
        accept_offload=found.get("accept_offload", False),
        history=now,
        standing=before,
    )


def _told(found: Mapping[str, Any], observations: Sequence[Observation]) -> tuple[History, History]:
    """What stood before, which has starts of its own, and what was measured then."""
    earlier = found.get("standing") or {"starts": []}
    ids = {start["start_id"] for start in earlier["starts"]}
    before = [one for one in observations if one.start_id in ids]
    now = [one for one in observations if one.start_id not in ids]
    standing = _history(earlier, before) if ids else History()
    return standing, _history(found["history"], now)


def _pool_json(inputs: PoolInputs) -> dict[str, Json]:
    return {
        "method": inputs.method,
        "applied": inputs.applied,
        "subject": inputs.subject,
        "notes": list(inputs.notes),
        "objective": inputs.objective.value,
        "require": _sorted(inputs.require),
        "accept_offload": inputs.accept_offload,
        "least_context_tokens": inputs.least_context_tokens,
        "quality_bound": inputs.quality_bound,
        "incumbent": _arm_or_none(inputs.incumbent),
        "members": [_member_json(member) for member in inputs.members],
    }


def _member_json(member: Member) -> dict[str, Json]:
    return {
        "arm": _arm_json(member.arm),
        "quality": None if member.quality is None else _plain(asdict(member.quality)),
        "tags": _sorted(member.tags),
        "context_tokens": member.context_tokens,
        "memory_bytes": member.memory_bytes,
        "history": _history_json(member.history),
    }


def _pool(found: Mapping[str, Any], observations: Sequence[Observation]) -> PoolInputs:
    return PoolInputs(
        method=found["method"],
        applied=found["applied"],
        subject=found["subject"],
        notes=tuple(found["notes"]),
        objective=Objective(found["objective"]),
        require=frozenset(found["require"]),
        accept_offload=found["accept_offload"],
        least_context_tokens=found.get("least_context_tokens", 0),
        quality_bound=found.get("quality_bound"),
        incumbent=_arm_from(found["incumbent"]),
        members=tuple(_member(member, observations) for member in found["members"]),
    )


def _member(found: Mapping[str, Any], observations: Sequence[Observation]) -> Member:
    arm = _arm(found["arm"])
    own = [one for one in observations if one.arm.profile == arm.profile]
    told = _history(found["history"], own)
    if arm not in {one.arm for one in told.observations} | {one.arm for one in told.starts}:
        msg = f"nothing was told about {arm}"
        raise ValueError(msg)
    return Member(
        arm=arm,
        quality=_quality(found["quality"]),
        tags=frozenset(found["tags"]),
        context_tokens=found["context_tokens"],
        memory_bytes=found["memory_bytes"],
        history=told,
    )


def _quality(found: Mapping[str, Any] | None) -> Quality | None:
    if found is None:
        return None
    chunks = found["chunk_nll"]
    rest = {key: value for key, value in found.items() if key not in {"run", "chunk_nll"}}
    return Quality(
        **rest,
        run=PerplexityRun(**found["run"]),
        chunk_nll=None if chunks is None else tuple(chunks),
    )


def _history_json(told: History) -> dict[str, Json]:
    return {
        "starts": [_start_json(start) for start in told.starts],
        "short_steps": _steps_json(told.short_steps),
        "spent_s": told.spent_s,
        "spent_j": told.spent_j,
    }


def _history(found: Mapping[str, Any], observations: Iterable[Observation]) -> History:
    return History(
        observations=tuple(observations),
        starts=tuple(_start(start) for start in found["starts"]),
        short_steps=tuple(step for group in found["short_steps"] for step in _steps(group)),
        spent_s=found["spent_s"],
        spent_j=found["spent_j"],
    )


def _start_json(start: Start) -> dict[str, Json]:
    return {
        "arm": _arm_json(start.arm),
        "start_id": start.start_id,
        "residency": list(rows.residency_columns(start.residency)),
        "failure": start.failure,
    }


def _start(found: Mapping[str, Any]) -> Start:
    label, layers, spilled_bytes, reason = found["residency"]
    return Start(
        arm=_arm(found["arm"]),
        start_id=found["start_id"],
        residency=rows.residency_from((label, layers, spilled_bytes, reason)),
        failure=found["failure"],
    )


def _steps_json(steps: Iterable[ShortStep]) -> list[Json]:
    """The steps of one start share what they are of; each is [rows, seconds, context]."""
    groups = groupby(steps, key=lambda step: (step.arm, step.start_id, step.fingerprint))
    return [
        {
            "arm": _arm_json(arm),
            "start_id": start_id,
            "fingerprint": fingerprint,
            "steps": [[step.rows, step.step_s, step.context_tokens] for step in group],
        }
        for (arm, start_id, fingerprint), group in groups
    ]


def _steps(group: Mapping[str, Any]) -> Iterable[ShortStep]:
    arm = _arm(group["arm"])
    for count, step_s, context_tokens in group["steps"]:
        yield ShortStep(
            arm=arm,
            start_id=group["start_id"],
            fingerprint=group["fingerprint"],
            rows=count,
            step_s=step_s,
            context_tokens=context_tokens,
        )


def _arm_json(arm: Arm) -> dict[str, Json]:
    return asdict(ArmView.of(arm))


def _arm(found: Mapping[str, Any]) -> Arm:
    return ArmView(**found).arm()


def _arm_or_none(arm: Arm | None) -> Json:
    return None if arm is None else _arm_json(arm)


def _arm_from(found: Mapping[str, Any] | None) -> Arm | None:
    return None if found is None else _arm(found)


def _sorted(names: Iterable[str]) -> list[Json]:
    return [*sorted(names)]


def _plain(found: dict[str, Any]) -> dict[str, Json]:
    """JSON has no tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}
