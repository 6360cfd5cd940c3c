"""What is left of an operation's limits for the next model."""

from __future__ import annotations

from mtpd.control.limits import Limits
from tests.unit.control.made import arm, observation
from tuner.plan import History
from tuner.types import Budget, Host, Start

TOLD = History(
    observations=(
        observation(arm(depth=0), prompt=0, repetition=0),
        observation(arm(depth=0), prompt=0, repetition=1),
        observation(arm(depth=0), prompt=1),
    ),
    starts=(Start(arm=arm(depth=0), start_id="1", residency=Host()),),
    spent_s=40.0,
    spent_j=900.0,
)


def test_without_limits_a_model_has_the_starts_that_it_needs_at_most() -> None:
    assert Limits().budget(max_starts=6) == Budget(max_restarts=6)
    assert Limits().after(TOLD) == Limits()


def test_what_a_model_spent_is_not_there_for_the_next_one() -> None:
    limits = Limits(max_starts=4, max_cells=5, max_seconds=100.0, max_joules=1000.0)
    left = limits.after(TOLD)
    assert left == Limits(max_starts=3, max_cells=3, max_seconds=60.0, max_joules=100.0)
    assert left.budget(max_starts=6) == Budget(
        max_restarts=3, max_cells=3, max_seconds=60.0, max_joules=100.0
    )
    assert left.budget(max_starts=2).max_restarts == 2


def test_an_overrun_limit_leaves_nothing_and_never_less() -> None:
    limits = Limits(max_starts=0, max_cells=1, max_seconds=1.0, max_joules=1.0)
    assert limits.after(TOLD) == Limits(max_starts=0, max_cells=0, max_seconds=0.0, max_joules=0.0)
