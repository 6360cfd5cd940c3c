"""Arms whose drafts have fewer tokens than their depth: by an engine with fewer heads, or by p-min.

The engine of these tests has two heads and is asked for depth 4: it drafts two tokens, as at
depth 2, and takes as long.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms
from tuner.belief import Belief, believe
from tuner.cost import CostFit
from tuner.design import ModelBased
from tuner.plan import Ask, History, Stop
from tuner.probe import probe_decision
from tuner.select import choose, cost_of
from tuner.summary import summarise
from tuner.types import Observation, Start, Unknown

HEADS, ASKED = 2, 4
CARD = Machine()


def told(depth: int) -> tuple[Observation, ...]:
    """What a start at this depth measures."""
    real = CARD.run(arm(min(depth, HEADS)), start_id=f"{depth}")
    return tuple(replace(one, arm=arm(depth), start_id=f"s{depth}") for one in real)


def history(*depths: int) -> History:
    return History().tell(*(one for depth in depths for one in told(depth)))


def test_a_depth_that_the_engine_does_not_draft_is_not_credited_with_it() -> None:
    decision = choose(history(2, 4))
    assert decision.arm == arm(2)
    assert decision.reason.startswith("m@2: 46.")
    assert "ties with depth 4 (1.00x)" in decision.reason
    assert "verification row" not in decision.reason  # one depth alone does not show its cost


def test_its_step_times_are_no_row_cost() -> None:
    belief = believe(history(0, 2, 4))
    assert isinstance(belief, Belief)
    assert belief.arms == {arm(0), arm(2)}
    assert belief.row_cost().mid == pytest.approx(0.41, rel=0.05)
    cost = cost_of(summarise(history(0, 1, 2, 4).observations))
    assert isinstance(cost, CostFit)
    assert cost.c == pytest.approx(0.41, rel=0.02)
    assert max(map(abs, cost.residuals)) < 0.01


def test_without_a_depth_whose_drafts_are_full_nothing_is_joined() -> None:
    assert isinstance(believe(history(4)), Unknown)
    decision = choose(history(4))
    assert decision.reason == (
        "m@4: 46.7 tok/s is the only depth left: depth 4 earns 2.62 tokens per step"
    )
    line = decision.evidence[0]
    assert "alpha" not in line
    assert line.endswith(
        "only 50.0% of the draft tokens of full drafts were made, and position counters need 98%"
    )


def test_drafts_cut_at_the_ends_of_replies_alone_leave_the_row_cost() -> None:
    measured = Machine(accepted=(60, 30)).run(arm(2))
    (row,) = summarise(measured)
    for drafted, known in ((400, True), (360, True), (359, False), (200, False)):
        (short,) = summarise(replace(one, drafted=drafted) for one in measured)
        assert short.full_step_s == (row.step_s if known else None)
    (uncounted,) = summarise(replace(one, drafted=None) for one in measured)
    assert uncounted.full_step_s == row.step_s
    (plain,) = summarise(told(0))
    assert plain.full_step_s == plain.step_s


def test_a_search_measures_others_against_a_depth_that_it_knows() -> None:
    design = ModelBased(arms=arms(0, 1, 2, 4), workloads=WORKLOADS, repetitions=3, deepest=4)
    answer = design.ask(
        replace(
            history(1, 2, 4),
            starts=tuple(
                Start(arm=arm(d), start_id=f"s{d}", residency=CARD.residency) for d in (1, 2, 4)
            ),
        )
    )
    assert isinstance(answer, Stop)
    assert answer.reason.startswith("m@2 is the best measured")


def test_a_probe_of_it_says_that_the_drafts_were_cut() -> None:
    decision = probe_decision(summarise(history(0, 4).observations), subject="m")
    assert decision.reason == (
        "depth 4 pays: yes (+43.7% against depth 0): 2.62 tokens per step, "
        "from drafts that were cut short"
    )


def test_a_position_that_no_step_reached_has_no_acceptance() -> None:
    nothing = Machine(accepted=(0, 0))
    (row,) = summarise(nothing.run(arm(2)))
    assert [place for place, _ in row.shown_alphas] == [1]
    reason = choose(History().tell(*nothing.run(arm(2)))).reason
    assert reason.endswith("alpha1 0.00 earns 1.00 tokens per step")


def test_the_search_asks_for_the_other_depths_where_only_a_cut_one_is_known() -> None:
    design = ModelBased(arms=arms(0, 4), workloads=WORKLOADS, repetitions=3, deepest=4)
    answer = design.ask(history(4))
    assert isinstance(answer, Ask)
    assert answer.arm == arm(0)


def test_a_depth_whose_positions_are_not_counted_is_told_by_its_cells() -> None:
    """Depth 1 needs no position counters; what depth 2 earns must not be continued from it."""
    uncounted = History(observations=Machine(positions=False).sweep(0, 1, 2))
    belief = believe(uncounted)
    assert isinstance(belief, Belief)
    assert belief.counted == 1
    assert belief.arms == {arm(0), arm(1)}
    assert not belief.covers(arm(2), "f")
    assert belief.row_cost().mid == pytest.approx(0.41, rel=0.05)
    decision = choose(uncounted)
    assert decision.arm == arm(2)
    assert "beats depth 0 (1.44x) and depth 1 (1.05x)" in decision.reason
    assert decision.predicted is not None
    assert decision.predicted.mid == pytest.approx(CARD.tps(2), rel=0.01)
