"""Ordinary values for tests of the store, the bus and the metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
