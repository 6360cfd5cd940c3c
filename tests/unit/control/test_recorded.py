"""Inputs of a decision: to the journal's JSON and back, and what differs when taken again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.control.deciding import DepthInputs, Member, PoolInputs, decide
from mtpd.control.recorded import decode_inputs, difference, encode_inputs
from mtpd.types import Absent
from mtpd.views import ArmView, IntervalView
from tests.fakes.values import decision, decision_view
from tests.unit.control.made import arm, observation
from tuner.candidates import Candidate
from tuner.compare import PerplexityRun, Quality
from tuner.cost import RowCost
from tuner.design import ModelBased, Sweep
from tuner.plan import History, WorkloadPlan
from tuner.pools import Objective, choose_model
from tuner.probe import probe_decision
from tuner.probing import Probe
from tuner.select import choose
from tuner.summary import summarise
from tuner.types import (
    Act,
    Budget,
    Evicted,
    Host,
    Interval,
    Resident,
    ShortStep,
    Spilled,
    Start,
    Unknown,
)

if TYPE_CHECKING:
    from mtpd.views import DecisionView
    from tuner.types import Decision

ARMS = (arm(), arm(depth=1), arm(depth=2))


def step(rows: int, **changes: Any) -> ShortStep:
    plain: dict[str, Any] = {"arm": arm(depth=2), "start_id": "s2", "fingerprint": "f" * 64}
    values = {**plain, "rows": rows, "step_s": 0.02 + rows / 7, "context_tokens": 40 + rows}
    return ShortStep(**{**values, **changes})


TOLD = History(
    observations=tuple(observation(one, start_id=f"s{one.depth}") for one in ARMS),
    starts=(
        Start(arm=ARMS[0], start_id="s0", residency=Resident()),
        Start(arm=ARMS[1], start_id="s1", residency=Host()),
        Start(arm=ARMS[2], start_id="s2", residency=Evicted(layers=3)),
        Start(arm=ARMS[2], start_id="s3", residency=Evicted(layers=None)),
        Start(arm=ARMS[2], start_id="s4", residency=Spilled(spilled_bytes=7)),
        Start(arm=ARMS[2], start_id="s5", residency=Unknown("no log"), failure="it died"),
    ),
    short_steps=(step(0), step(1), step(2), step(0, arm=ARMS[1], start_id="s1"), step(1)),
    spent_s=12.5,
    spent_j=None,
)
DEPTH = DepthInputs(
    subject="tiny",
    method="model-based",
    applied=True,
    notes=("the machine was busy",),
    history=TOLD,
    incumbent=arm(depth=1, p_min=0.25),
    memory_bytes={ARMS[0]: 10, ARMS[1]: 2**40},
    deepest=2,
    row_cost=RowCost(c=0.4, sd=0.1, source="this card"),
    arms=ARMS,
    workloads=(WorkloadPlan(name="prose", prompts=3),),
    repetitions=2,
    short_steps=12,
    budget=Budget(max_restarts=3, max_seconds=90.0, max_joules=4e4),
)
QUALITY = Quality(
    value=5.6,
    stderr=0.1,
    run=PerplexityRun(corpus="wiki", chunks=32, context=512),
    chunk_nll=(1.5, 1.25),
)
POOL = PoolInputs(
    subject="both",
    method="sweep",
    applied=False,
    objective=Objective.QUALITY,
    require=frozenset({"b", "a"}),
    accept_offload=True,
    least_context_tokens=2048,
    quality_bound=1.05,
    incumbent=arm("tiny"),
    members=(
        Member(
            arm=ARMS[1],
            history=replace(TOLD, short_steps=()),
            quality=QUALITY,
            tags=frozenset({"a", "b"}),
            context_tokens=4096,
            memory_bytes=5,
        ),
        Member(
            arm=arm("other"),
            history=History(
                observations=(observation(arm("other")),),
                starts=(Start(arm=arm("other"), start_id="o", residency=Host()),),
            ),
        ),
    ),
)


def journalled(inputs: DepthInputs | PoolInputs) -> dict[str, Any]:
    """What comes back from the column."""
    found: dict[str, Any] = json.loads(json.dumps(encode_inputs(inputs), allow_nan=False))
    return found


def view(taken: Decision) -> DecisionView:
    return decision_view(
        act=taken.act.value,
        subject=taken.subject,
        arm=None if taken.arm is None else ArmView.of(taken.arm),
        previous=None if taken.previous is None else ArmView.of(taken.previous),
        predicted=None if taken.predicted is None else IntervalView.of(taken.predicted),
        reason=taken.reason,
        evidence=taken.evidence,
    )


@pytest.mark.parametrize(
    "inputs",
    [
        DEPTH,
        DepthInputs(subject="x", method="sweep", applied=False),
        replace(DEPTH, history=replace(TOLD, spent_j=3.5), row_cost=None, deepest=None),
    ],
)
def test_a_depths_inputs_survive_the_journal(inputs: DepthInputs) -> None:
    found = journalled(inputs)

    assert decode_inputs(found, inputs.history.observations) == inputs
    assert "observations" not in json.dumps(found)


def test_a_pools_inputs_survive_the_journal_each_member_with_its_own_repetitions() -> None:
    everything = [one for member in POOL.members for one in member.history.observations]

    found = journalled(POOL)

    assert decode_inputs(found, everything) == POOL


def test_steps_of_a_start_share_what_they_are_of() -> None:
    groups = journalled(DEPTH)["history"]["short_steps"]

    assert [len(group["steps"]) for group in groups] == [3, 1, 1]
    assert groups[0]["steps"][1] == [1, 0.02 + 1 / 7, 41]


@pytest.mark.parametrize("older", [{}, {"method": "sweep", "applied": True}, {"force": False}])
def test_what_was_not_recorded_then_is_said(older: dict[str, Any]) -> None:
    missing = Absent("the inputs of this decision were not recorded then")

    assert decode_inputs(older, ()) == missing


@pytest.mark.parametrize(
    "change",
    [
        {"history": 1},
        {"history": {}},
        {"arms": [{"profile": "x"}]},
        {"arms": [{"profile": "x", "drafter": "none", "depth": 3, "p_min": 0.0}]},
        {"budget": {"no_such_limit": 1}},
        {"memory_bytes": [[1]]},
        {"incumbent": "tiny@2"},
    ],
)
def test_inputs_that_cannot_be_read_are_absent(change: dict[str, Any]) -> None:
    found = decode_inputs({**journalled(DEPTH), **change}, ())

    assert isinstance(found, Absent)
    assert found.reason.startswith("the recorded inputs cannot be read: ")


def test_an_unknown_residency_or_quality_is_unreadable() -> None:
    depth, pool = journalled(DEPTH), journalled(POOL)
    depth["history"]["starts"][0]["residency"][0] = "somewhere"
    pool["members"][0]["quality"] = "good"

    assert isinstance(decode_inputs(depth, ()), Absent)
    assert isinstance(decode_inputs(pool, ()), Absent)


@pytest.mark.parametrize("inputs", [DEPTH, POOL])
def test_a_decision_taken_again_is_the_same(inputs: DepthInputs | PoolInputs) -> None:
    everything = (
        inputs.history.observations
        if isinstance(inputs, DepthInputs)
        else [one for member in inputs.members for one in member.history.observations]
    )
    again = decode_inputs(journalled(inputs), everything)

    assert not isinstance(again, Absent)
    assert difference(view(decide(inputs)), decide(again)) is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"act": Act.KEEP}, "act"),
        ({"subject": "other"}, "subject"),
        ({"arm": None}, "arm"),
        ({"previous": None}, "arm before"),
        ({"predicted": Interval(low=1, mid=2, high=3)}, "predicted speed"),
        ({"predicted": None}, "predicted speed"),
        ({"reason": "another"}, "sentence"),
        ({"evidence": ("less",)}, "evidence"),
        ({"reason": "another", "evidence": ()}, "sentence and evidence"),
    ],
)
def test_a_decision_taken_again_that_differs_says_in_what(
    change: dict[str, Any], what: str
) -> None:
    now = replace(decision(), **change)

    said = difference(view(decision()), now)

    assert said == f"taken again, the decision differs in its {what}: {now.reason}"


def test_what_is_not_applied_is_a_finding_and_notes_join_the_evidence() -> None:
    quiet = replace(DEPTH, notes=())
    finding = decide(replace(DEPTH, applied=False))

    assert decide(DEPTH).evidence == (*decide(quiet).evidence, "the machine was busy")
    assert finding == replace(decide(DEPTH), act=Act.MEASURE)
    assert decide(DEPTH).act is not Act.MEASURE


def test_a_depth_is_chosen_from_all_that_was_told_and_predicted() -> None:
    history = replace(TOLD, starts=TOLD.starts[:2])
    inputs = replace(DEPTH, history=history, incumbent=ARMS[0], deepest=1, notes=())
    expected = choose(
        history,
        ARMS[0],
        subject="tiny",
        memory_bytes=DEPTH.memory_bytes,
        deepest=1,
        row_cost=DEPTH.row_cost,
    )

    assert decide(inputs) == expected
    assert expected.previous == ARMS[0]


def test_predictions_of_memory_are_handed_on() -> None:
    alone = replace(TOLD, observations=TOLD.observations[2:], starts=(), short_steps=())
    one = DepthInputs(subject="tiny", method="sweep", applied=True, history=alone)
    # Other texts cannot be compared; then the least memory wins.
    apart = tuple(replace(told, digest=f"{told.arm.depth}" * 64) for told in TOLD.observations[:2])
    two = replace(one, history=History(observations=apart))

    assert decide(one) != decide(replace(one, deepest=2))
    assert decide(replace(two, memory_bytes={ARMS[0]: 2, ARMS[1]: 1})).arm == ARMS[1]
    assert decide(replace(two, memory_bytes={ARMS[0]: 1, ARMS[1]: 2})).arm == ARMS[0]


def test_a_probe_has_its_own_verdict() -> None:
    inputs = replace(DEPTH, method="probe", notes=(), history=replace(TOLD, starts=()))
    rows = summarise(TOLD.observations)

    assert decide(inputs) == replace(probe_decision(rows, subject="tiny"), act=Act.MEASURE)


def test_the_design_is_given_what_the_inputs_say() -> None:
    assert DEPTH.design == ModelBased(
        arms=ARMS,
        workloads=DEPTH.workloads,
        repetitions=2,
        budget=DEPTH.budget,
        row_cost=DEPTH.row_cost,
        deepest=2,
        short_steps=12,
    )
    assert replace(DEPTH, method="sweep").design == Sweep(
        arms=ARMS, workloads=DEPTH.workloads, repetitions=2, budget=DEPTH.budget, deepest=2
    )
    assert replace(DEPTH, method="probe").design == Probe(
        arms=ARMS,
        workloads=DEPTH.workloads,
        repetitions=2,
        budget=DEPTH.budget,
        deepest=2,
        short_steps=12,
    )


def test_a_member_is_compared_by_the_row_of_its_arm() -> None:
    (member, _) = POOL.members
    row = next(r for r in summarise(TOLD.observations, TOLD.starts) if r.arm == ARMS[1])

    assert member.candidate() == Candidate.of(
        row,
        quality=QUALITY,
        tags=frozenset({"a", "b"}),
        context_tokens=4096,
        memory_bytes=5,
    )
    with pytest.raises(ValueError, match="nothing was told about tiny@3"):
        replace(member, arm=arm(depth=3)).candidate()


def test_a_pool_is_decided_by_its_own_rules() -> None:
    expected = choose_model(
        [member.candidate() for member in POOL.members],
        objective=Objective.QUALITY,
        incumbent=arm("tiny"),
        subject="both",
        require=frozenset({"a", "b"}),
        accept_offload=True,
    )

    assert decide(replace(POOL, applied=True)) == expected


def test_rows_from_before_offload_and_bounds_were_recorded_asked_for_none() -> None:
    depth, pool = journalled(DEPTH), journalled(POOL)
    for found, keys in (
        (depth, ["accept_offload"]),
        (pool, ["least_context_tokens", "quality_bound"]),
    ):
        for key in keys:
            del found[key]
    old_depth, old_pool = decode_inputs(depth, ()), decode_inputs(pool, ())
    assert isinstance(old_depth, DepthInputs)
    assert not old_depth.accept_offload
    assert isinstance(old_pool, PoolInputs)
    assert (old_pool.least_context_tokens, old_pool.quality_bound) == (0, None)


def test_what_the_daemon_decided_by_itself_is_not_taken_again_and_says_so() -> None:
    found = decode_inputs({"automatic": True, "rests_on": 3}, ())
    assert found == Absent("live traffic asked for it: the evidence says what it showed")
