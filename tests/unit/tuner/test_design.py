from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import (
    UNKNOWN,
    WORKLOADS,
    Host,
    Machine,
    Resident,
    arm,
    arms,
    cells,
)
from tuner.cost import RowCost
from tuner.design import (
    SHORT_STEPS,
    Ask,
    Design,
    Elimination,
    History,
    ModelBased,
    Stop,
    Sweep,
)
from tuner.types import Budget, Evicted, Start

STUDY = RowCost(c=0.41, sd=0.02, source="study 000")


def sweep(*depths: int, budget: Budget | None = None) -> Sweep:
    return Sweep(arms=arms(*depths), workloads=WORKLOADS, budget=budget or Budget())


def search(
    *depths: int,
    row_cost: RowCost | None = None,
    deepest: int | None = None,
    budget: Budget | None = None,
) -> ModelBased:
    return ModelBased(
        arms=arms(*depths),
        workloads=WORKLOADS,
        row_cost=row_cost,
        deepest=deepest,
        budget=budget or Budget(),
    )


def asked(machine: Machine, design: Design) -> tuple[list[int], Stop]:
    _, asks, stop = machine.calibrate(design)
    return [a.arm.depth for a in asks], stop


def verdicts(stop: Stop) -> dict[int, Elimination]:
    return {r.arm.depth: r.verdict for r in stop.rejected}


def test_a_sweep_runs_shallow_to_deep_with_one_start_per_depth() -> None:
    depths, stop = asked(Machine(), sweep(3, 1, 0, 2))
    assert depths == [0, 1, 2, 3]
    assert stop == Stop(reason="every depth that fits was measured", rejected=())


def test_an_ask_is_a_whole_arm_with_repetitions_of_a_prompt_together() -> None:
    answer = sweep(0, 1).ask(History())
    assert isinstance(answer, Ask)
    assert answer.arm == arm(0)
    assert answer.cells == cells()
    assert answer.reason == "depth 0 is the next depth of the sweep"


def test_asking_is_pure() -> None:
    design, history = sweep(0, 1), History().tell(*Machine().run(arm(0)))
    assert design.ask(history) == design.ask(history)


@pytest.mark.parametrize("design", [sweep(0, 1, 2, 3), search(0, 1, 2, 3)])
def test_an_evicted_depth_ends_it_and_everything_deeper_as_not_fitting(design: Design) -> None:
    depths, stop = asked(Machine(evicts_from=2), design)
    assert 3 not in depths
    assert verdicts(stop)[2] is Elimination.DOES_NOT_FIT
    assert verdicts(stop)[3] is Elimination.DOES_NOT_FIT
    reasons = {r.arm.depth: r.reason for r in stop.rejected}
    assert reasons[2] == "does not fit (1 layer on the CPU)"
    assert reasons[3] == "does not fit (depth 2 already does not)"


def test_a_deeper_depth_that_was_measured_resident_stands_by_itself() -> None:
    evicted = Start(arm=arm(1), start_id="x", residency=Evicted(layers=1))
    history = History().tell(*Machine().run(arm(2))).started(evicted)
    stop = sweep(1, 2).ask(history)
    assert isinstance(stop, Stop)
    assert verdicts(stop) == {1: Elimination.DOES_NOT_FIT}


def test_missing_cells_are_asked_again_once() -> None:
    first = Machine().run(arm(0), cells()[:5])
    hot = dataclasses.replace(Machine().run(arm(0), cells()[5:6])[0], excluded="hot")
    history = History().tell(*first, hot)
    for design in (sweep(0), search(0)):
        again = design.ask(history)
        assert isinstance(again, Ask)
        assert again.cells == cells()[5:]
        second = history.started(Start(arm=arm(0), start_id="2", residency=Resident()))
        stop = design.ask(second)
        assert isinstance(stop, Stop)
        assert verdicts(stop) == {0: Elimination.NOT_MEASURED}
        assert stop.rejected[0].reason == "still lacks cells after 2 starts"


def test_a_start_that_always_fails_is_given_up_with_its_reason() -> None:
    history = History().started(
        *(
            Start(arm=arm(0), start_id=s, residency=UNKNOWN, failure="exit code 1")
            for s in ("1", "2")
        )
    )
    stop = search(0).ask(history)
    assert isinstance(stop, Stop)
    assert stop.reason == "no depth could be measured"
    assert stop.rejected[0].reason == "did not start (exit code 1)"


def test_observations_of_other_arms_play_no_role() -> None:
    history = History().tell(*Machine(evicts_from=0).run(arm(0, "other")))
    history = history.started(Start(arm=arm(2, "other"), start_id="o", residency=UNKNOWN))
    assert sweep(0).ask(history) == sweep(0).ask(History())


@pytest.mark.parametrize(
    ("budget", "spent_s", "word"),
    [
        (Budget(max_restarts=2), 0.0, "the budget of 2 engine starts is spent"),
        (Budget(max_restarts=1), 0.0, "the budget of 1 engine start is spent"),
        (Budget(max_cells=11), 0.0, "the budget of 11 cells leaves 3 of the 4 that m@2 needs"),
        (Budget(max_cells=1), 0.0, "the budget of 1 cell leaves 0 of the 4 that m@2 needs"),
        (Budget(max_seconds=600.0), 600.0, "600 s"),
        (Budget(max_joules=5.0), 0.0, "5 J"),
    ],
)
def test_a_spent_budget_stops_and_names_what_was_not_reached(
    budget: Budget, spent_s: float, word: str
) -> None:
    history = History(observations=Machine().sweep(0, 1), spent_s=spent_s, spent_j=5.0)
    stop = sweep(0, 1, 2, budget=budget).ask(history)
    assert isinstance(stop, Stop)
    assert word in stop.reason
    assert verdicts(stop) == {2: Elimination.NOT_MEASURED}
    assert stop.rejected[0].reason == "was not reached"


def test_a_budget_in_joules_cannot_be_kept_where_the_energy_cannot_be_read() -> None:
    history = History(observations=Machine().sweep(0), spent_j=None)
    stop = sweep(0, 1, budget=Budget(max_joules=5.0)).ask(history)
    assert isinstance(stop, Stop)
    assert stop.reason == "the energy cannot be read, so a budget in joules cannot be kept"
    assert isinstance(sweep(0, 1).ask(history), Ask)


def test_a_budget_that_suffices_is_no_obstacle() -> None:
    enough = Budget(max_restarts=3, max_cells=12, max_seconds=601.0)
    history = History(observations=Machine().sweep(0, 1), spent_s=600.0)
    assert isinstance(sweep(0, 1, 2, budget=enough).ask(history), Ask)


def test_a_first_start_is_confirmed_by_a_shallower_one_where_memory_was_not_predicted() -> None:
    design = search(0, 1, 2, 3, 4)
    _, asks, stop = Machine(draft_share=0.15).calibrate(design)
    assert [a.arm.depth for a in asks] == [2, 1]
    assert asks[0].reason == "depth 2 is where the search starts (at most 2)"
    assert asks[1].reason == "depth 1 shows whether depth 2 is as fast as device memory allows"
    assert verdicts(stop) == dict.fromkeys((0, 3, 4), Elimination.DOES_NOT_PAY)
    assert stop.reason.startswith("m@2 is the best measured")


def test_where_memory_was_predicted_one_start_with_short_steps_can_be_enough() -> None:
    design = search(0, 1, 2, 3, deepest=3)
    _, asks, stop = Machine(draft_share=0.15).calibrate(design)
    assert [(a.arm.depth, a.short_steps) for a in asks] == [(2, SHORT_STEPS)]
    assert verdicts(stop) == dict.fromkeys((0, 1, 3), Elimination.DOES_NOT_PAY)
    reasons = {r.arm.depth: r.reason for r in stop.rejected}
    assert reasons[1].startswith("is expected at 4")
    assert reasons[1].endswith(" is expected at 46.8, does not pay")
    assert reasons[3] == "reaches at most 46.3 tok/s where m@2 is expected at 46.8, does not pay"


def test_at_the_edge_of_the_prediction_a_start_is_confirmed_all_the_same() -> None:
    clear = Machine(draft_share=0.15)
    assert asked(clear, search(0, 1, 2, 3, deepest=2))[0] == [2, 1]
    assert asked(clear, search(0, 1, deepest=1))[0] == [1], "a depth of 1 is taken as predicted"
    unread = Machine(draft_share=0.15, slow_from=2)
    depths, stop = asked(unread, search(0, 1, 2, 3, deepest=2))
    assert depths == [2, 1]
    assert verdicts(stop)[2] is Elimination.DOES_NOT_FIT


def test_a_deeper_start_confirms_nothing() -> None:
    """Both may be evicted: then they are as fast as each other predicts."""
    unread = Machine(draft_share=0.15, slow_from=2)
    answer = search(0, 1, 2, 3).ask(History(observations=unread.sweep(2, 3)))
    assert isinstance(answer, Ask)
    assert answer.arm == arm(1)
    assert answer.reason == "depth 1 shows whether depth 2 is as fast as device memory allows"


def test_a_start_without_a_device_needs_no_confirmation() -> None:
    host = Machine(draft_share=0.15, residency=Host())
    assert asked(host, search(0, 1, 2, 3))[0] == [2]


def test_short_steps_are_not_asked_of_an_engine_that_drafts_nothing_nor_if_switched_off() -> None:
    asks = Machine().calibrate(search(0))[1]
    assert [a.short_steps for a in asks] == [0]
    off = dataclasses.replace(search(0, 1), short_steps=0)
    assert {a.short_steps for a in Machine().calibrate(off)[1]} == {0}


def test_without_short_steps_it_needs_more_starts() -> None:
    depths, stop = asked(Machine(), search(0, 1, 2, 3, 4, deepest=4))
    assert depths == [2, 1]
    assert verdicts(stop) == dict.fromkeys((0, 3, 4), Elimination.DOES_NOT_PAY)
    assert asked(Machine(draft_share=0.15), search(0, 1, 2, 3, 4, deepest=4))[0] == [2]


def test_a_row_cost_known_beforehand_saves_starts() -> None:
    clear = Machine(accepted=(186, 135))
    assert asked(clear, search(0, 1, 2, deepest=3))[0] == [2, 1]
    depths, stop = asked(clear, search(0, 1, 2, row_cost=STUDY, deepest=3))
    assert depths == [2]
    assert verdicts(stop) == {0: Elimination.DOES_NOT_PAY, 1: Elimination.DOES_NOT_PAY}


def test_a_chain_that_holds_is_followed_deeper() -> None:
    chained = Machine(accepted=(190, 184, 179, 175), row_cost=0.1, draft_share=0.15)
    depths, _ = asked(chained, search(0, 1, 2, 3, 4, deepest=4))
    assert depths[:2] == [2, 4]


def test_a_prediction_that_a_depth_does_not_fit_saves_its_start() -> None:
    for design in (
        search(0, 1, 2, 3, deepest=1),
        dataclasses.replace(sweep(0, 1, 2, 3), deepest=1),
    ):
        depths, stop = asked(Machine(), design)
        assert max(depths) == 1
        assert verdicts(stop)[2] is verdicts(stop)[3] is Elimination.DOES_NOT_FIT
        reasons = {r.arm.depth: r.reason for r in stop.rejected}
        assert "predicted: at most depth 1 does" in reasons[2]


def test_an_eviction_that_no_log_tells_is_found_by_the_decode_rate() -> None:
    unread = Machine(draft_share=0.15, slow_from=2)
    depths, stop = asked(unread, search(0, 1, 2, 3))
    assert depths == [2, 1, 0], "depth 1 has to be confirmed in its turn"
    reasons = {r.arm.depth: r.reason for r in stop.rejected}
    assert reasons == {
        2: "does not fit (a step takes 2.0x of what depth 1 predicts)",
        3: "does not fit (depth 2 already does not)",
    }
    assert set(verdicts(stop).values()) == {Elimination.DOES_NOT_FIT}


def test_a_deeper_start_that_turns_out_too_slow_does_not_fit_and_no_deeper_one_stands() -> None:
    unread = Machine(draft_share=0.15, slow_from=3, accepted=(190, 185, 180, 176))
    depths, stop = asked(unread, search(0, 1, 2, 3, 4, deepest=4))
    assert depths == [2, 4, 3]
    assert verdicts(stop)[3] is verdicts(stop)[4] is Elimination.DOES_NOT_FIT
    reasons = {r.arm.depth: r.reason for r in stop.rejected}
    assert reasons[4] == "does not fit (depth 3 already does not)"


def test_if_only_deep_arms_are_given_the_shallowest_comes_first() -> None:
    depths, _ = asked(Machine(), search(3, 4))
    assert depths[0] == 3


def test_an_evicted_first_depth_steps_down() -> None:
    depths, stop = asked(Machine(evicts_from=2), search(0, 1, 2, 3))
    assert depths == [2, 1, 0]
    assert verdicts(stop) == {2: Elimination.DOES_NOT_FIT, 3: Elimination.DOES_NOT_FIT}


def test_without_position_counters_everything_is_measured() -> None:
    depths, stop = asked(Machine(positions=False), search(0, 1, 2, 3, row_cost=STUDY))
    assert sorted(depths) == [0, 1, 2, 3]
    assert stop.rejected == ()


def test_drafts_cut_too_often_predict_nothing() -> None:
    cut = [dataclasses.replace(o, drafted=380) for o in Machine().run(arm(2))]
    answer = search(1, 2, row_cost=STUDY).ask(History(observations=tuple(cut)))
    assert isinstance(answer, Ask)
    assert answer.reason.endswith("that are not known yet")


def test_a_drafter_that_never_drafts_predicts_nothing() -> None:
    silent = [
        dataclasses.replace(o, steps=0, drafted=0, accepted=0, accepted_per_position=(0, 0))
        for o in Machine().run(arm(2))
    ]
    answer = search(1, 2, row_cost=STUDY).ask(History(observations=tuple(silent)))
    assert isinstance(answer, Ask)
    assert answer.arm == arm(1)


def test_one_depth_without_a_row_cost_asks_for_another() -> None:
    answer = search(1, 2).ask(History(observations=Machine().run(arm(2))))
    assert isinstance(answer, Ask)
    assert answer.arm == arm(1)


def test_nothing_left_to_try_stops() -> None:
    stop = search(2).ask(History(observations=Machine().run(arm(2))))
    assert isinstance(stop, Stop)
    assert stop.reason == "every depth that fits was measured"
