"""The simulated machines and the comparison, so that the printed numbers can be trusted."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics

import pytest

from tests.bench.tuner.fleet import (
    DEEPEST,
    SHORT_STEP_S,
    Machine,
    arm,
    machine,
    plans,
    tokens_per_step,
)
from tuner.acceptance import expected_tokens
from tuner.design import Sweep
from tuner.plan import Ask, History
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


def test_a_short_step_drafts_its_full_depth_and_pays_for_a_new_batch_shape_once() -> None:
    one = machine("1", 1)
    assert one.ceiling >= 3
    t0, t1, t2, t3 = one.step_s[0][:4]
    assert one.short_s(0, 0) == t0
    assert one.short_s(3, 0) == pytest.approx(t0 + one.catch_up_s)
    assert one.short_s(3, 1) == pytest.approx(t1 + 2 * one.draft_s + one.new_shape_s[3])
    assert one.short_s(3, 3) == pytest.approx(t3 + one.new_shape_s[3])
    assert one.short_s(2, 2) == pytest.approx(t2 + one.new_shape_s[2])
    assert 0.05 <= one.draft_s / ((t3 - t0) / 3) <= 0.4


def test_an_evicted_engine_is_slow_at_every_short_step() -> None:
    one = next(m for n in range(99) if (m := machine("1", n)).ceiling == 1)
    slowdown = one.step_s[0][2] / one.resident_s[2]
    assert 1.6 <= slowdown <= 2.3
    roomy = dataclasses.replace(one, step_s=(one.resident_s, *one.step_s[1:]))
    for rows in range(3):
        assert one.short_s(2, rows) == pytest.approx(slowdown * roomy.short_s(2, rows))


def short_logs(one: Machine, count: int = 400) -> dict[int, float]:
    ask = Ask(arm=arm(2), cells=(), reason="", short_steps=count)
    told = one.run(ask, History())
    assert len(told.short_steps) == 3 * count
    assert told.seconds >= 3 * count * SHORT_STEP_S
    return {
        rows: statistics.fmean(math.log(s.step_s) for s in told.short_steps if s.rows == rows)
        for rows in range(3)
    }


def test_a_bias_is_of_all_short_steps_and_a_tilt_spares_those_at_full_depth() -> None:
    fair = short_logs(machine("1", 1))
    biased, tilted = short_logs(machine("1", 1, bias=0.1)), short_logs(machine("1", 1, tilt=0.1))
    assert [biased[r] - fair[r] for r in range(3)] == pytest.approx([0.1] * 3)
    assert [tilted[r] - fair[r] for r in range(3)] == pytest.approx([0.1, 0.1, 0.0])
    drawn = [machine("1", n, bias_sd=0.02, tilt_sd=0.02) for n in range(300)]
    assert statistics.stdev(m.bias for m in drawn) == pytest.approx(0.02, rel=0.15)
    assert statistics.stdev(m.tilt for m in drawn) == pytest.approx(0.02, rel=0.15)


def test_the_mean_of_12_short_steps_has_a_noise_of_1_3_percent() -> None:
    one = machine("1", 1)
    ask = Ask(arm=arm(0), cells=(), reason="", short_steps=12 * 300)
    logs = [math.log(s.step_s) for s in one.run(ask, History()).short_steps]
    means = [statistics.fmean(logs[at : at + 12]) for at in range(0, len(logs), 12)]
    assert statistics.stdev(means) == pytest.approx(0.013, rel=0.1)


def test_more_irregular_rows_scatter_more_around_the_mean_row_cost() -> None:
    def scatter(irregular: float) -> float:
        rows = [
            (b - a) / (m.resident_s[-1] - m.resident_s[0]) * DEEPEST
            for n in range(200)
            for m in (machine("1", n, irregular=irregular),)
            for a, b in itertools.pairwise(m.resident_s)
        ]
        return statistics.stdev(rows)

    assert scatter(0.3) == pytest.approx(2.5 * scatter(0.12), rel=0.25)
