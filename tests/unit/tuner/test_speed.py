from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.tuner.machine import Machine, arm, cells
from tuner.compare import Incomparable, Trap
from tuner.design import WorkloadPlan
from tuner.speed import (
    SpeedComparison,
    assumed_interval,
    compare_speeds,
    ratio_text,
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


def test_a_few_equal_texts_do_not_speak_for_the_others() -> None:
    a = row(Machine().run(arm(2)))
    odd = [
        o if o.workload == "code" and not o.prompt else dataclasses.replace(o, digest="odd")
        for o in Machine().run(arm(0))
    ]
    assert "3 of 4 prompts" in refused(a, row(odd)).sentence


def test_the_paired_interval_is_that_computed_by_hand() -> None:
    """Two workloads of two prompts; log ratios of 0.1 +- d within each."""
    d = 0.03
    base = Machine(wobble=0.0).run(arm(1))
    moved = scaled(base, {0: math.exp(0.1 + d), 1: math.exp(0.1 - d)})
    verdict = compared(moved, row(base))
    assert verdict.interval is not None
    # s^2 = 4 d^2 / 2; variance of the mean = s^2 (1/2 + 1/2) / 2^2; t(df 2) = 4.3027
    half = 4.3027 * math.sqrt(2 * d * d / 4)
    assert math.log(verdict.interval.high) == pytest.approx(0.1 + half, abs=1e-4)
    assert math.log(verdict.interval.low) == pytest.approx(0.1 - half, abs=1e-4)


def test_the_unpaired_interval_is_that_computed_by_hand() -> None:
    """Four workloads of two prompts; each arm's log speeds +- d within each."""
    d = 0.03
    plan = tuple(WorkloadPlan(name=name, prompts=2) for name in "abcd")
    level = [
        dataclasses.replace(o, decode_s=o.decode_s * (1 + 0.01 * o.prompt))
        for o in Machine(wobble=0.0).run(arm(1), cells(plan))
    ]
    first = scaled(tuple(level), {0: math.exp(d), 1: math.exp(-d)})
    other = tuple(dataclasses.replace(o, digest="?") for o in level)
    verdict = compared(first, scaled(other, {0: math.exp(d), 1: math.exp(-d)}))
    assert not verdict.paired
    assert verdict.interval is not None
    # per arm s^2 = 8 d^2 / 4, variance = s^2 * 4 (1/2) / 4^2; both add; t(df 8) = 2.3060
    half = 2.3060 * math.sqrt(2 * (2 * d * d) * (4 / 2) / 16)
    assert math.log(verdict.interval.high) == pytest.approx(half, abs=1e-4)


def test_timing_noise_alone_gives_the_interval_computed_by_hand() -> None:
    """Two workloads of one prompt, three repetitions: +-d around the median, on both arms."""
    d = 0.02
    plan = cells((WorkloadPlan(name="code", prompts=1), WorkloadPlan(name="prose", prompts=1)))
    base = Machine(wobble=0.0).run(arm(1), plan)
    noisy = [
        dataclasses.replace(o, decode_s=o.decode_s * math.exp(d * (o.repetition - 1))) for o in base
    ]
    verdict = compared(row(noisy), row(noisy))
    assert verdict.interval is not None
    # s^2 = 4 * 2 d^2 / 8; a median costs pi / 2; variance = s^2 * (2 * 2/3) / 4; df = 8
    expected = 2.306 * math.sqrt(math.pi / 2 * d * d * (2 * 2 / 3) / 4)
    assert math.log(verdict.interval.high) == pytest.approx(expected, abs=1e-4)


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


def test_a_tie_that_only_the_noise_makes_says_what_is_possible() -> None:
    wide = Interval(low=0.7, mid=1.59, high=3.1)
    noisy = SpeedComparison(ratio=1.59, interval=wide, cells=4, paired=True)
    assert ratio_text(noisy) == "1.59x, but 0.70x to 3.10x is possible"
    near = Interval(low=0.99, mid=1.01, high=1.03)
    assert ratio_text(SpeedComparison(ratio=1.01, interval=near, cells=4, paired=True)) == "1.01x"
    clear = Interval(low=1.4, mid=1.59, high=1.8)
    assert ratio_text(SpeedComparison(ratio=1.59, interval=clear, cells=4, paired=True)) == "1.59x"
    bare = SpeedComparison(ratio=1.59, interval=None, cells=0, paired=False)
    assert ratio_text(bare) == "1.59x"
