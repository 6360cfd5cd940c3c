"""Sentences read as an operator reads them: odd histories that a search can end with."""

from __future__ import annotations

import dataclasses

from tests.unit.tuner.machine import Machine, arm
from tests.unit.tuner.test_belief import started
from tuner.plan import History
from tuner.pools import NOISE_HIDES, Candidate, choose_model
from tuner.select import choose, choose_depth
from tuner.summary import summarise


def test_what_was_measured_and_does_not_fit_is_not_called_unmeasured() -> None:
    evicted = History(observations=Machine(evicts_from=2).sweep(1, 2, 3))
    reason = choose(evicted).reason
    assert "m@1: 44.6 tok/s is the only depth left (predicted: 1.37x over depth 0)" in reason
    assert "depth 2 does not fit" in reason


def test_one_prompt_is_one_prompt() -> None:
    one, many = (choose(History(observations=Machine().run(arm(2))[:n])) for n in (1, 12))
    assert " over 1 prompt, " in one.evidence[0]
    assert " over 4 prompts, " in many.evidence[0]


def test_a_row_that_costs_less_than_nothing_is_doubted() -> None:
    said = "no row costs less than nothing: something slowed the shallow steps"
    assert said in choose(History(observations=Machine(row_cost=-0.1).sweep(0, 1, 2))).evidence
    assert said not in choose(started(0, 2)).evidence
    dear = dataclasses.replace(Machine(), row_cost=0.0)
    assert said not in choose(History(observations=dear.sweep(0, 1, 2))).evidence


def test_a_slow_arm_bars_the_deeper_ones_and_no_other_of_its_depth() -> None:
    sure = dataclasses.replace(arm(2), p_min=0.5)
    told = Machine().sweep(1, 2, 3)
    other = [dataclasses.replace(o, arm=sure) for o in told if o.arm == arm(2)]
    decision = choose_depth(summarise([*told, *other]), slow={arm(2): "does not fit (slow)"})
    assert decision.arm == sure
    assert decision.reason.endswith(
        "depth 2 does not fit (slow) and depth 3 does not fit (depth 2 already does not)"
    )


def paused(factor: float) -> History:
    """Two of three repetitions of depth 2 are slower: its medians are, its fastest one is not."""
    history = started(2, 3)
    slow = tuple(
        dataclasses.replace(
            o, decode_s=o.decode_s * (factor if o.arm == arm(2) and o.repetition < 2 else 1.0)
        )
        for o in history.observations
    )
    return dataclasses.replace(history, observations=slow)


def test_where_contradicting_times_decide_against_the_table_the_sentence_asks_for_the_load() -> (
    None
):
    reason = choose(paused(2.0)).reason
    assert (
        "leads depth 3 by 3% (not proven: 0.98x to 1.08x by all starts together; "
        "the table's medians say 0.53x) and is chosen for its mean" in reason
    )
    assert reason.endswith("; the times contradict each other: was the machine busy?")
    assert "contradict" not in choose(paused(1.5)).reason, "slow, and the table says the same"
    assert "contradict" not in choose(started(2, 3)).reason


def test_a_pool_says_which_models_only_the_noise_makes_equal() -> None:
    (plain,) = summarise(Machine().run(arm(2, "a")))
    uneven = [
        dataclasses.replace(o, decode_s=o.decode_s / (1.5 if o.prompt else 0.8))
        for o in Machine().run(arm(2, "b"))
    ]
    (shaky,) = summarise(uneven)
    unsure = choose_model((Candidate.of(plain), Candidate.of(shaky)), incumbent=plain.arm)
    assert unsure.evidence[-1] == f"{NOISE_HIDES} b is faster"
    same = dataclasses.replace(plain, arm=arm(2, "c"))
    even = choose_model((Candidate.of(plain), Candidate.of(same)))
    assert "ties with c (1.00x)" in even.reason
    assert not any(NOISE_HIDES in one for one in even.evidence), "as fast, which no noise hides"
