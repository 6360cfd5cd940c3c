"""Rivals of the search: what they ask for follows from the history, and they end."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.tuner.fleet import (
    CELL_S,
    DEEPEST,
    WORKLOADS,
    Machine,
    arm,
    machine,
    plans,
)
from tests.bench.tuner.rivals import (
    MOST_PULLS,
    PULL_SD,
    Exhaustive,
    Halving,
    Lucb,
    Rival,
    TrackAndStop,
    highest_mean,
    play,
)
from tuner.design import Sweep
from tuner.plan import Ask, History, Stop
from tuner.types import Evicted, Observation, Residency, Resident, Start

RIVALS = (Exhaustive(), Halving(), Lucb(), TrackAndStop())


def pulled(*pulls: tuple[int, float | None]) -> History:
    """A history of starts: depth and tokens per second, None where it does not fit."""
    known = History()
    for number, (depth, tps) in enumerate(pulls):
        residency: Residency = Resident() if tps is not None else Evicted(layers=1)
        known = known.started(
            Start(arm=arm(depth), start_id=f"{number}", residency=residency)
        ).tell(*([] if tps is None else [seen(depth, tps, start_id=f"{number}")]))
    return known


def seen(
    depth: int, tps: float, *, start_id: str = "0", workload: str = "code", repetition: int = 0
) -> Observation:
    return Observation(
        arm=arm(depth),
        workload=workload,
        prompt=0,
        repetition=repetition,
        start_id=start_id,
        fingerprint="f",
        tokens=101,
        decode_s=100 / tps,
        steps=None,
        drafted=None,
        accepted=None,
        accepted_per_position=None,
        digest="d",
        residency=Resident(),
    )


def wanted(rival: Rival, history: History) -> int | None:
    answer = rival.ask(history)
    return answer.arm.depth if isinstance(answer, Ask) else None


def with_ceiling(depth: int) -> Machine:
    return next(m for n in range(99) if (m := machine("rivals", n)).ceiling == depth)


def test_the_noise_of_a_pull_is_that_of_four_repetitions_on_one_start() -> None:
    pulls = []
    for number in range(600):
        one = dataclasses.replace(machine("rivals", 0), seed=f"rivals/0/{number}")
        ask = Lucb().ask(History())
        assert isinstance(ask, Ask)
        told = one.run(ask, History())
        pulls.append(math.log(statistics.fmean(o.decode_tps for o in told.observations)))
    assert statistics.stdev(pulls) == pytest.approx(PULL_SD, rel=0.1)


def test_the_highest_mean_is_over_prompts_and_takes_the_median_of_repetitions_if_told() -> None:
    history = History().tell(
        *(seen(1, tps, repetition=r) for r, tps in enumerate((50.0, 50.0, 110.0))),
        seen(1, 50.0, workload="prose"),
        *(seen(2, tps, repetition=r) for r, tps in enumerate((55.0, 55.0, 56.0))),
        seen(2, 53.0, workload="prose"),
    )
    assert highest_mean(history) == 1
    assert highest_mean(history, of_prompt=statistics.median) == 2


@pytest.mark.parametrize("rival", RIVALS, ids=lambda one: type(one).__name__)
def test_every_depth_is_pulled_once_until_one_does_not_fit(rival: Rival) -> None:
    assert [wanted(rival, pulled(*((d, 30.0) for d in range(n)))) for n in range(6)] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    with_eviction = pulled((0, 30.0), (1, 40.0), (2, 50.0), (3, None))
    assert wanted(rival, with_eviction) not in {3, 4, 5}


def test_halving_keeps_the_faster_half_and_repeats_once_more() -> None:
    first = [(0, 30.0), (1, 40.0), (2, 50.0), (3, 45.0), (4, 35.0), (5, 20.0)]
    second = Halving().ask(pulled(*first))
    assert isinstance(second, Ask)
    assert (second.arm.depth, len(second.cells)) == (2, 2 * len(WORKLOADS))
    assert wanted(Halving(), pulled(*first, (2, 50.0), (3, 45.0))) == 1
    third = pulled(*first, (2, 50.0), (3, 52.0), (1, 40.0))
    assert wanted(Halving(), third) == 2
    end = third.started(Start(arm=arm(2), start_id="2nd", residency=Resident()))
    end = end.tell(seen(2, 50.0, start_id="2nd"))
    end = end.started(Start(arm=arm(3), start_id="3rd", residency=Resident()))
    end = end.tell(seen(3, 49.0, start_id="3rd"))
    assert isinstance(Halving().ask(end), Stop)
    assert Halving().choice(end) == 2


def test_halving_weights_a_round_by_its_repetitions() -> None:
    # Depth 2: (60 + 2 * 47) / 3 = 51.3; depth 3: (45 + 2 * 55) / 3 = 51.7.
    first = [(0, 30.0), (1, 40.0), (2, 60.0), (3, 45.0), (4, 35.0), (5, 20.0)]
    assert wanted(Halving(), pulled(*first, (2, 47.0), (3, 55.0), (1, 40.0))) == 3


def test_halving_begins_a_round_with_the_depth_that_runs_and_does_not_start_it_again() -> None:
    again = 0
    for one in (machine("rivals", number) for number in (0, 33, 70, 79)):
        every = play(Halving(), one)
        kept = play(Halving(), one, keeps=True)
        assert every.history == kept.history
        pairs = itertools.pairwise(start.arm for start in kept.history.starts)
        same = sum(a == b for a, b in pairs)
        assert every.restarts - kept.restarts == same
        assert 20.0 * same <= every.seconds - kept.seconds <= 60.0 * same
        again += same
    assert again == 4


def test_lucb_pulls_the_best_and_its_most_promising_rival_in_turn() -> None:
    once = [(0, 30.0), (1, 40.0), (2, 50.0), (3, 49.5), (4, 35.0), (5, 20.0)]
    assert wanted(Lucb(), pulled(*once)) == 2
    assert wanted(Lucb(), pulled(*once, (2, 50.0))) == 3
    seldom = [*once[:1], (1, 49.0), *once[2:], (2, 50.0), (3, 49.5)]
    assert wanted(Lucb(), pulled(*seldom, (2, 50.0))) == 1


def test_lucb_stops_when_the_bounds_have_parted_but_for_eps() -> None:
    pair = [(0, 30.0), (1, 50.0), (2, None)]
    radius = PULL_SD * math.sqrt(2 * math.log(1.25 * 2 * 2**1.1 / 0.01))
    assert 2 * radius == pytest.approx(0.1278, abs=1e-4)
    assert isinstance(Lucb().ask(pulled(*pair)), Stop)
    near = 50.0 * math.exp(-(2 * radius - 0.02))
    assert isinstance(Lucb().ask(pulled((0, near * 0.99999), *pair[1:])), Stop)
    assert isinstance(Lucb().ask(pulled((0, near * 1.00001), *pair[1:])), Ask)


def test_track_and_stop_pulls_the_rarer_of_the_top_two() -> None:
    once = [(0, 30.0), (1, 40.0), (2, 50.0), (3, 49.5), (4, 35.0), (5, 20.0)]
    assert wanted(TrackAndStop(), pulled(*once)) == 2
    assert wanted(TrackAndStop(), pulled(*once, (2, 50.0))) == 3


def test_track_and_stop_stops_at_the_likelihood_ratio() -> None:
    threshold = math.log((1 + math.log(2)) / 0.01)
    gap = math.sqrt(threshold * 2 * PULL_SD**2 / 0.5) - 0.02
    slower = 50.0 * math.exp(-gap)
    rest = [(1, 50.0), (2, None)]
    assert isinstance(TrackAndStop().ask(pulled((0, slower * 0.99999), *rest)), Stop)
    assert isinstance(TrackAndStop().ask(pulled((0, slower * 1.00001), *rest)), Ask)


@pytest.mark.parametrize("rival", [Lucb(), TrackAndStop()], ids=["LUCB", "track and stop"])
def test_depths_that_cannot_be_told_apart_end_at_the_most_pulls(rival: Rival) -> None:
    known = [(depth, 50.0) for depth in range(DEEPEST + 1)]
    while (depth := wanted(rival, pulled(*known))) is not None:
        known.append((depth, 50.0))
    assert len(known) == pytest.approx(MOST_PULLS, abs=1)


@settings(deadline=None, max_examples=25)
@given(number=st.integers(0, 10_000), rival=st.sampled_from(RIVALS))
def test_a_rival_ends_with_a_depth_that_fits_and_that_it_measured(
    number: int, rival: Rival
) -> None:
    one = machine("rivals", number)
    done = play(rival, one)
    assert rival.choice(done.history) <= one.ceiling
    assert rival.choice(done.history) in {o.arm.depth for o in done.history.observations}
    assert sum(isinstance(s.residency, Evicted) for s in done.history.starts) <= 1
    assert play(rival, one) == done


def test_the_sweep_asks_as_that_of_the_program_does() -> None:
    theirs = Sweep(arms=tuple(map(arm, range(6))), workloads=plans(2), repetitions=1)
    for ceiling in (1, 3, 5):
        one = with_ceiling(ceiling)
        ours = play(Exhaustive(prompts=2, repetitions=1), one)
        assert ours.history == play(theirs, one).history


def test_the_sweep_takes_the_median_of_repetitions() -> None:
    history = History().tell(
        *(seen(1, tps, repetition=r) for r, tps in enumerate((50.0, 50.0, 110.0))),
        *(seen(2, tps, repetition=r) for r, tps in enumerate((55.0, 55.0, 56.0))),
    )
    assert Exhaustive().choice(history) == 2


def test_play_counts_what_the_bench_says() -> None:
    one = with_ceiling(2)
    done = play(Exhaustive(), one)
    assert done.restarts == len(done.history.starts) == 4
    assert len(done.history.observations) == 3 * 3 * len(WORKLOADS)
    assert 4 * 20 + 36 * CELL_S <= done.seconds <= 4 * 60 + 36 * CELL_S
