"""The choice by all that was told: starts and short steps together."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import Machine, arm
from tests.unit.tuner.test_belief import CARD, started
from tuner.belief import Belief, believe
from tuner.plan import History
from tuner.select import choose
from tuner.types import Act, Decision

EQUAL = dataclasses.replace(CARD, accepted=(186, 113, 30))
"""Depth 2 makes 0.2 % more than depth 1."""

AHEAD = dataclasses.replace(CARD, accepted=(186, 125, 30))
"""Depth 2 makes 2.7 % more than depth 1: more than a tie, less than two starts prove."""


def test_one_start_names_what_is_predicted_of_the_depths_not_measured() -> None:
    decision = choose(started(2), subject="qwen", deepest=3)
    assert decision.act is Act.CHOOSE
    assert decision.subject == "qwen"
    assert decision.arm == arm(2)
    assert decision.reason == (
        "m@2: 46.8 tok/s is the only depth measured (predicted: 1.40x over depth 0 and 1.05x over "
        "depth 1): a verification row costs 0.43 of a step here, alpha1 0.93 and alpha2 0.74 earn "
        "2.62 tokens per step"
    )


def test_the_prediction_is_that_of_all_starts_together() -> None:
    history = started(1, 2)
    belief = believe(history)
    assert isinstance(belief, Belief)
    decision = choose(history)
    assert decision.predicted == belief.tps(2)
    together = [e for e in decision.evidence if "together" in e]
    assert len(together) == 1
    assert together[0].startswith("2 starts and 120 short steps together, tok/s: depth 1 44.")
    assert any(e.startswith("a verification row costs 0.44 [0.3") for e in decision.evidence)


def test_a_lone_start_without_a_prediction_of_memory_says_that_nothing_confirms_it() -> None:
    said = "nothing but the log says that this depth is in device memory"
    assert choose(started(2)).evidence[-1].startswith(said)
    for confirmed in (choose(started(2), deepest=3), choose(started(1, 2))):
        assert not any(e.startswith(said) for e in confirmed.evidence)


def test_a_lead_that_is_not_proven_is_followed_and_called_so() -> None:
    decision = choose(started(1, 2, machine=AHEAD, short=0))
    assert decision.arm == arm(2)
    lead, rest = decision.reason.split(" (not proven: ")
    assert lead.endswith("tok/s leads depth 1 by 3%")
    low, high = rest.split("x to ")
    assert float(low) < 1.0 < float(high.split("x")[0])
    assert "x) and is chosen for its mean: a verification row costs" in rest


def test_an_equivalent_depth_with_less_memory_is_preferred() -> None:
    twice = started(1, 2, 1, 2, machine=EQUAL)
    decision = choose(twice)
    assert decision.arm == arm(1)
    assert "ties with depth 2 (1.00x) and needs less memory" in decision.reason
    assert choose(twice, memory_bytes={arm(1): 20, arm(2): 10}).arm == arm(2)
    unknown = choose(twice, memory_bytes={arm(2): 10})
    assert unknown.arm == arm(1), "not known for all: the smallest depth"
    once = choose(started(1, 2, machine=EQUAL))
    assert once.arm == arm(2), "one start of each does not show that they are equivalent"
    assert "ties with depth 1 (1.00x) and is chosen for its mean" in once.reason


def test_an_incumbent_stays_until_it_is_proven_beaten() -> None:
    kept = choose(started(1, 2, machine=AHEAD, short=0), arm(1))
    assert kept.act is Act.KEEP
    assert kept.arm == arm(1)
    assert "trails depth 2 by 3% (not proven: 0." in kept.reason
    assert "and stays as the incumbent" in kept.reason
    proven = choose(started(1, 2, machine=AHEAD), arm(1))
    assert proven.act is Act.SWITCH, "short steps prove what two starts alone do not"
    assert proven.arm == arm(2)


def test_an_arm_that_is_too_slow_to_be_resident_is_never_chosen_nor_a_deeper_one() -> None:
    unread = dataclasses.replace(CARD, slow_from=2)
    decision = choose(started(1, 2, 3, machine=unread), arm(2))
    assert decision.arm == arm(1)
    assert decision.act is Act.SWITCH
    assert "depth 2 does not fit (a step takes 2.0x of what depth 1 predicts)" in decision.reason
    assert "depth 3 does not fit (depth 2 already does not)" in decision.reason
    assert "does not pay" not in decision.reason


def shuffled(history: History) -> History:
    return History(
        observations=history.observations[::-1],
        starts=history.starts[::-1],
        short_steps=history.short_steps[::-1],
    )


@pytest.mark.parametrize("machine", [CARD, EQUAL, AHEAD])
def test_the_same_inputs_give_the_same_decision_in_any_order(machine: Machine) -> None:
    history = started(2, 1, 0, machine=machine)
    assert choose(shuffled(history)) == choose(history)
    assert choose(history) == choose(history)


def test_without_short_steps_and_without_counts_it_still_chooses() -> None:
    assert choose(started(1, 2, short=0)).arm == arm(2)
    bare = Machine(positions=False)
    decision = choose(started(0, 2, machine=bare))
    assert decision.arm == arm(2)
    assert decision.reason.startswith("m@2: 46.7 tok/s beats depth 0 (1.44x)")
    assert not any("together" in e for e in decision.evidence)


def test_an_arm_of_another_fingerprint_is_not_judged_by_the_belief() -> None:
    other = [dataclasses.replace(o, fingerprint="g") for o in CARD.run(arm(3))]
    decision: Decision = choose(started(1, 2).tell(*other))
    assert decision.arm == arm(2)
    assert "cannot be compared with depth 3 (other fingerprint)" in decision.reason
    assert "and needs the least memory of these" in decision.reason


def test_nothing_told_chooses_nothing() -> None:
    assert choose(History()).arm is None
