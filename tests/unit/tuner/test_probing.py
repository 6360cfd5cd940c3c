"""A probe from one start, against machines whose true speeds are known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.unit.tuner.machine import Machine, Resident, arm, arms
from tuner.design import SHORT_STEPS
from tuner.plan import Ask, History, Stop, WorkloadPlan
from tuner.probe import probe_decision
from tuner.probing import ENOUGH_STEPS, Probe, probed
from tuner.summary import summarise
from tuner.types import Act, Budget, Start, Unknown

ONE_PROMPT = (WorkloadPlan(name="prose", prompts=1),)
STUDY = Machine(draft_share=0.15)
"""The base model of study 000: acceptance .93 and .74, a row costs 0.41 of a step."""
PROBE = Probe(arms=arms(0, 2), workloads=ONE_PROMPT, deepest=3)


def run(machine: Machine, probe: Probe = PROBE) -> tuple[History, list[Ask], Stop]:
    """Everything that the probe asks, answered by the machine."""
    history, asks = History(), list[Ask]()
    while isinstance(answer := probe.ask(history), Ask):
        asks.append(answer)
        start_id = f"{answer.arm}#{len(asks)}"
        residency = machine.resides(answer.arm.depth)
        history = history.started(Start(arm=answer.arm, start_id=start_id, residency=residency))
        if isinstance(residency, Resident):
            number = str(len(asks))
            history = history.tell(*(machine.observe(answer.arm, c, number) for c in answer.cells))
            history = history.stepped(*machine.short_steps(answer, start_id))
    return history, asks, answer


def test_one_start_and_one_prompt_are_enough_where_single_steps_can_be_timed() -> None:
    history, asks, stop = run(STUDY)
    assert [one.arm for one in asks] == [arm(2)]
    assert asks[0].short_steps > 0
    assert len(asks[0].cells) == 3
    assert stop == Stop(reason="single steps of one start show what a row costs", rejected=())
    decision = probed(history, subject="m")
    assert (decision.act, decision.arm, decision.subject) == (Act.MEASURE, arm(2), "m")
    # True speeds: E(1)/1.41 = 1.3688 and E(2)/1.82 = 1.4368, so depth 2 is 5.0 % faster.
    assert decision.reason.startswith("depth 2 pays: ")
    assert "against depth 1" in decision.reason
    low, high = re.findall(r"row costs [\d.]+ \(([\d.]+) to ([\d.]+)\)", decision.reason)[0]
    assert float(low) < STUDY.row_cost < float(high)
    assert decision.predicted is not None
    assert decision.predicted.low < STUDY.tps(2) < decision.predicted.high
    for depth in (0, 1, 2):
        (line,) = [one for one in decision.evidence if one.startswith(f"depth {depth}: ")]
        said = float(line.split()[2])
        assert said == pytest.approx(STUDY.tps(depth), rel=0.05)
        assert line.endswith("measured" if depth == 2 else "predicted")
    assert f"its cells and {3 * SHORT_STEPS} single steps" in " ".join(decision.evidence)


@pytest.mark.parametrize(
    ("machine", "verdict"),
    [
        (replace(STUDY, accepted=(192, 184, 0), row_cost=0.2), "yes"),
        (replace(STUDY, accepted=(186, 60, 0), row_cost=0.8), "no"),
        # E(2)/E(1) = 1 + x/386 against 1.82/1.41: the same speed at x = 112.
        (replace(STUDY, accepted=(186, 112, 0)), "too close to call"),
    ],
)
def test_the_verdict_follows_the_true_speeds(machine: Machine, verdict: str) -> None:
    history, _, _ = run(machine)
    assert probed(history, subject="m").reason.startswith(f"depth 2 pays: {verdict} (")


def test_without_single_steps_depth_zero_shows_the_row_cost() -> None:
    machine = replace(STUDY, draft_share=None)
    history, asks, stop = run(machine)
    assert [one.arm for one in asks] == [arm(2), arm(0)]
    assert asks[1].reason == "depth 0 shows what single steps did not: the row cost"
    assert stop.rejected == ()
    rows = summarise(history.observations, history.starts)
    assert probed(history, subject="m") == probe_decision(rows, subject="m")


def test_a_few_single_steps_are_not_enough() -> None:
    history, _, _ = run(STUDY)
    few = replace(
        history,
        short_steps=tuple(s for s in history.short_steps if s.rows)
        + tuple(s for s in history.short_steps if not s.rows)[: ENOUGH_STEPS - 1],
    )
    assert isinstance(PROBE.ask(few), Ask)
    assert "unknown" in probed(few, subject="m").reason


def test_a_depth_that_does_not_fit_ends_the_probe_and_is_not_said_not_to_pay() -> None:
    machine = replace(STUDY, evicts_from=2)
    history, asks, stop = run(machine)
    assert len(asks) == 1
    assert [one.arm for one in stop.rejected] == [arm(2)]
    assert "does not fit" in stop.rejected[0].reason
    steps = STUDY.short_steps(asks[0], "m@2#1")
    reason = probed(history.stepped(*steps), subject="m").reason
    assert "does not fit" in reason
    assert "pays:" not in reason


def test_a_depth_that_is_predicted_not_to_fit_is_not_started() -> None:
    stop = replace(PROBE, deepest=1).ask(History())
    assert isinstance(stop, Stop)
    assert stop.rejected[0].reason == "does not fit (predicted: at most depth 1 does)"


def test_a_spent_budget_ends_the_probe() -> None:
    _, asks, stop = run(
        replace(STUDY, draft_share=None), replace(PROBE, budget=Budget(max_restarts=1))
    )
    assert len(asks) == 1
    assert stop.reason == "the budget of 1 engine start is spent"


def test_nothing_measured_is_said_to_be_unknown() -> None:
    assert "unknown" in probed(History(), subject="m").reason


def test_without_positions_depth_zero_is_started_and_the_two_depths_are_compared() -> None:
    history, asks, _ = run(replace(STUDY, positions=False))
    assert [one.arm for one in asks] == [arm(2), arm(0)]
    reason = probed(history, subject="m").reason
    assert reason.startswith("depth 2 pays: yes (")
    assert "tokens per step" in reason


def test_a_start_of_unknown_residency_decides_nothing() -> None:
    history, _, _ = run(STUDY)
    unknown = replace(
        history,
        starts=tuple(replace(s, residency=Unknown("no log")) for s in history.starts),
        observations=tuple(replace(o, residency=Unknown("no log")) for o in history.observations),
    )
    reason = probed(unknown, subject="m").reason
    assert reason.startswith("whether a deeper draft pays is unknown: the probe cannot be used")
    assert PROBE.ask(unknown) != PROBE.ask(history)


def test_single_steps_that_contradict_the_steady_ones_need_the_second_start() -> None:
    history, asks, _ = run(STUDY)
    odd = tuple(replace(s, step_s=s.step_s * 4) if s.rows == 0 else s for s in history.short_steps)
    told = replace(history, short_steps=odd)
    again = PROBE.ask(told)
    assert isinstance(again, Ask)
    assert (len(asks), again.arm) == (1, arm(0))
    assert "single steps" not in probed(told, subject="m").reason
