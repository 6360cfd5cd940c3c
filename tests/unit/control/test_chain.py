"""One model's chain from a search that was really run: replies by a machine with known speeds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.control.chain import ModelStory, model_chain
from mtpd.control.deciding import DepthInputs, Member, PoolInputs, decide
from mtpd.control.explain import explanation
from mtpd.control.recorded import encode_inputs
from mtpd.views import ArmView, IntervalView, encode
from tests.fakes.values import decision_view, measurement_view
from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms
from tuner.cost import RowCost
from tuner.plan import Ask, History
from tuner.types import Act, Budget, Resident, Start

if TYPE_CHECKING:
    from mtpd.explanation_views import ExplanationView
    from mtpd.views import DecisionView, Json
    from tuner.design import Design
    from tuner.types import Decision

STUDY = Machine(draft_share=0.15)


def searched(machine: Machine, design: Design) -> History:
    history = History()
    number = 0
    while isinstance(answer := design.ask(history), Ask):
        number += 1
        start_id = f"{answer.arm}#{number}"
        residency = machine.resides(answer.arm.depth)
        if isinstance(residency, Resident):
            history = history.tell(
                *(machine.observe(answer.arm, one, str(number)) for one in answer.cells)
            ).stepped(*machine.short_steps(answer, start_id))
        history = history.started(Start(arm=answer.arm, start_id=start_id, residency=residency))
    return history


def inputs_of(machine: Machine = STUDY, **changes: Any) -> DepthInputs:
    options: dict[str, Any] = {
        "subject": "m",
        "method": "model-based",
        "applied": True,
        "arms": arms(0, 1, 2, 3),
        "workloads": WORKLOADS,
        "repetitions": 3,
        "short_steps": 12,
        "deepest": 3,
        "memory_bytes": {one: 1000 + one.depth for one in arms(0, 1, 2, 3)},
    }
    asked = DepthInputs(**{**options, **changes})
    return replace(asked, history=searched(machine, asked.design))


def view_of(decision: Decision, **changes: Any) -> DecisionView:
    made = decision_view(
        act=decision.act.value,
        subject=decision.subject,
        arm=None if decision.arm is None else ArmView.of(decision.arm),
        previous=None if decision.previous is None else ArmView.of(decision.previous),
        predicted=None if decision.predicted is None else IntervalView.of(decision.predicted),
        reason=decision.reason,
        evidence=decision.evidence,
    )
    return replace(made, **changes)


def explained(inputs: DepthInputs, **changes: Any) -> ExplanationView:
    recorded = encode_inputs(inputs)
    count = len(inputs.history.observations)
    return explanation(
        view_of(decide(inputs), **changes),
        [measurement_view(id=number + 1) for number in range(count)],
        inputs.history.observations,
        recorded,
    )


def test_what_was_asked_is_told_in_order_with_the_designs_own_reasons() -> None:
    inputs = inputs_of(deepest=None)
    (model,) = explained(inputs).models
    assert model.asks is not None
    assert [one.arm.depth for one in model.asks] == [s.arm.depth for s in inputs.history.starts]
    assert [one.number for one in model.asks] == list(range(1, len(model.asks) + 1))
    assert model.asks[0].reason == "depth 2 is where the search starts (at most 2)"
    assert (model.asks[0].repetitions, model.asks[0].short_steps) == (12, 12)
    assert model.asks[1].reason.startswith("depth ")
    assert model.stop is not None


def test_speeds_are_told_with_forecast_measurement_and_memory() -> None:
    inputs = inputs_of(deepest=None)
    (model,) = explained(inputs).models
    by_depth = {one.depth: one for one in model.speeds}
    started = [s.arm.depth for s in inputs.history.starts]
    first, second = started[0], started[1]
    assert by_depth[first].forecast_tps is None, "nothing was known before the first start"
    forecast = by_depth[second].forecast_tps
    assert forecast is not None
    assert forecast.low < STUDY.tps(second) < forecast.high
    for depth in started:
        one = by_depth[depth]
        assert one.measured_tps == pytest.approx(STUDY.tps(depth), rel=0.02)
        assert one.tps.low < STUDY.tps(depth) < one.tps.high
        assert one.memory_bytes == 1000 + depth
    assert by_depth[0].cost == 1.0
    assert by_depth[2].cost == pytest.approx(1.82, rel=0.05)
    assert model.cost is not None
    assert model.cost.row_cost.low < 0.41 < model.cost.row_cost.high
    assert "single steps" in model.cost.source
    unmeasured = set(by_depth) - set(started)
    assert all(by_depth[depth].measured_tps is None for depth in unmeasured)


def test_without_single_steps_the_source_of_the_row_cost_is_the_depths_or_nothing() -> None:
    two = inputs_of(replace(STUDY, draft_share=None), method="sweep", short_steps=0)
    (model,) = explained(two).models
    assert model.cost is not None
    assert model.cost.source == "the step times of 4 depths"
    one = inputs_of(replace(STUDY, draft_share=None), arms=arms(2), method="sweep")
    (model,) = explained(one).models
    assert model.cost is not None
    assert model.cost.source.startswith("assumed beforehand")
    plain = inputs_of(arms=arms(0), method="sweep")
    (model,) = explained(plain).models
    assert model.cost is None


def test_a_row_cost_that_was_known_beforehand_is_named_with_what_replaced_it() -> None:
    known = RowCost(c=0.5, sd=0.1, source="the hardware profile card")
    one = inputs_of(replace(STUDY, draft_share=None), arms=arms(2), row_cost=known)
    view = explained(one)
    (model,) = view.models
    assert view.replay.state == "same"
    assert model.cost is not None
    assert model.cost.source == "0.5 ± 0.1 assumed from the hardware profile card until measured"
    assert model.cost.row_cost.mid == pytest.approx(0.5, abs=0.04)
    (model,) = explained(inputs_of(row_cost=known)).models
    assert model.cost is not None
    assert model.cost.source.endswith(
        "; before them 0.5 ± 0.1 assumed from the hardware profile card"
    )
    assert model.cost.row_cost.mid == pytest.approx(0.41, abs=0.04)


def test_the_price_of_the_context_is_told_where_the_steps_show_it() -> None:
    inputs = inputs_of()
    (model,) = explained(inputs).models
    assert model.cost is not None
    assert model.cost.context_cost is None, "all steps were timed at one fill"
    steps = inputs.history.short_steps
    filled = tuple(
        replace(
            one, context_tokens=100 * number, step_s=one.step_s + 0.001 * number / STUDY.raw_tps
        )
        for number, one in enumerate(steps)
    )
    (model,) = explained(
        replace(inputs, history=replace(inputs.history, short_steps=filled))
    ).models
    assert model.cost is not None
    fill = model.cost.context_cost
    assert fill is not None
    assert fill.low < 0.01 < fill.high


def test_a_forecast_before_the_second_start_rests_on_the_known_row_cost() -> None:
    plain = replace(STUDY, draft_share=None)
    found = []
    for known in (None, RowCost(c=1.0, sd=0.01, source="another card")):
        inputs = inputs_of(plain, method="sweep", short_steps=0, row_cost=known, arms=arms(1, 2))
        (model,) = explained(inputs).models
        forecast = model.speeds[2].forecast_tps
        assert forecast is not None
        found.append(forecast.mid)
    assert found[1] < 0.95 * found[0]


def test_what_does_not_fit_and_what_does_not_pay_are_kept_apart() -> None:
    costly = inputs_of(replace(STUDY, evicts_from=3, row_cost=1.5), deepest=None)
    (model,) = explained(costly).models
    assert model.out is not None
    verdicts = {one.arm.depth: one.verdict for one in model.out}
    fits = inputs_of(deepest=2, memory_bytes={})
    (model,) = explained(fits).models
    assert model.out is not None
    assert {one.arm.depth: one.verdict for one in model.out}[3] == "does not fit"
    assert "does not pay" in {*verdicts.values(), *(one.verdict for one in model.out)}


def test_starts_are_told_with_their_evidence() -> None:
    inputs = inputs_of(replace(STUDY, evicts_from=2), deepest=None)
    first = inputs.history.starts[0].start_id
    verdict: dict[str, Json] = {
        "state": "evicted",
        "reason": "1 of 66 layers is on the CPU",
        "evidence": [{"line": "offloaded 65/66 layers to GPU", "says": "1 layer is missing"}],
    }
    view = explanation(
        view_of(decide(inputs)),
        (),
        inputs.history.observations,
        encode_inputs(inputs) | {"verdicts": {first: verdict}},
    )
    start = view.models[0].starts[0]
    assert (start.residency, start.reason) == ("evicted", "1 of 66 layers is on the CPU")
    assert [one.says for one in start.evidence] == ["1 layer is missing"]
    assert view.models[0].starts[1].evidence == ()
    assert view.models[0].starts[1].reason is None


def test_a_process_that_was_asked_again_shares_its_evidence() -> None:
    history = History(starts=(Start(arm=arm(0), start_id="e1-again-1", residency=Resident()),))
    story = ModelStory(
        profile="m",
        history=history,
        design=None,
        memory_bytes={},
        verdicts={"e1": {"reason": "all layers", "evidence": []}},
    )
    assert model_chain(story).starts[0].reason == "all layers"
    assert model_chain(story).note.startswith("no speeds can be joined: ")


def test_the_recorded_inputs_give_the_same_decision_again() -> None:
    view = explained(inputs_of())
    assert view.replay.state == "same"
    count = len(view.measurements)
    assert view.replay.sentence == f"from {count} recorded repetitions: the same decision"


@pytest.mark.parametrize(
    "changes", [{"reason": "another sentence"}, {"arm": ArmView.of(arm(3))}, {"evidence": ()}]
)
def test_a_decision_that_does_not_follow_again_is_said_to_differ(changes: dict[str, Any]) -> None:
    view = explained(inputs_of(), **changes)
    assert view.replay.state == "differs"
    assert "taken again, the decision differs" in view.replay.sentence


def test_a_search_that_would_ask_otherwise_today_says_so() -> None:
    inputs = inputs_of(deepest=None)
    changed = replace(inputs, budget=Budget(max_restarts=1))
    (model,) = explained(changed).models
    assert model.asks is not None
    assert model.asks[1].reason == (
        "it was asked then; today the search would not: the budget of 1 engine start is spent"
    )
    ended = replace(
        inputs,
        history=replace(
            inputs.history,
            starts=inputs.history.starts[:1],
            observations=tuple(
                o
                for o in inputs.history.observations
                if o.start_id == inputs.history.starts[0].start_id
            ),
            short_steps=(),
        ),
    )
    (model,) = explained(ended).models
    assert model.stop is not None
    assert model.stop.startswith("it was ended before: ")


def test_the_rule_is_named() -> None:
    inputs = inputs_of()
    assert explained(inputs).rule.startswith("the highest mean wins")
    accepting = explained(inputs_of(accept_offload=True)).rule
    assert accepting.startswith(
        explained(inputs).rule + "; an arm with layers on the CPU is accepted"
    )
    kept = inputs_of(incumbent=arm(2))
    assert decide(kept).act is Act.KEEP
    assert explained(kept).rule.startswith("the incumbent stays")
    probe = inputs_of(method="probe", arms=arms(0, 2))
    assert explained(probe).rule.startswith("a probe chooses nothing")
    ordered = explanation(decision_view(act="switch"), (), (), {})
    assert ordered.rule == "an operator or the configuration named this arm"
    assert ordered.models == ()
    assert ordered.replay.state == "not_recorded"
    switched = explanation(decision_view(act="switch"), (), (), {"pin": True, "force": False})
    assert switched.replay.sentence == "an operator ordered it: nothing was measured for it"


def test_a_pool_tells_what_it_compares_and_where_each_depth_was_found() -> None:
    members = tuple(
        Member(arm=arm(2, name), history=replace(inputs_of().history, short_steps=()))
        for name in ("m",)
    )
    pool = PoolInputs(subject="p", method="sweep", applied=True, members=members)
    view = explanation(
        view_of(decide(pool)), (), members[0].history.observations, encode_inputs(pool)
    )
    (model,) = view.models
    assert (model.asks, model.cost, model.speeds) == (None, None, ())
    assert model.note == "how its depth was found: mtpctl explain --subject m"
    assert model.cells
    assert view.rule.startswith("the rules R0 to R5")
    assert view.replay.state == "same"


def test_an_old_row_shows_what_its_cells_say_and_what_was_not_recorded_then() -> None:
    inputs = inputs_of()
    view = explanation(
        view_of(decide(inputs)),
        [measurement_view(id=1)],
        inputs.history.observations,
        {"method": "sweep", "applied": True},
    )
    (model,) = view.models
    assert (model.asks, model.stop, model.out) == (None, None, None)
    assert "not recorded then" in model.note
    assert {one.start_id for one in model.starts} == {
        o.start_id for o in inputs.history.observations
    }
    assert model.cells
    assert model.speeds
    assert view.replay.state == "not_recorded"


def test_the_whole_view_is_plain_json() -> None:
    assert isinstance(encode(explained(inputs_of())), dict)


def test_times_that_contradict_each_other_tell_no_cost_of_the_context() -> None:
    inputs = inputs_of(deepest=None)
    filled = tuple(
        replace(
            one, context_tokens=100 * number, step_s=one.step_s + 0.001 * number / STUDY.raw_tps
        )
        for number, one in enumerate(inputs.history.short_steps)
    )
    hit = {(2, "prose"), (1, "code")}
    slow = tuple(
        replace(o, decode_s=o.decode_s * (2.5 if (o.arm.depth, o.workload) in hit else 1))
        for o in inputs.history.observations
    )
    told = []
    for observations in (inputs.history.observations, slow):
        history = replace(inputs.history, observations=observations, short_steps=filled)
        (model,) = explained(replace(inputs, history=history)).models
        assert model.cost is not None
        told.append(model.cost.context_cost is not None)
    assert told == [True, False]


@pytest.mark.parametrize(("most", "said"), [(1, "within 1 start"), (2, "within 2 starts")])
def test_the_row_cost_says_from_how_many_starts_it_is(most: int, said: str) -> None:
    (model,) = explained(inputs_of(deepest=None, budget=Budget(max_restarts=most))).models
    assert model.cost is not None
    assert model.cost.source.split(",")[0].endswith(said)
