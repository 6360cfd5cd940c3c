from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import UNKNOWN, Evicted, Host, Machine, Resident, arm, cells
from tuner.acceptance import PositionCounts
from tuner.summary import ArmSummary, Excluded, not_usable, summarise
from tuner.types import Observation, Spilled, Start, Unknown


def row(observations: tuple[Observation, ...] | list[Observation]) -> ArmSummary:
    (only,) = summarise(observations)
    return only


def test_the_speed_is_the_mean_over_workloads_of_the_mean_over_prompts_of_medians() -> None:
    speeds = {("a", 0): [10.0, 99.0, 11.0], ("a", 1): [13.0, 13.0, 13.0], ("b", 0): [40.0] * 3}
    template = Machine().run(arm(0))[0]
    observations = [
        dataclasses.replace(
            template,
            workload=workload,
            prompt=prompt,
            repetition=n,
            digest=f"{workload}{prompt}",
            decode_s=(template.tokens - 1) / tps,
        )
        for (workload, prompt), runs in speeds.items()
        for n, tps in enumerate(runs)
    ]
    summary = row(observations)
    assert dict(summary.workload_tps) == pytest.approx({"a": 12.0, "b": 40.0})
    assert summary.tps == pytest.approx(26.0)
    assert summary.outliers == 1
    assert summary.spread == pytest.approx(89.0 / 11.0)
    assert summary.cells[0].all_tps == pytest.approx((10.0, 11.0, 99.0))


def test_a_row_holds_acceptance_tokens_per_step_and_step_time() -> None:
    machine = Machine(wobble=0.0)
    summary = row(machine.run(arm(2)))
    assert summary.expected == pytest.approx(1 + (186 + 137) / 200)
    assert summary.counts == PositionCounts(steps=800, accepted=(744, 548))
    assert not isinstance(summary.alphas, Unknown)
    assert [a.mid for a in summary.alphas] == pytest.approx([0.93, 0.737], abs=0.01)
    assert summary.step_s == pytest.approx(1.82 / 32.4 * (1 + 1 / 1.01) / 2)
    assert summary.used == 12
    assert summary.same_text is None, "nothing to compare with"


def test_depth_0_makes_one_token_per_step_and_has_no_alphas() -> None:
    summary = row(Machine().run(arm(0)))
    assert summary.expected == 1.0
    assert summary.alphas == ()


def test_what_a_build_does_not_expose_stays_unknown() -> None:
    bare = [dataclasses.replace(o, accepted=None) for o in Machine(positions=False).run(arm(2))]
    summary = row(bare)
    assert summary.tps is not None
    assert summary.expected is None
    assert summary.step_s is None
    assert summary.alphas == Unknown("the build does not count positions")


def test_more_accepted_than_generated_tokens_are_no_steps() -> None:
    absurd = [dataclasses.replace(o, accepted=o.tokens) for o in Machine().run(arm(1))]
    assert row(absurd).expected is None


def test_what_was_left_out_is_counted_by_reason() -> None:
    good, *rest = Machine().run(arm(1))[:4]
    hot = [dataclasses.replace(o, excluded="edge 61 C") for o in rest[:2]]
    short = dataclasses.replace(rest[2], tokens=1)
    untimed = dataclasses.replace(good, decode_s=0.0)
    summary = row([good, *hot, short, untimed])
    assert summary.used == 1
    assert summary.excluded == (
        Excluded(reason="edge 61 C", count=2),
        Excluded(reason="fewer than two tokens were generated", count=1),
        Excluded(reason="the engine reported no decode time", count=1),
    )
    assert not_usable(good) is None


def test_an_arm_with_nothing_usable_keeps_a_row_without_a_speed() -> None:
    summary = row([dataclasses.replace(o, excluded="hot") for o in Machine().run(arm(1))])
    assert summary.tps is None
    assert summary.counts == Unknown("nothing was measured")
    assert summary.used == 0


def test_one_evicted_start_is_enough_even_if_it_was_left_out() -> None:
    good = Machine().run(arm(2))
    bad = dataclasses.replace(good[0], residency=Evicted(layers=3), excluded="evicted")
    assert row([*good, bad]).residency == Evicted(layers=3)
    assert row([*good, dataclasses.replace(bad, residency=Spilled(None))]).residency == Spilled(
        None
    )


def test_an_unknown_verdict_counts_where_it_is_relied_on() -> None:
    good = Machine().run(arm(2))
    doubtful = dataclasses.replace(good[0], residency=UNKNOWN)
    assert row([*good, doubtful]).residency == UNKNOWN
    assert row([*good, dataclasses.replace(doubtful, excluded="died")]).residency == Resident()
    assert row([dataclasses.replace(doubtful, excluded="died")]).residency == UNKNOWN
    assert row(Machine(residency=Host()).run(arm(2))).residency == Host()


def test_a_start_that_measured_nothing_keeps_its_row_and_its_reason() -> None:
    failed = Start(arm=arm(3), start_id="x", residency=UNKNOWN, failure="out of memory")
    again = dataclasses.replace(failed, start_id="y", failure=None, residency=Evicted(layers=2))
    measured, broken = summarise(Machine().run(arm(2)), [failed, again])
    assert measured.arm == arm(2)
    assert measured.failure is None
    assert broken.failure == "out of memory"
    assert broken.residency == Evicted(layers=2)
    (recovered,) = summarise(Machine().run(arm(3)), [failed])
    assert recovered.failure is None, "a later start of the arm did measure"


def test_texts_are_held_against_the_shallowest_other_depth() -> None:
    same = summarise(Machine().sweep(0, 1, 2))
    assert [r.same_text for r in same] == [True, True, True]
    other = summarise([*Machine().sweep(0, 1), *Machine(texts_differ=True).sweep(2)])
    assert [(r.arm.depth, r.same_text) for r in other] == [(0, True), (1, True), (2, False)]


def test_texts_that_change_between_repetitions_equal_none() -> None:
    first, *rest = Machine().run(arm(1))
    unsteady = [dataclasses.replace(first, digest="?"), *rest]
    deep = summarise([*Machine().run(arm(0)), *unsteady])[1]
    assert deep.cells[0].digest is None
    assert deep.same_text is False


def test_texts_of_other_prompts_say_nothing() -> None:
    one = Machine().run(arm(0), cells()[:3])
    other = Machine().run(arm(1), cells()[3:6])
    assert [r.same_text for r in summarise([*one, *other])] == [None, None]


def test_several_fingerprints_leave_none() -> None:
    mixed = [*Machine().run(arm(1)), *Machine(fingerprint="g").run(arm(1))]
    assert row(mixed).fingerprint is None
    assert row(Machine().run(arm(1))).fingerprint == "f"


def test_the_rows_do_not_depend_on_the_order_of_observations() -> None:
    observations = list(Machine().sweep(0, 1, 2, 3))
    assert summarise(reversed(observations)) == summarise(observations)
    assert summarise(observations[1::2] + observations[::2]) == summarise(observations)
