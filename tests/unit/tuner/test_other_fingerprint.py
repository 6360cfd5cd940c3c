"""A model file that changes during a sweep: the deeper arms are those of another model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tuner.machine import Machine, arm
from tuner.belief import Belief, believe
from tuner.cost import CostFit
from tuner.plan import History
from tuner.points import step_points
from tuner.select import choose, cost_of
from tuner.summary import summarise
from tuner.types import Evicted

BEFORE = Machine(accepted=(190, 180, 170), row_cost=0.2)
AFTER = Machine(accepted=(190, 60, 10), row_cost=0.9, fingerprint="g")
OLD = History(observations=BEFORE.sweep(0, 1, 2))
BOTH = OLD.tell(*AFTER.run(arm(3)))


def test_the_texts_of_another_file_say_nothing_of_this_one() -> None:
    belief = believe(BOTH, deepest=3)
    assert isinstance(belief, Belief)
    assert belief == believe(OLD, deepest=3)
    assert belief.counted == 2
    assert belief.tps(2).mid == pytest.approx(BEFORE.tps(2), rel=0.02)


def test_the_fastest_of_the_first_file_is_chosen_for_what_it_reached() -> None:
    decision = choose(BOTH)
    assert decision.arm == arm(2)
    assert "beats depth 0" in decision.reason
    assert "cannot be compared with depth 3 (other fingerprint)" in decision.reason
    assert "a verification row costs 0.20 of a step" in decision.reason
    assert not any("fitted line" in line for line in decision.evidence)


def test_a_row_cost_is_that_of_one_file() -> None:
    rows = summarise(BOTH.observations)
    assert [point.depth for point in step_points(rows)] == [0, 1, 2]
    cost = cost_of(rows)
    assert isinstance(cost, CostFit)
    assert cost.c == pytest.approx(0.2, rel=0.02)
    assert choose(BOTH).evidence[:3] == choose(OLD).evidence[:3]


def test_an_arm_whose_repetitions_are_of_two_files_is_on_no_line() -> None:
    mixed = BOTH.tell(*(replace(one, fingerprint="g") for one in BEFORE.run(arm(0))[:1]))
    assert [point.depth for point in step_points(summarise(mixed.observations))] == [1, 2]
    alone = summarise(
        replace(o, fingerprint=f) for o, f in zip(BEFORE.run(arm(1)), "fg" * 6, strict=True)
    )
    assert step_points(alone) == []


def test_only_resident_arms_are_on_the_line() -> None:
    rows = summarise(BEFORE.sweep(0, 1, 2))
    evicted = [replace(row, residency=Evicted(1)) if row.arm.depth == 1 else row for row in rows]
    assert [point.depth for point in step_points(evicted)] == [0, 2]


def test_drafts_cut_in_another_file_do_not_leave_out_this_one() -> None:
    cut = tuple(
        replace(o, drafted=200, accepted=0, accepted_per_position=(0,)) for o in AFTER.run(arm(2))
    )
    belief = believe(OLD.tell(*cut[:2]))
    assert isinstance(belief, Belief)
    assert arm(2) in belief.arms
