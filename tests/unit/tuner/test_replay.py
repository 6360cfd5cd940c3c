from __future__ import annotations

import dataclasses

from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms, cells
from tests.unit.tuner.test_studies import NOTE_002, note_002
from tuner.design import Ask, Elimination, History, ModelBased, Stop, Sweep, WorkloadPlan
from tuner.replay import Recording, Told, decisions, first_difference, replay
from tuner.types import Act, Decision, Evicted, Start
from tuner.worth import switch_decision


class Simulated:
    """The scripted machine as a bench."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(self, ask: Ask, history: History) -> Told:
        number = len(history.starts)
        residency = self.machine.resides(ask.arm.depth)
        start = Start(arm=ask.arm, start_id=f"{ask.arm}#{number}", residency=residency)
        if isinstance(residency, Evicted):
            return Told(start=start, seconds=40.0)
        found = self.machine.run(ask.arm, ask.cells, str(number))
        return Told(start=start, observations=found, seconds=100.0)


def sweep(*depths: int) -> Sweep:
    return Sweep(arms=arms(*depths), workloads=WORKLOADS)


def test_a_replayed_sweep_chooses_what_the_machine_is_best_at() -> None:
    done = replay(sweep(0, 1, 2, 3), Simulated(Machine()))
    assert done.decision.arm == arm(2)
    assert done.decision.act is Act.CHOOSE
    assert [ask.arm.depth for ask in done.asks] == [0, 1, 2, 3]
    assert done.restarts == 4
    assert done.cells == 4 * len(cells())
    assert done.history.spent_s == 400.0
    assert done.stop.reason == "every depth that fits was measured"


def test_an_evicted_start_is_told_and_measures_nothing() -> None:
    done = replay(sweep(0, 1, 2, 3), Simulated(Machine(evicts_from=2)))
    assert [s.arm.depth for s in done.history.starts] == [0, 1, 2]
    assert done.decision.arm == arm(1)
    assert "depth 2 does not fit" in done.decision.reason


def test_a_replay_of_its_own_recording_is_identical() -> None:
    for design in (sweep(0, 1, 2), ModelBased(arms=arms(0, 1, 2, 3), workloads=WORKLOADS)):
        first = replay(design, Simulated(Machine(evicts_from=3)))
        again = replay(design, Recording(history=first.history))
        assert again.asks == first.asks
        assert again.stop == first.stop
        assert again.decision == first.decision


def test_another_strategy_can_be_asked_what_it_would_have_done_with_a_recording() -> None:
    recorded = Recording(history=replay(sweep(0, 1, 2, 3), Simulated(Machine())).history)
    cheaper = replay(ModelBased(arms=arms(0, 1, 2, 3), workloads=WORKLOADS), recorded)
    assert cheaper.decision.arm == arm(2)
    assert cheaper.restarts < 4


def test_note_002_replayed_ends_at_depth_2_after_two_starts() -> None:
    """Its table has no starts: they are known by their cells only."""
    recorded = Recording(history=History(observations=note_002(2, 3, 4, 5)))
    design = ModelBased(
        arms=arms(2, 3, 4, 5, profile="qwen3.6-27b"),
        workloads=tuple(WorkloadPlan(name=name, prompts=1) for name in NOTE_002[2]),
        repetitions=1,
    )
    done = replay(design, recorded)
    assert [ask.arm.depth for ask in done.asks] == [2, 3]
    assert done.decision.arm == arm(2, "qwen3.6-27b")
    assert {r.arm.depth for r in done.stop.rejected} == {3, 4, 5}
    assert {r.verdict for r in done.stop.rejected} == {Elimination.DOES_NOT_FIT}


def test_what_was_not_recorded_fails_instead_of_being_invented() -> None:
    recorded = Recording(history=replay(sweep(0, 1), Simulated(Machine())).history)
    done = replay(sweep(0, 1, 2), recorded)
    assert done.decision.arm == arm(1)
    assert [ask.arm.depth for ask in done.asks] == [0, 1, 2, 2]
    assert done.stop.rejected[0].reason == "did not start (it was not recorded)"


def test_what_is_known_beforehand_is_not_asked_again() -> None:
    known = replay(sweep(0), Simulated(Machine())).history
    done = replay(sweep(0, 1), Simulated(Machine()), history=known, incumbent=arm(0))
    assert [ask.arm.depth for ask in done.asks] == [1]
    assert done.decision.previous == arm(0)


def test_a_design_that_never_stops_is_stopped() -> None:
    class Restless:
        def ask(self, history: History) -> Ask | Stop:
            return Ask(arm=arm(0), cells=cells()[:1], reason="again")

    done = replay(Restless(), Simulated(Machine()), limit=3)
    assert done.restarts == 3
    assert done.stop.reason == "the search did not stop within 3 starts"


@dataclasses.dataclass(frozen=True)
class Rates:
    """tok/s of the running and of the other depth."""

    now: float
    other: float


def once(state: int, moment: Rates) -> tuple[int, Decision]:
    """A policy that switches at most ``state`` times."""
    verdict = switch_decision(
        tps_now=moment.now, tps_new=moment.other, sd_log=0.02, horizon_tokens=80_000, cost_s=70
    )
    act = Act.SWITCH if verdict.switch and state else Act.KEEP
    reason = f"p {verdict.p:.2f}"
    return state - (act is Act.SWITCH), Decision(act=act, subject="m", arm=None, reason=reason)


MOMENTS = (Rates(46, 46), Rates(46, 50), Rates(46, 55), Rates(46, 20))


def test_a_policy_carries_its_memory_from_moment_to_moment() -> None:
    acts = [d.act for d in decisions(once, 1, MOMENTS)]
    assert acts == [Act.KEEP, Act.SWITCH, Act.KEEP, Act.KEEP]
    assert [d.act for d in decisions(once, 2, MOMENTS)][2] is Act.SWITCH


def test_a_decision_replayed_from_its_inputs_is_identical_and_a_changed_rule_is_found() -> None:
    made = decisions(once, 1, MOMENTS)
    recorded = list(zip(MOMENTS, made, strict=True))
    assert first_difference(once, 1, recorded) is None
    found = first_difference(once, 2, recorded)
    assert found is not None
    assert found[0] == 2
    assert found[1].act is Act.SWITCH


def test_a_second_recorded_start_of_an_arm_answers_the_second_ask() -> None:
    machine = Machine()
    part = machine.run(arm(0), cells()[:5], "1")
    rest = machine.run(arm(0), cells()[5:], "2")
    recorded = Recording(history=History(observations=(*part, *rest)))
    done = replay(sweep(0), recorded)
    assert [len(ask.cells) for ask in done.asks] == [12, 7]
    assert done.history.observations == (*part, *rest)
    assert done.decision.arm == arm(0)


def test_a_recording_answers_only_the_cells_that_are_asked() -> None:
    recorded = Recording(history=replay(sweep(0), Simulated(Machine())).history)
    once_each = Sweep(arms=arms(0), workloads=WORKLOADS, repetitions=1)
    done = replay(once_each, recorded)
    assert done.cells == len(cells(repetitions=1)) == 4
