from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import Machine, arm, cells
from tuner.compare import Incomparable, Trap
from tuner.design import WorkloadPlan
from tuner.speed import (
    SpeedComparison,
    assumed_interval,
    compare_speeds,
    speed_interval,
)
from tuner.summary import ArmSummary, summarise
from tuner.types import Interval, Observation

MANY = cells((WorkloadPlan(name="code", prompts=4), WorkloadPlan(name="prose", prompts=4)))


def row(observations: tuple[Observation, ...] | list[Observation]) -> ArmSummary:
    (only,) = summarise(observations)
    return only


def compared(a: ArmSummary, b: ArmSummary, *, own_texts: bool = False) -> SpeedComparison:
    verdict = compare_speeds(a, b, own_texts=own_texts)
    assert isinstance(verdict, SpeedComparison)
    return verdict


def refused(a: ArmSummary, b: ArmSummary) -> Incomparable:
    verdict = compare_speeds(a, b)
    assert isinstance(verdict, Incomparable)
    return verdict


def scaled(observations: tuple[Observation, ...], factors: dict[int, float]) -> ArmSummary:
    """Faster by a factor per prompt."""
    return row(
        [
            dataclasses.replace(o, decode_s=o.decode_s / factors.get(o.prompt, 1.0))
            for o in observations
        ]
    )


def test_equal_texts_are_paired_by_prompt() -> None:
    machine = Machine()
    verdict = compared(row(machine.run(arm(2))), row(machine.run(arm(0))))
    assert verdict.paired
    assert verdict.cells == 4
    assert verdict.ratio == pytest.approx(machine.tps(2) / machine.tps(0), rel=0.01)
    assert verdict.interval is not None
    assert verdict.interval.low < verdict.ratio < verdict.interval.high
    assert verdict.faster
    assert not verdict.tie
    assert not verdict.slower


def test_the_comparison_turned_round_says_the_opposite() -> None:
    machine = Machine()
    verdict = compared(row(machine.run(arm(0))), row(machine.run(arm(2))))
    assert verdict.slower
    assert not verdict.faster


def test_less_than_2_percent_is_a_tie_however_sure() -> None:
    runs = Machine(wobble=0.0).run(arm(1))
    verdict = compared(scaled(runs, {0: 1.019, 1: 1.019}), row(runs))
    assert verdict.interval is not None
    assert verdict.interval.low > 1.0
    assert verdict.tie


def test_a_gain_on_one_prompt_and_a_loss_on_the_other_is_a_tie_however_large() -> None:
    runs = Machine(wobble=0.0).run(arm(1))
    verdict = compared(scaled(runs, {0: 1.5, 1: 0.8}), row(runs))
    assert verdict.ratio > 1.1
    assert verdict.tie


def test_with_one_prompt_per_workload_the_repetitions_tell_the_noise() -> None:
    one_each = cells((WorkloadPlan(name="code", prompts=1), WorkloadPlan(name="prose", prompts=1)))
    steady, shaky = Machine(wobble=0.001), Machine(wobble=0.05)
    sure = compared(row(steady.run(arm(2), one_each)), row(steady.run(arm(1), one_each)))
    unsure = compared(row(shaky.run(arm(2), one_each)), row(shaky.run(arm(1), one_each)))
    assert sure.interval is not None
    assert unsure.interval is not None
    assert sure.faster
    assert unsure.tie
    assert unsure.interval.high - unsure.interval.low > sure.interval.high - sure.interval.low


def test_a_single_run_has_no_interval_and_only_the_2_percent() -> None:
    once = cells((WorkloadPlan(name="code", prompts=1),), 1)
    verdict = compared(row(Machine().run(arm(2), once)), row(Machine().run(arm(1), once)))
    assert verdict.interval is None
    assert verdict.faster
    backwards = compared(row(Machine().run(arm(1), once)), row(Machine().run(arm(2), once)))
    assert backwards.slower


def test_other_texts_are_refused_below_8_prompts() -> None:
    machine = Machine(texts_differ=True)
    verdict = refused(row(machine.run(arm(2))), row(machine.run(arm(0))))
    assert verdict.trap is Trap.TEXT
    assert "different texts for 4 of 4 prompts" in verdict.sentence


def test_other_texts_over_8_prompts_are_compared_unpaired_with_a_wider_interval() -> None:
    other, same = Machine(texts_differ=True), Machine()
    unpaired = compared(row(other.run(arm(2), MANY)), row(other.run(arm(0), MANY)))
    paired = compared(row(same.run(arm(2), MANY)), row(same.run(arm(0), MANY)))
    assert not unpaired.paired
    assert unpaired.interval is not None
    assert paired.interval is not None
    assert unpaired.interval.low < paired.interval.low
    assert unpaired.faster


def test_eight_workloads_of_one_prompt_have_no_unpaired_interval() -> None:
    plan = tuple(WorkloadPlan(name=f"w{n}", prompts=1) for n in range(8))
    machine = Machine(texts_differ=True)
    verdict = compared(row(machine.run(arm(2), cells(plan))), row(machine.run(arm(0), cells(plan))))
    assert verdict.interval is None
    assert not verdict.paired


def test_the_few_other_texts_are_left_out_of_a_pairing() -> None:
    a = row(Machine().run(arm(2)))
    odd = [
        dataclasses.replace(o, digest="odd") if o.workload == "code" and not o.prompt else o
        for o in Machine().run(arm(0))
    ]
    verdict = compared(a, row(odd))
    assert verdict.paired
    assert verdict.cells == 3


def test_another_fingerprint_or_several_of_them_are_refused() -> None:
    mine = row(Machine().run(arm(2)))
    assert refused(mine, row(Machine(fingerprint="g").run(arm(0)))).trap is Trap.FINGERPRINT
    mixed = row([*Machine().run(arm(0)), *Machine(fingerprint="g").run(arm(0))])
    assert refused(mixed, mixed).trap is Trap.FINGERPRINT


def test_no_common_prompt_is_refused() -> None:
    a, b = row(Machine().run(arm(2), cells()[:3])), row(Machine().run(arm(0), cells()[3:6]))
    assert refused(a, b).trap is Trap.CELLS


def test_repetitions_with_other_texts_do_not_pair() -> None:
    unsteady = [
        dataclasses.replace(o, digest=f"{o.digest}{o.repetition}") for o in Machine().run(arm(2))
    ]
    assert refused(row(unsteady), row(Machine().run(arm(0)))).trap is Trap.TEXT
    assert refused(row(Machine().run(arm(0))), row(unsteady)).trap is Trap.TEXT


def test_different_models_are_paired_by_prompt_whatever_their_texts_and_fingerprints() -> None:
    a = row(Machine().run(arm(2)))
    b = row(Machine(fingerprint="g", raw_tps=20.0).run(arm(2, "other")))
    verdict = compared(a, b, own_texts=True)
    assert verdict.cells == 4
    assert verdict.faster


def test_the_interval_of_a_speed_comes_from_prompts_or_is_assumed() -> None:
    measured = row(Machine().run(arm(2)))
    interval = speed_interval(measured)
    assert interval is not None
    assert interval.low < interval.mid < interval.high
    assert interval.mid == measured.tps
    once = row(Machine().run(arm(2), cells((WorkloadPlan(name="code", prompts=1),))))
    assert once.tps is not None
    assert speed_interval(once) == assumed_interval(once.tps)
    assert speed_interval(dataclasses.replace(once, tps=None)) is None


def test_an_interval_that_touches_1_is_a_tie() -> None:
    touching = Interval(low=1.0, mid=1.1, high=1.2)
    assert SpeedComparison(ratio=1.1, interval=touching, cells=4, paired=True).tie
