"""Ordinary values for tests of the store, the bus and the metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.views import ArmView, DecisionView, MeasurementView, OperationView, ProgressView
from tuner.types import Act, Arm, Decision, Drafter, Host, Interval, Observation

if TYPE_CHECKING:
    from typing import Any

DEPTH_2 = Arm(profile="tiny", drafter=Drafter.MTP, depth=2)
DEPTH_0 = Arm(profile="tiny")


def observation(**changes: Any) -> Observation:
    """A plausible repetition at depth 2, with some fields changed."""
    plain = Observation(
        arm=DEPTH_2,
        workload="prose",
        prompt=1,
        repetition=2,
        start_id="engine-1",
        fingerprint="f" * 64,
        tokens=96,
        decode_s=0.25,
        steps=40,
        drafted=80,
        accepted=56,
        accepted_per_position=(34, 22),
        digest="d" * 64,
        residency=Host(),
    )
    return replace(plain, **changes)


def decision(**changes: Any) -> Decision:
    """A plausible choice, with some fields changed."""
    plain = Decision(
        act=Act.CHOOSE,
        subject="tiny",
        arm=DEPTH_2,
        previous=DEPTH_0,
        predicted=Interval(low=90.0, mid=100.0, high=110.0),
        reason="depth 2 decodes 12 % faster than depth 0",
        evidence=("a2 0.73..0.76", "cost 1.25"),
    )
    return replace(plain, **changes)


def operation_view(**changes: Any) -> OperationView:
    """A queued operation, with some fields changed."""
    plain = OperationView(
        id="op-1",
        kind="tune",
        state="queued",
        params={},
        progress=ProgressView(done=0, total=None, note=""),
        created_at="2026-11-29T12:00:00.000Z",
        started_at=None,
        ended_at=None,
        result=None,
        error=None,
    )
    return replace(plain, **changes)


def measurement_view(**changes: Any) -> MeasurementView:
    """A stored repetition at depth 2, with some fields changed."""
    plain = MeasurementView(
        id=1,
        at="2026-11-29T12:00:00.000Z",
        operation_id=None,
        start_id="engine-1",
        fingerprint="f" * 64,
        arm=ArmView(profile="tiny", drafter="mtp", depth=2, p_min=0.0),
        workload="prose",
        prompt=1,
        repetition=2,
        tokens=96,
        decode_s=0.25,
        decode_tps=380.0,
        steps=40,
        drafted=80,
        accepted=56,
        accepted_per_position=(34, 22),
        acceptance_source="metrics",
        digest="d" * 64,
        residency="host",
        excluded=None,
    )
    return replace(plain, **changes)


def decision_view(**changes: Any) -> DecisionView:
    """A journalled choice, with some fields changed."""
    plain = DecisionView(
        id=1,
        at="2026-11-29T12:00:00.000Z",
        act="choose",
        subject="tiny",
        arm=ArmView(profile="tiny", drafter="mtp", depth=2, p_min=0.0),
        previous=None,
        predicted=None,
        reason="depth 2 decodes 12 % faster than depth 0",
        evidence=(),
        measurement_ids=(),
        operation_id=None,
        outcome=None,
    )
    return replace(plain, **changes)
