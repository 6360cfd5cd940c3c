"""What binds the policy goes with a switch, whatever the models' clocks say."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tuner.handover import handed_over, left_behind, recent_restarts
from tuner.moment import DAY_S, PolicyState

HOUR_S = 3600.0
LEFT = PolicyState(
    clock_s=100 * HOUR_S,
    seen_s=1000 * HOUR_S,
    restarts=(99 * HOUR_S, 100 * HOUR_S),
    previous=arm(2),
    returns=3,
)
"""Its model served for 100 hours of the caller's 1000; it is left now."""
OWN = PolicyState(
    clock_s=50 * HOUR_S,
    seen_s=990 * HOUR_S,
    restarts=(20 * HOUR_S, 45 * HOUR_S),
    previous=arm(1),
    returns=7,
    measured_s=48 * HOUR_S,
    changed_s=None,
)
"""Its model served last ten hours ago."""


def test_the_new_model_has_the_device_s_restarts_dwell_time_and_way_back() -> None:
    found = handed_over(LEFT, OWN, LEFT.seen_s or 0.0)
    assert (found.clock_s, found.seen_s) == (LEFT.clock_s, LEFT.seen_s)
    assert (found.previous, found.returns) == (arm(2), 3)
    # 45 of its own clock was 5 + 10 hours ago; 20 was more than a day ago.
    assert found.restarts == (85 * HOUR_S, 99 * HOUR_S, 100 * HOUR_S)
    assert found.measured_s == 88 * HOUR_S
    assert found.changed_s is None


def test_what_has_gone_with_the_switch_does_not_bind_the_model_that_was_left() -> None:
    found = left_behind(LEFT)
    assert found == replace(LEFT, restarts=(), previous=None, returns=0)


def test_restarts_are_of_the_last_day_also_of_a_model_that_does_not_serve() -> None:
    seen_s = OWN.seen_s or 0.0
    assert recent_restarts(OWN, seen_s) == 1
    assert recent_restarts(OWN, seen_s + DAY_S - 5.5 * HOUR_S) == 1
    assert recent_restarts(OWN, seen_s + DAY_S - 5 * HOUR_S) == 0
    assert recent_restarts(OWN, seen_s - HOUR_S) == 1, "a clock that was set back stands still"
    assert recent_restarts(replace(OWN, seen_s=None), seen_s) == 1


@given(st.integers(0, 40), st.lists(st.integers(0, 60), max_size=6))
def test_a_switch_neither_makes_nor_forgets_a_restart(away_h: int, restarts_h: list[int]) -> None:
    now_s = LEFT.seen_s or 0.0
    own = replace(
        OWN,
        clock_s=60 * HOUR_S,
        seen_s=now_s - away_h * HOUR_S,
        restarts=tuple(at * HOUR_S for at in sorted(restarts_h)),
    )
    before = recent_restarts(LEFT, now_s) + recent_restarts(own, now_s)
    assert recent_restarts(handed_over(LEFT, own, now_s), now_s) == before
