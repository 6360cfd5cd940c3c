"""The search and the choice on simulated machines whose true speeds are known."""

from __future__ import annotations

import pytest

from tests.bench.tuner.fleet import DEEPEST, Machine, arm, machine, plans
from tuner.design import SHORT_STEPS, ModelBased
from tuner.plan import Elimination
from tuner.replay import Recording, Replayed, replay
from tuner.select import choose
from tuner.types import Evicted

ARMS = tuple(arm(depth) for depth in range(DEEPEST + 1))


def search(one: Machine, *, memory: bool) -> Replayed:
    design = ModelBased(
        arms=ARMS, workloads=plans(3), repetitions=1, deepest=one.ceiling if memory else None
    )
    return replay(design, one)


def given_away(one: Machine, done: Replayed) -> float:
    assert done.decision.arm is not None
    best = max(one.tps(depth) for depth in range(DEEPEST + 1))
    return 1 - one.tps(done.decision.arm.depth) / best


@pytest.mark.parametrize("number", range(8))
def test_with_memory_predicted_the_choice_is_within_3_percent_of_the_best(number: int) -> None:
    one = machine("test", number)
    done = search(one, memory=True)
    assert given_away(one, done) <= 0.03
    assert done.restarts <= 3
    assert all(ask.short_steps == SHORT_STEPS for ask in done.asks if ask.arm.depth)


@pytest.mark.parametrize("number", range(8))
def test_an_eviction_that_no_log_tells_is_never_chosen_and_never_called_slow(number: int) -> None:
    one = machine("test", number, logs_read=False)
    done = search(one, memory=False)
    assert given_away(one, done) <= 0.03
    assert done.decision.arm is not None
    assert done.decision.arm.depth <= one.ceiling
    unfit = [r for r in done.stop.rejected if r.verdict is Elimination.DOES_NOT_FIT]
    assert all(r.arm.depth > one.ceiling for r in unfit)
    tried = {ask.arm.depth for ask in done.asks if ask.arm.depth > one.ceiling}
    assert tried <= {r.arm.depth for r in unfit}


def test_where_the_log_tells_an_eviction_nothing_of_that_start_is_measured() -> None:
    one = next(m for n in range(99) if (m := machine("test", n)).ceiling == 1)
    done = search(one, memory=False)
    (first,) = [s for s in done.history.starts if s.arm == arm(2)]
    assert isinstance(first.residency, Evicted)
    assert not [o for o in done.history.observations if o.arm == arm(2)]
    assert given_away(one, done) <= 0.03


def test_a_search_replayed_from_its_recording_ends_with_the_same_decision() -> None:
    one = machine("test", 3)
    done = search(one, memory=True)
    design = ModelBased(arms=ARMS, workloads=plans(3), repetitions=1, deepest=one.ceiling)
    again = replay(design, Recording(history=done.history))
    assert again.decision == done.decision
    assert [a.arm for a in again.asks] == [a.arm for a in done.asks]
    assert again.stop == done.stop
    assert choose(done.history, deepest=one.ceiling) == done.decision


def test_a_biased_short_step_does_not_mislead_the_search() -> None:
    for bias in (-0.02, 0.02):
        one = machine("test", 5, bias=bias)
        assert given_away(one, search(one, memory=True)) <= 0.03
