from __future__ import annotations

import math

import pytest

from tests.unit.tuner.machine import Machine, arm
from tuner.types import (
    Arm,
    Drafter,
    Evicted,
    Host,
    Resident,
    ShortStep,
    Spilled,
    Unknown,
    depth_order,
    passes,
)


def test_an_arm_with_a_depth_needs_a_drafter_and_the_other_way_round() -> None:
    with pytest.raises(ValueError, match="contradict"):
        Arm(profile="m", depth=2)
    with pytest.raises(ValueError, match="contradict"):
        Arm(profile="m", drafter=Drafter.MTP)
    with pytest.raises(ValueError, match=">= 0"):
        Arm(profile="m", drafter=Drafter.MTP, depth=-1)
    with pytest.raises(ValueError, match="p_min"):
        Arm(profile="m", drafter=Drafter.MTP, depth=1, p_min=1.0)


def test_depth_0_comes_first_within_a_profile() -> None:
    deep, shallow = arm(2), arm(0)
    assert sorted([deep, shallow], key=depth_order) == [shallow, deep]
    assert str(deep) == "m@2"


def test_only_resident_and_host_pass() -> None:
    assert [passes(r) for r in (Resident(), Host())] == [True, True]
    failing = (Evicted(layers=1), Spilled(None), Unknown("no log"))
    assert [passes(r) for r in failing] == [False, False, False]


@pytest.mark.parametrize(
    ("depth", "rows", "step_s", "word"),
    [
        (2, 3, 0.03, "m@2 cannot verify 3"),
        (2, -1, 0.03, "-1"),
        (2, 1, 0.0, "takes time"),
        (2, 1, math.nan, "takes time"),
    ],
)
def test_a_short_step_verifies_what_its_engine_drafts_and_takes_time(
    depth: int, rows: int, step_s: float, word: str
) -> None:
    def short(rows: int, step_s: float) -> ShortStep:
        return ShortStep(
            arm=arm(depth),
            start_id="1",
            fingerprint="f",
            rows=rows,
            step_s=step_s,
            context_tokens=9,
        )

    assert short(depth, 0.03).rows == depth
    with pytest.raises(ValueError, match=word):
        short(rows, step_s)


def test_the_speed_leaves_the_first_token_out_as_the_engine_does() -> None:
    one = Machine().run(arm(0))[0]
    assert one.decode_tps == pytest.approx(200 / one.decode_s)
