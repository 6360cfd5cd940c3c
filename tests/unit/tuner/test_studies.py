"""The figures of the two studies, cited by table and cell."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import arm
from tests.unit.tuner.study_000 import RAW_TPS, RESIDENT, ROW_COST, implied_row_cost
from tuner.acceptance import expected_tokens
from tuner.design import Elimination, History, ModelBased, Stop, Sweep, WorkloadPlan
from tuner.memory import QWEN35_27B, feasible, rs_mib
from tuner.select import choose_depth, summarise
from tuner.throughput import (
    forecast_ratios,
    measured_over_forecast,
    monotone_bound_tps,
    predict_tps,
)
from tuner.types import Act, Evicted, Interval, Observation, Resident

NOTE_002 = {
    2: {"short": 55.4, "prose": 47.2, "code": 54.7, "16k": 47.4},
    3: {"short": 30.1, "prose": 28.9, "code": 35.1, "16k": 29.9},
    4: {"short": 25.8, "prose": 20.7, "code": 26.3, "16k": 18.3},
    5: {"short": 18.6, "prose": 15.0, "code": 22.3, "16k": 13.3},
}
"""Note 002, "The depth sweep": decode tok/s by --spec-draft-n-max, one prompt per workload."""


def note_002(*depths: int, resident: bool = False) -> tuple[Observation, ...]:
    """The note's table: "the n=2 row is the only row where the model still fits"."""
    return tuple(
        Observation(
            arm=arm(depth, "qwen3.6-27b"),
            workload=workload,
            prompt=0,
            repetition=0,
            start_id=str(depth),
            fingerprint="note-002",
            tokens=201,
            decode_s=200 / tps,
            steps=None,
            drafted=None,
            accepted=None,
            accepted_per_position=None,
            digest=workload,
            residency=Resident() if depth == 2 or resident else Evicted(layers=1),
        )
        for depth in depths
        for workload, tps in NOTE_002[depth].items()
    )


def points(*alphas: float) -> list[Interval]:
    return [Interval(low=a, mid=a, high=a) for a in alphas]


def test_the_row_cost_follows_from_the_resident_cells_of_study_000() -> None:
    """ "The measurement matrix", 3.6 B2, 3.8 base B2, 3.8 Uncensored B2."""
    each = [implied_row_cost(RAW_TPS, c.alphas, c.tps) for c in RESIDENT]
    assert each == pytest.approx([0.4055, 0.4216, 0.4071], abs=1e-4)
    assert pytest.approx(0.4114, abs=1e-4) == ROW_COST


def test_two_resident_cells_predict_the_third_within_2_percent() -> None:
    for left_out in RESIDENT:
        others = [c for c in RESIDENT if c is not left_out]
        c = sum(implied_row_cost(RAW_TPS, o.alphas, o.tps) for o in others) / 2
        predicted = predict_tps(left_out.alphas, 1 / RAW_TPS, c)
        assert predicted == pytest.approx(left_out.tps, rel=0.02)


def test_the_25_percent_that_study_000_prints_misses_its_own_cells_by_a_fifth() -> None:
    for cell in RESIDENT:
        assert predict_tps(cell.alphas, 1 / RAW_TPS, 0.25) > 1.19 * cell.tps


def test_the_cells_above_the_residency_threshold_fall_short_of_the_forecast() -> None:
    """ "The measurement matrix": 3.8 base Q4_0 (38.0) lies 16 % under, i1-Q4_0 (42.0) 7 %."""
    base, imatrix = (
        measured_over_forecast(tps, predict_tps(a, 1 / RAW_TPS, ROW_COST))
        for tps, a in ((38.0, (0.881, 0.761)), (42.0, (0.886, 0.736)))
    )
    assert base == pytest.approx(0.838, abs=1e-3)
    assert imatrix == pytest.approx(0.932, abs=2e-3)


def test_depth_3_of_the_38_head_is_bounded_below_depth_2_but_that_of_the_36_head_is_not() -> None:
    raw = 1 / RAW_TPS
    assert monotone_bound_tps((0.93, 0.74), raw, 0.41, 3) < predict_tps((0.93, 0.74), raw, 0.41)
    assert monotone_bound_tps((0.961, 0.885), raw, 0.41, 3) > predict_tps((0.961, 0.885), raw, 0.41)


def test_the_forecast_for_the_study_card_is_a_ratio_to_depth_0() -> None:
    """E / (1 + 0.41 k) of (.93, .74, .74): 1, 1.369, 1.439, 1.402 (TUNER 3.3 over 32.4)."""
    ratios = forecast_ratios(points(0.93, 0.74, 0.74), 0.41)
    assert [r.depth for r in ratios] == [0, 1, 2, 3]
    assert [r.ratio.mid * RAW_TPS for r in ratios] == pytest.approx(
        [32.4, 44.35, 46.61, 45.44], abs=0.01
    )
    assert str(ratios[2]) == "depth 2: 1.44x depth 0 (forecast)"


def test_note_002_ends_at_depth_2_and_the_deeper_ones_do_not_fit() -> None:
    decision = choose_depth(summarise(note_002(2, 3, 4, 5)))
    assert decision.act is Act.CHOOSE
    assert decision.arm == arm(2, "qwen3.6-27b")
    assert decision.predicted is not None
    assert decision.predicted.mid == pytest.approx(51.175)
    for depth in (3, 4, 5):
        assert f"depth {depth} does not fit (1 layer on the CPU)" in decision.reason
    assert "does not pay" not in decision.reason


def test_note_002_without_its_eviction_evidence_would_call_depth_3_slower_and_not_too_big() -> None:
    decision = choose_depth(summarise(note_002(2, 3, 4, 5, resident=True)))
    assert decision.arm == arm(2, "qwen3.6-27b")
    assert "beats depth 3 (1.65x)" in decision.reason
    assert "fit" not in decision.reason


@pytest.mark.parametrize("kind", [Sweep, ModelBased])
def test_note_002_needs_no_measurement_below_an_evicted_depth(
    kind: type[Sweep | ModelBased],
) -> None:
    design = kind(
        arms=tuple(arm(depth, "qwen3.6-27b") for depth in (2, 3, 4, 5)),
        workloads=tuple(WorkloadPlan(name=name, prompts=1) for name in NOTE_002[2]),
        repetitions=1,
    )
    answer = design.ask(History(observations=note_002(2, 3)))
    assert isinstance(answer, Stop)
    assert [(r.arm.depth, r.verdict) for r in answer.rejected] == [
        (depth, Elimination.DOES_NOT_FIT) for depth in (3, 4, 5)
    ]


def test_the_recurrent_rows_of_the_27b_are_those_measured_on_a_real_gpu() -> None:
    """real_gpu_27b.md, "What follows", 3: 299.25 MiB times (1 + depth) at two slots."""
    assert rs_mib(QWEN35_27B, slots=2, depth=0) == 299.25
    assert rs_mib(QWEN35_27B, slots=2, depth=5) == 6 * 299.25


def test_one_slot_less_buys_a_deeper_draft() -> None:
    """real_gpu_27b.md, table: 16 GiB holds depth 1 but not 2 with 2 slots, 3 with one.

    Printed sums at two slots: 14324 MiB at depth 0, 15161 at depth 1 of which 598.5 are
    recurrent rows; the default margin of 1024 MiB is kept free.
    """
    plan = {
        "geometry": QWEN35_27B,
        "rest_mib": 14324 - 299.25,
        "drafter_mib": 15161 - 14324 - 299.25,
        "free_mib": 16384 - 1024 - 54.0,
    }

    def deepest(slots: int) -> int:
        rows = feasible((0, 1, 2, 3, 4, 5), slots=slots, **plan)  # type: ignore[arg-type]  # mixed dict
        return max(row.depth for row in rows if row.fits)

    assert deepest(2) == 1
    assert deepest(1) >= 3


def test_expected_tokens_of_the_study_text() -> None:
    """ "Why the second stage decides": alpha 0.93 and 0.74."""
    assert expected_tokens((0.93, 0.74)) == pytest.approx(2.6182)


def test_acceptance_before_and_after_requantization_is_not_compared() -> None:
    """Trap 1: 88.6 % before and 90.7 % after; the text had changed."""
    before = note_002(2)
    after = [dataclasses.replace(o, digest=f"{o.digest}!", arm=arm(3)) for o in note_002(2)]
    same = [dataclasses.replace(o, arm=arm(2)) for o in before]
    decision = choose_depth(summarise([*same, *after]), arm(2))
    assert decision.act is Act.KEEP
    assert "cannot be compared with depth 3 (other text)" in decision.reason
