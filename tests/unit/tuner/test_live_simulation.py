from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.tuner.fleet import machine, tokens_per_step
from tests.bench.tuner.traffic_rules import Ours, Reference, calibrate
from tests.bench.tuner.traffic_run import Requests, run
from tests.bench.tuner.traffic_world import SCENARIOS, Scenario, Traffic, sample, traffic

STILL = replace(SCENARIOS["stationary"], hours=8)
JUMP = Scenario(hours=10, gap_s=15, regime_h=5, shift_sd=1.5)


def drawn(number: int, world: Scenario) -> Traffic:
    return traffic(machine("test", number), world, np.random.default_rng(number))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_simulated_counters_have_the_long_run_mean_of_the_chain(depth: int) -> None:
    (regime,) = drawn(0, STILL).regimes
    counts = sample(regime, 0, depth, np.full(4000, 500), np.random.default_rng(1))
    per_step = 1 + counts.hits.sum() / counts.steps.sum()
    assert per_step == pytest.approx(tokens_per_step(regime.conds[0], depth), rel=0.01)
    assert (np.diff(counts.hits, axis=1) <= 0).all()


def test_no_depth_is_better_than_the_oracle_that_changes_it() -> None:
    world = drawn(1, JUMP)
    assert len(world.regimes) > 1
    assert world.oracle_s() < min(world.cost_s(k) for k in range(6))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_stationary_traffic_is_left_alone(number: int) -> None:
    which = machine("test", number)
    known = calibrate(which, np.random.default_rng(number))
    requests = Requests(which, drawn(number, STILL), (number,))
    noise = np.random.default_rng(9)
    done = run(Ours(known, STILL.gap_s), requests, known.chosen, known.switch_s, noise)
    assert done.switches == 0


@pytest.mark.slow
def test_a_depth_that_is_far_from_right_is_left_within_hours() -> None:
    which = replace(machine("test", 3), ceiling=3)
    known = calibrate(which, np.random.default_rng(3))
    world = drawn(3, STILL)
    best = min(range(4), key=world.cost_s)
    wrong = max(range(4), key=world.cost_s)
    for rule in (Ours(known, STILL.gap_s), Reference(known, STILL.gap_s)):
        requests = Requests(which, world, (3,))
        done = run(rule, requests, wrong, known.switch_s, np.random.default_rng(9))
        assert world.cost_s(done.path[-1][1]) < 1.05 * world.cost_s(best)
        assert done.wrong == 0
        assert done.spent_s < world.cost_s(wrong)
