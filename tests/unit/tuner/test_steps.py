from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tuner.machine import arm
from tuner.cost import RowCost
from tuner.steps import START_SD, StepTimes, step_times
from tuner.timing import LogTime, StartTimes
from tuner.types import Arm, Drafter

FLAT = RowCost(c=0.4, sd=50.0, source="nothing known")


def steady(depth: int, step_s: float, *, sd: float = 0.008, start_id: str = "1") -> StartTimes:
    return StartTimes(
        arm=arm(depth), start_id=start_id, steady=(("w", LogTime(math.log(step_s), sd, 12)),)
    )


def engine(
    depth: int,
    *,
    rows: tuple[float, ...] = (0.4, 0.4, 0.4),
    draft: float = 0.07,
    offset: float = 0.0,
    bias: float = 0.0,
    tilt: float = 0.0,
    once: float = 0.0,
    catch_up: float = 0.035,
    sd: float = 0.004,
) -> StartTimes:
    """An engine whose step at depth j takes 1 + catch_up + rows[0] + ... + rows[j - 1]."""

    def log(value: float) -> LogTime:
        return LogTime(math.log(value) + offset, sd, 24)

    def short(count: int) -> LogTime:
        value = 1 + catch_up + sum(rows[:count]) + (draft * (depth - count) + once if count else 0)
        time = log(value)
        wrong = bias + (tilt if count < depth else 0.0)
        return LogTime(time.value + wrong, time.sd, time.count)

    return StartTimes(
        arm=arm(depth),
        start_id=f"{offset}",
        steady=(("w", log(1 + catch_up + sum(rows[:depth]))),),
        short=tuple((count, short(count)) for count in range(depth + 1)),
    )


def log_ratio(known: StepTimes, i: int, j: int) -> tuple[float, float]:
    c = known.covariance
    return known.mean[i] - known.mean[j], math.sqrt(c[i][i] + c[j][j] - 2 * c[i][j])


def test_two_steady_starts_give_their_ratio_with_the_noise_of_both() -> None:
    """By hand: the noise of each is hypot(0.8 %, 1 % of a start)."""
    known = step_times([steady(0, 0.03), steady(2, 0.054)], 2, FLAT)
    mean, sd = log_ratio(known, 2, 0)
    assert mean == pytest.approx(math.log(1.8), abs=1e-3)
    assert sd == pytest.approx(math.sqrt(2) * math.hypot(0.008, START_SD), rel=0.02)
    assert math.exp(known.mean[0]) == pytest.approx(0.03, rel=1e-3)
    assert known.row_cost == pytest.approx(0.4, abs=0.01)


def test_one_steady_start_leaves_the_row_cost_to_the_prior() -> None:
    known = step_times([steady(2, 0.0528)], 3)
    mean, sd = log_ratio(known, 2, 0)
    draft = 0.175 * 0.38
    catch_up = 0.5 * draft
    factor = 1 + catch_up + 2 * 0.38
    spread = math.hypot(
        (2 + 0.5 * 0.175) * 0.12,
        math.sqrt(2) * 0.15 * 0.38,
        math.hypot(0.5 * draft, 0.03),
        0.5 * 0.08 * 0.38,
    )
    assert mean == pytest.approx(math.log(factor), abs=1e-5)
    assert sd == pytest.approx(spread / factor, rel=1e-3)
    assert known.row_cost == pytest.approx(0.38 + catch_up / 3, abs=1e-5)
    borrowed = step_times([steady(2, 0.0528)], 3, RowCost(c=0.5, sd=0.01, source="this card"))
    assert log_ratio(borrowed, 2, 0)[0] == pytest.approx(math.log(2.0 + 0.25 * 0.175), abs=1e-5)
    assert log_ratio(borrowed, 2, 0)[1] < sd


def test_short_steps_show_the_row_cost_within_one_start() -> None:
    one = step_times([engine(2)], 2)
    assert log_ratio(one, 2, 0)[0] == pytest.approx(math.log(1.835), abs=0.005)
    mean, sd = log_ratio(one, 2, 1)
    assert mean == pytest.approx(math.log(1.835 / 1.435), abs=0.005)
    assert sd < 0.7 * log_ratio(step_times([steady(2, 1.8)], 2), 2, 1)[1]


def test_what_a_draft_token_costs_is_settled_by_an_engine_of_another_depth() -> None:
    """In one engine a dear draft and a dear first row look alike."""
    dear = {"rows": (0.40, 0.40, 0.40), "draft": 0.13}
    alone = step_times([engine(2, **dear)], 2)  # type: ignore[arg-type]  # mixed dict
    both = step_times([engine(1, **dear), engine(2, **dear)], 2)  # type: ignore[arg-type]
    truth = math.log(1.835 / 1.435)
    wrong = abs(log_ratio(alone, 2, 1)[0] - truth)
    assert wrong < 2 * log_ratio(alone, 2, 1)[1]
    assert abs(log_ratio(both, 2, 1)[0] - truth) < wrong
    assert log_ratio(both, 2, 1)[1] < log_ratio(alone, 2, 1)[1]


@pytest.mark.parametrize("once", [0.03, 0.1, 0.7])
def test_what_a_new_batch_shape_costs_cancels(once: float) -> None:
    """The embedded engine: a step with rows, timed alone, takes 0.7 of a plain step longer."""
    fair, dear = (step_times([engine(2, once=x)], 2) for x in (0.0, once))
    for i, j in ((2, 0), (2, 1)):
        assert log_ratio(dear, i, j)[0] == pytest.approx(log_ratio(fair, i, j)[0], abs=0.004)


@pytest.mark.parametrize("bias", [-0.02, 0.02])
def test_of_a_bias_of_all_short_steps_less_than_half_reaches_a_neighbour(bias: float) -> None:
    """It looks like the cost of a new batch shape, but for the plain step."""
    fair, biased = (step_times([engine(2, bias=b)], 2) for b in (0.0, bias))
    moved = log_ratio(biased, 2, 1)[0] - log_ratio(fair, 2, 1)[0]
    assert abs(moved) < 0.45 * abs(bias)


def test_a_bias_that_spares_the_full_depth_is_seen_by_a_second_start() -> None:
    one = [engine(2, tilt=0.02)]
    two = [engine(1, tilt=0.02), *one]
    truth = math.log(1.835 / 1.435)
    alone, both = (abs(log_ratio(step_times(s, 2), 2, 1)[0] - truth) for s in (one, two))
    assert both < 0.6 * alone


def test_an_offset_of_a_start_does_not_move_the_ratios_within_it() -> None:
    for offset in (-0.03, 0.03):
        moved = log_ratio(step_times([engine(2, offset=offset)], 2), 2, 1)
        assert moved[0] == pytest.approx(log_ratio(step_times([engine(2)], 2), 2, 1)[0], abs=1e-6)


def test_an_offset_that_is_left_free_is_found() -> None:
    starts = [engine(1), engine(2, offset=math.log(1.9))]
    known = step_times(starts, 2, offset_sd=[START_SD, 1.0])
    mean, sd = known.offsets[1]
    assert math.exp(mean) == pytest.approx(1.9, rel=0.02)
    assert sd < 0.05
    assert known.offsets[0][1] <= START_SD


def test_what_the_head_does_in_a_plain_step_is_told_by_a_start_at_depth_0() -> None:
    """The toy model of the embedded engine: its plain step takes 23 % longer than depth 0."""
    alone = step_times([engine(2, catch_up=0.23)], 2)
    both = step_times([engine(0, catch_up=0.0), engine(2, catch_up=0.23)], 2)
    truth = math.log(2.03)
    assert log_ratio(alone, 2, 0)[0] < truth - 0.05, "one start cannot tell"
    assert log_ratio(alone, 2, 0)[1] > 0.045, "and knows that it cannot"
    assert log_ratio(both, 2, 0)[0] == pytest.approx(truth, abs=0.02)


def test_every_workload_has_its_own_factor() -> None:
    def start(depth: int, step_s: float) -> StartTimes:
        long = LogTime(math.log(step_s * 1.2), 0.004, 12)
        short = LogTime(math.log(step_s), 0.004, 12)
        return StartTimes(arm=arm(depth), start_id="1", steady=(("long", long), ("short", short)))

    known = step_times([start(0, 0.03), start(1, 0.042)], 1, FLAT)
    factors = dict(known.workloads)
    assert factors["long"] / factors["short"] == pytest.approx(1.2, rel=1e-3)
    assert factors["long"] * factors["short"] == pytest.approx(1.0, rel=1e-3)
    assert math.exp(known.mean[1] - known.mean[0]) == pytest.approx(1.4, rel=1e-3)


def test_a_workload_that_one_start_lacks_does_not_make_it_look_faster() -> None:
    long = ("long", LogTime(math.log(0.04), 0.004, 3))
    short = ("short", LogTime(math.log(0.02), 0.004, 3))
    whole = StartTimes(arm=arm(0), start_id="1", steady=(long, short))
    part = StartTimes(
        arm=arm(1), start_id="2", steady=(("short", LogTime(math.log(0.028), 0.004, 3)),)
    )
    assert log_ratio(step_times([whole, part], 1, FLAT), 1, 0)[0] == pytest.approx(
        math.log(1.4), abs=0.005
    )


def test_depth_0_alone_has_a_step_time_and_a_borrowed_row_cost() -> None:
    known = step_times([steady(0, 0.03)], 0)
    assert known.mean == pytest.approx((math.log(0.03),), abs=1e-6)
    assert (known.row_cost, known.row_cost_sd) == pytest.approx((0.38, 0.12))


def test_rows_that_cost_nothing_or_seem_to_earn_time_break_nothing() -> None:
    for step_s in (1.0, 0.6, 0.05):
        known = step_times([steady(0, 1.0), steady(3, step_s)], 3)
        assert all(map(math.isfinite, known.mean))
        assert known.row_cost < 0.38


DEPTHS = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(DEPTHS, st.floats(0.1, 0.9), st.floats(0.0, 0.3), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_starts_plays_no_role_and_more_of_them_never_widen(
    depths: list[int], row: float, share: float, rng: object
) -> None:
    starts = [engine(d, rows=(row,) * 3, draft=row * share, offset=0.001 * d) for d in depths]
    shuffled = list(starts)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands a random.Random
    known, turned = step_times(starts, 3), step_times(shuffled, 3)
    assert turned.mean == pytest.approx(known.mean, abs=1e-5)
    more = step_times([*starts, engine(2, rows=(row,) * 3, draft=row * share)], 3)
    for i in range(4):
        for j in range(i):
            assert log_ratio(more, i, j)[1] <= log_ratio(known, i, j)[1] * 1.02


H200 = {
    0: (12.46, ()),
    1: (17.35, (12.8, 21.5)),
    2: (21.70, (13.07, 22.49, 26.90)),
    3: (25.25, (13.02, 25.61, 29.12, 32.38)),
}
"""A 27B on an H200: ms of a steady step, and of short steps by rows, per depth."""


def measured(depth: int) -> StartTimes:
    steady_ms, short_ms = H200[depth]
    short = tuple((r, LogTime(math.log(ms), 0.006, 24)) for r, ms in enumerate(short_ms))
    time = LogTime(math.log(steady_ms), 0.006, 4)
    return StartTimes(arm=arm(depth), start_id="h200", steady=(("w", time),), short=short)


@pytest.mark.parametrize(("depth", "within"), [(1, 0.055), (2, 0.035), (3, 0.025)])
def test_one_start_on_a_real_card_tells_all_depths_within_its_own_error(
    depth: int, within: float
) -> None:
    """Reconstructed without the rebuilt graph the same times are off by 20 to 58 %."""
    known = step_times([measured(depth)], 3)
    for other in range(4):
        error = known.mean[other] - math.log(H200[other][0])
        assert abs(error) < within
        assert abs(error) < 2 * math.sqrt(known.covariance[other][other])


def test_a_drafter_that_stops_at_the_limit_drafts_no_more_than_it_verifies() -> None:
    """A draft model stops early; an MTP head drafts to the end and is cut (TUNER.md 2.3)."""
    rows = (0.4, 0.4)
    early = engine(2, rows=rows, draft=0.0)
    model = dataclasses.replace(early, arm=Arm(profile="m", drafter=Drafter.DRAFT_MODEL, depth=2))
    mtp, other = (log_ratio(step_times([one], 2), 2, 1)[0] for one in (early, model))
    truth = math.log(1.835 / 1.435)
    assert abs(other - truth) < 0.004 < abs(mtp - truth)


def test_a_row_that_costs_nothing_is_a_row_cost_like_any_other() -> None:
    free = RowCost(c=0.0, sd=0.0, source="this card")
    known = step_times([steady(2, 0.03)], 2, free)
    assert known.mean[2] == pytest.approx(math.log(0.03), abs=0.01)
    assert abs(known.row_cost) < 0.02


def test_times_that_the_model_of_a_step_does_not_describe_are_a_strain() -> None:
    assert step_times([engine(3)], 3).strain < 0.2
    whole = engine(3)
    swapped = tuple(
        (rows, LogTime(time.value + wrong, time.sd, time.count))
        for (rows, time), wrong in zip(whole.short, (0.0, 0.3, -0.3, 0.3), strict=True)
    )
    assert step_times([dataclasses.replace(whole, short=swapped)], 3).strain > 1


def test_the_row_cost_is_that_of_the_step_times_and_never_less_than_nothing_is_left() -> None:
    fast = [steady(0, 10.0), steady(4, 0.001, start_id="2")]
    known = step_times(fast, 4)
    assert known.row_cost == pytest.approx(math.expm1(known.mean[4] - known.mean[0]) / 4)
    assert known.row_cost > -0.25
    assert known.row_cost_sd > 0
