"""What a probe says, with study 000's acceptances and the row cost fitted to its cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tests.unit.tuner.study_000 import RAW_TPS
from tuner.acceptance import PositionCounts, expected_tokens
from tuner.probe import probe_decision
from tuner.summary import ArmSummary
from tuner.types import Act, Arm, Evicted, Interval, Residency, Resident, Spilled, Unknown

STEPS = 10_000
ROW_COST = 0.41
BASE_S = 1 / RAW_TPS


def row(
    alphas: tuple[float, ...],
    *,
    c: float = ROW_COST,
    residency: Residency = Resident(),  # noqa: B008  # frozen
) -> ArmSummary:
    """The row of a depth at which these are the true conditional acceptances."""
    depth = len(alphas)
    step = BASE_S * (1 + c * depth)
    kept, accepted = float(STEPS), list[int]()
    for alpha in alphas:
        kept *= alpha
        accepted.append(round(kept))
    expected = expected_tokens(alphas)
    return ArmSummary(
        arm=arm(depth),
        residency=residency,
        fingerprint="study-000",
        tps=expected / step,
        expected=expected,
        alphas=tuple(Interval(low=a, mid=a, high=a) for a in alphas),
        counts=PositionCounts(steps=STEPS, accepted=tuple(accepted)),
        step_s=step,
        used=3,
    )


BASE = row(())


def said(alphas: tuple[float, ...], *, c: float = ROW_COST) -> str:
    return probe_decision([BASE, row(alphas, c=c)], subject="m").reason


# Study 000, "The measurement matrix", columns alpha_1 and alpha_2; the gain over depth 1 is
# (1 + a1 + a1 a2) / (1 + a1) * (1 + c) / (1 + 2 c) - 1.
@pytest.mark.parametrize(
    ("alphas", "gain"),
    [((0.961, 0.885), "+11.1%"), ((0.932, 0.735), "+4.9%"), ((0.907, 0.725), "+4.2%")],
    ids=["3.6 B2", "3.8 base B2", "3.8 Uncensored B2"],
)
def test_the_studys_resident_models_pay_for_a_second_position(
    alphas: tuple[float, ...], gain: str
) -> None:
    first, second = alphas
    assert said(alphas) == (
        f"depth 2 pays: yes ({gain} against depth 1): alpha1 {first:.2f}, alpha2 {second:.2f}, "
        "a verification row costs 0.41 of a step by the mean step times of both depths"
    )


BALANCE = (
    "depth 2: 2.81 [2.80, 2.82] tokens per step for 1.82 [1.82, 1.82] plain steps is 1.54 "
    "[1.54, 1.55] times the speed (error of the cost not known); measured 1.54 (+0.0%)"
)


def test_the_evidence_names_each_depth_and_what_was_only_predicted() -> None:
    decision = probe_decision([BASE, row((0.961, 0.885))], subject="m")
    assert decision.evidence == (
        "depth 0: 32.4 tok/s",
        "depth 1: 45.1 tok/s (predicted)",
        "depth 2: 50.1 tok/s",
        BALANCE,
    )
    assert (decision.act, decision.subject, decision.arm) == (Act.MEASURE, "m", arm(2))


def test_a_second_position_that_is_rarely_kept_does_not_pay() -> None:
    # An unchained head at the study's cost: alpha2 of 0.30 is far below the break-even.
    assert said((0.93, 0.30)).startswith("depth 2 pays: no (-11.3% against depth 1)")


def test_where_a_row_costs_more_than_a_step_nothing_pays_against_depth_zero() -> None:
    assert said((0.9, 0.8), c=1.2).startswith("depth 2 pays: no (-22.9% against depth 0)")


@pytest.mark.parametrize("second", [0.58, 0.60, 0.62, 0.64])
def test_within_two_percent_it_is_too_close_to_call(second: float) -> None:
    # The break-even alpha2 at alpha1 0.932 is 1.932 * 0.41 / (1.41 * 0.932) = 0.603.
    assert "depth 2 pays: too close to call (" in said((0.932, second))


@pytest.mark.parametrize(
    ("second", "verdict"), [(0.54, "no"), (0.602, "too close to call"), (0.68, "yes")]
)
def test_the_verdict_turns_around_the_break_even(second: float, verdict: str) -> None:
    assert said((0.932, second)).startswith(f"depth 2 pays: {verdict} (")


def test_a_probe_of_depth_three_is_held_against_the_best_shallower_depth() -> None:
    reason = said((0.961, 0.885, 0.3))
    assert reason.startswith("depth 3 pays: no (")
    assert "against depth 2)" in reason
    assert "alpha3 0.30" in reason


def test_the_order_of_the_rows_plays_no_role() -> None:
    rows = [BASE, row((0.961, 0.885))]
    assert probe_decision(rows[::-1], subject="m") == probe_decision(rows, subject="m")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "no depth above 0 was probed"),
        ([BASE], "no depth above 0 was probed"),
        (
            [BASE, row((0.9, 0.8), residency=Evicted(layers=2))],
            "the probe cannot be used: depth 2 does not fit (2 layers on the CPU)",
        ),
        (
            [replace(BASE, residency=Spilled(1)), row((0.9, 0.8))],
            "the probe cannot be used: depth 0 does not fit (device memory spilled to the host)",
        ),
        (
            [BASE, row((0.9, 0.8), residency=Unknown("no log was read"))],
            "the probe cannot be used: depth 2 is not proven to be resident (no log was read)",
        ),
        (
            [BASE, ArmSummary(arm=arm(2), residency=Unknown("x"), failure="it was killed")],
            "the probe cannot be used: depth 2 did not start (it was killed)",
        ),
        (
            [BASE, replace(row((0.9, 0.8)), tps=None)],
            "the probe cannot be used: depth 2 was not measured",
        ),
        (
            [BASE, replace(row((0.9, 0.8)), fingerprint=None)],
            "the probe cannot be used: depth 2 was measured under several fingerprints",
        ),
        (
            [BASE, replace(row((0.9, 0.8)), expected=None)],
            "the tokens per step are not known",
        ),
        (
            [replace(BASE, step_s=None), row((0.9, 0.8))],
            "the row cost is not known (the row cost needs step times at two depths)",
        ),
    ],
    ids=[
        *("nothing", "depth 0 only", "evicted", "spilled", "unproven", "not started"),
        *("not measured", "fingerprints", "no tokens per step", "no step time"),
    ],
)
def test_what_cannot_be_used_leaves_the_verdict_unknown(rows: list[ArmSummary], why: str) -> None:
    decision = probe_decision(rows, subject="m")
    assert decision.reason == f"whether a deeper draft pays is unknown: {why}"
    assert decision.act is Act.MEASURE
    assert decision.evidence == ()
    assert decision.arm == (rows[-1].arm if rows else None)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(tuple),
    st.floats(0.0, 2.0, allow_subnormal=False),
)
def test_the_verdict_is_that_of_the_true_speeds(alphas: tuple[float, ...], c: float) -> None:
    speeds = [expected_tokens(alphas[:k]) / (1 + c * k) for k in range(len(alphas) + 1)]
    gain = speeds[-1] / max(speeds[:-1]) - 1
    verdict = probe_decision([BASE, row(alphas, c=c)], subject="m").reason
    # Whatever is within rounding of a limit may fall on either side of it.
    if abs(abs(gain) - 0.02) < 1e-6:
        return
    expected = "too close to call" if abs(gain) < 0.02 else "yes" if gain > 0 else "no"
    assert verdict.startswith(f"depth {len(alphas)} pays: {expected} (")


NO_POSITIONS = Unknown("the build does not count positions")
CUT_SHORT = (
    "only 97.0% of the draft tokens of full drafts were made, and position counters need 98%"
)


@pytest.mark.parametrize(
    ("deep", "why"),
    [
        (replace(row((0.9, 0.8)), alphas=NO_POSITIONS, counts=NO_POSITIONS), NO_POSITIONS.reason),
        (
            replace(
                row((0.9, 0.8)),
                counts=PositionCounts(steps=STEPS, accepted=(9000, 7200), cut=600),
            ),
            CUT_SHORT,
        ),
    ],
    ids=["no positions", "cut drafts"],
)
def test_without_trusted_positions_only_the_measured_depths_are_compared(
    deep: ArmSummary, why: str
) -> None:
    """E(2) = 2.62 over 1.82 plain steps; depth 1 would be 1.9 over 1.41, but who knows."""
    decision = probe_decision([BASE, deep], subject="m")
    assert decision.reason == (
        "depth 2 pays: yes (+44.0% against depth 0): 2.62 tokens per step, a verification row "
        "costs 0.41 of a step by the mean step times of both depths"
    )
    assert decision.evidence == (
        "depth 0: 32.4 tok/s",
        "depth 2: 46.6 tok/s",
        f"the depths between are not predicted: {why}",
    )


def test_a_probe_never_chooses() -> None:
    chosen: list[Arm | None] = [
        probe_decision([BASE, row(alphas)], subject="m").arm
        for alphas in ((0.961, 0.885), (0.93, 0.30))
    ]
    assert chosen == [arm(2), arm(2)]
