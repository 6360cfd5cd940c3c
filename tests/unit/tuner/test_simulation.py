"""The simulated machines and the comparison, so that the printed numbers can be trusted."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from tests.bench.tuner.fleet import DEEPEST, arm, machine, plans, tokens_per_step
from tuner.acceptance import expected_tokens
from tuner.design import Sweep
from tuner.replay import replay
from tuner.types import Evicted, Resident


def test_a_machine_is_its_seed() -> None:
    assert machine("1", 3) == machine("1", 3)
    assert machine("1", 3) != machine("1", 4)
    assert machine("2", 3) != machine("1", 3)
    design = Sweep(arms=(arm(0), arm(2)), workloads=plans(1))
    assert replay(design, machine("1", 3)) == replay(design, machine("1", 3))


def test_without_regimes_the_tokens_per_step_are_those_of_the_formula() -> None:
    cond = (0.93, 0.74, 0.5)
    for depth in range(4):
        assert tokens_per_step((cond, cond), depth) == pytest.approx(expected_tokens(cond[:depth]))


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_the_long_run_of_the_texts_is_the_analytic_tokens_per_step(depth: int) -> None:
    one = dataclasses.replace(machine("1", 0), seed="long")
    walks = [one.walk(0, prompt, depth) for prompt in range(150)]
    tokens = sum(w.steps + sum(w.accepted) for w in walks)
    steps = sum(w.steps for w in walks)
    assert tokens / steps == pytest.approx(tokens_per_step(one.regimes[0], depth), rel=0.01)


def test_the_text_is_the_same_at_every_depth_and_deeper_drafts_take_fewer_steps() -> None:
    one = machine("1", 7)
    walks = [one.walk(2, 1, depth) for depth in range(DEEPEST + 1)]
    assert [w.steps for w in walks] == sorted((w.steps for w in walks), reverse=True)
    assert len(walks[3].accepted) == 3


def test_an_evicted_depth_is_slower_and_seen_only_if_the_log_is_read() -> None:
    one = next(m for n in range(99) if (m := machine("1", n)).ceiling == 2)
    assert one.step_s[0][3] > 1.6 * one.step_s[0][2]
    assert one.resides(2) == Resident()
    assert one.resides(4) == Evicted(layers=2)
    blind = dataclasses.replace(one, logs_read=False)
    assert blind.resides(4) == Resident()


def test_the_fleet_has_the_documented_shares_of_memory_ceilings() -> None:
    ceilings = [machine("1", n).ceiling for n in range(2000)]
    shares = [ceilings.count(c) / 2000 for c in (1, 2, 3, 4, 5)]
    assert shares == pytest.approx([0.12, 0.33, 0.22, 0.13, 0.20], abs=0.03)


def test_a_hot_repetition_is_slower() -> None:
    design = Sweep(arms=(arm(2),), workloads=plans(3))
    cold = replay(design, machine("1", 1))
    hot = replay(design, machine("1", 1, hot=1.0))
    ratio = statistics.fmean(o.decode_s for o in hot.history.observations) / statistics.fmean(
        o.decode_s for o in cold.history.observations
    )
    assert 1.1 < ratio < 1.4
