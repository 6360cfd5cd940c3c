"""Step time against rows, draft tokens and context, on machines whose costs are known."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest

from tests.unit.tuner.machine import arm
from tuner.cost import microprobe_cost
from tuner.least_squares import LinearFit, least_squares
from tuner.step_cost import (
    Estimate,
    LackOfFit,
    StepCost,
    StepTime,
    context_cost,
    fit_steps,
    short_step_costs,
)
from tuner.types import Interval, ShortStep, Unknown

PLAIN, ROW, DRAFT, TOKEN = 0.030, 0.010, 0.002, 2e-7


def true_s(rows: int, drafted: int, context: int, twist: float = 0.0) -> float:
    return PLAIN + rows * ROW + drafted * DRAFT + context * TOKEN + rows * context * twist


def noisy(seed: int, sd: float = 0.01, *, twist: float = 0.0, bend: float = 0.0) -> list[StepTime]:
    """Full and cut drafts of an engine at depth 3, at three contexts, four times each."""
    rng = random.Random(seed)  # noqa: S311 - noise of a simulation
    return [
        StepTime(
            rows=rows,
            drafted=3 if rows else 0,
            context_tokens=context,
            step_s=(true_s(rows, 3 if rows else 0, context, twist) + bend * (rows == 2))
            * (1 + rng.gauss(0, sd)),
        )
        for rows in (0, 1, 2, 3)
        for context in (100, 4000, 16000)
        for _ in range(4)
    ]


def fitted(times: list[StepTime]) -> StepCost:
    found = fit_steps(times)
    assert isinstance(found, StepCost)
    return found


def known(value: Estimate | Unknown) -> Estimate:
    assert isinstance(value, Estimate)
    return value


def lack(cost: StepCost) -> LackOfFit:
    assert isinstance(cost.lack, LackOfFit)
    return cost.lack


def shorts(depth: int, *times: tuple[int, float], context: int = 200) -> list[ShortStep]:
    return [
        ShortStep(
            arm=arm(depth),
            start_id="1",
            fingerprint="f",
            rows=rows,
            step_s=step_s,
            context_tokens=context,
        )
        for rows, step_s in times
    ]


def test_without_noise_every_cost_comes_out() -> None:
    cost = fitted(noisy(0, sd=0.0))
    assert cost.plain_s.value == pytest.approx(PLAIN)
    assert known(cost.row_s).value == pytest.approx(ROW)
    assert known(cost.draft_s).value == pytest.approx(DRAFT)
    assert cost.depth_s.value == pytest.approx(ROW + DRAFT)
    assert known(cost.token_s).value == pytest.approx(TOKEN)
    assert known(cost.step_s(5, 1000)).value == pytest.approx(true_s(5, 5, 1000))
    assert known(cost.relative(2, 0)).value == pytest.approx(1 + 2 * (ROW + DRAFT) / PLAIN)
    assert known(cost.row_cost(0)).value == pytest.approx((ROW + DRAFT) / PLAIN)
    assert known(cost.step_s(1)).value == pytest.approx(true_s(1, 1, 6700)), "the mean context"
    assert max(abs(r) for r in cost.residuals) < 1e-9


def test_the_standard_errors_are_those_of_repeated_fits() -> None:
    fits = [fitted(noisy(seed)) for seed in range(400)]
    for read in (
        lambda c: c.plain_s,
        lambda c: known(c.row_s),
        lambda c: known(c.draft_s),
        lambda c: known(c.token_s),
        lambda c: c.depth_s,
        lambda c: known(c.step_s(4, 8000)),
        lambda c: known(c.relative(2, 8000)),
        lambda c: known(c.row_cost(0)),
    ):
        found = [read(fit) for fit in fits]
        printed = statistics.fmean(e.se or 0.0 for e in found)
        assert printed == pytest.approx(statistics.stdev(e.value for e in found), rel=0.15)


def test_the_intervals_cover_as_often_as_they_say() -> None:
    hits = 0
    for seed in range(400):
        interval = known(fitted(noisy(seed)).row_s).interval()
        assert isinstance(interval, Interval)
        assert interval.level == 0.95
        hits += interval.low <= ROW <= interval.high
    assert 0.92 <= hits / 400 <= 0.98


def test_a_bend_is_found_and_noise_is_not_called_one() -> None:
    found = sum(lack(fitted(noisy(seed))).found for seed in range(200))
    assert 2 <= found <= 20, "5 % of 200, within three deviations"
    bent = fitted(noisy(1, bend=0.003))
    assert lack(bent).found
    assert lack(bent).p < 0.01
    worst = max(range(48), key=lambda i: bent.residuals[i])
    assert worst // 12 == 2, "the residual shows which rows"


def test_a_cost_per_row_and_context_is_found_only_where_there_is_one() -> None:
    plain = fitted(noisy(2))
    assert plain.needs_interaction is False
    twisted = fitted(noisy(2, twist=4e-7))
    assert twisted.needs_interaction is True
    assert known(twisted.interaction_s).value == pytest.approx(4e-7, rel=0.3)
    exact = fitted(noisy(2, sd=0.0, twist=1e-7))
    assert known(exact.interaction_s).value == pytest.approx(1e-7)
    assert exact.needs_interaction is None, "without scatter there is nothing to test against"


def test_short_steps_at_0_1_and_k_rows_are_the_micro_probe() -> None:
    """tuner_vectors.json, "microprobe_cost": 3.84, 6.96, 9.36 at depth 3 give 1.2 and 0.64."""
    cost = short_step_costs(shorts(3, (0, 3.84), (1, 6.96), (3, 9.36)))
    assert isinstance(cost, StepCost)
    row, draft = microprobe_cost(3.84, 6.96, 9.36, 3)
    assert (row, draft) == pytest.approx((1.2, 0.64))
    assert known(cost.row_s).value == pytest.approx(row)
    assert known(cost.draft_s).value == pytest.approx(draft)
    assert known(cost.step_s(2)).value == pytest.approx(3.84 + 2 * 1.84)
    assert cost.depth_s.se is None, "three times leave no residual"
    assert isinstance(cost.depth_s.interval(), Unknown)
    assert isinstance(cost.lack, Unknown)


def test_short_steps_give_the_time_of_every_depth_with_its_error() -> None:
    rng = random.Random(3)  # noqa: S311 - noise of a simulation
    times = [
        (rows, true_s(rows, 2 if rows else 0, 200) * (1 + rng.gauss(0, 0.01)))
        for rows in (0, 1, 2)
        for _ in range(12)
    ]
    cost = short_step_costs(shorts(2, *times))
    assert isinstance(cost, StepCost)
    for depth in (1, 3, 5):
        interval = known(cost.step_s(depth)).interval(0.999)
        assert isinstance(interval, Interval)
        assert interval.low <= true_s(depth, depth, 200) <= interval.high
        assert interval.high - interval.low < 0.1 * interval.mid
    assert isinstance(cost.token_s, Unknown)
    assert isinstance(cost.step_s(1, 16000), Unknown), "another context was not measured"
    assert isinstance(cost.relative(1, 16000), Unknown)
    assert isinstance(cost.row_cost(16000), Unknown)
    assert known(cost.step_s(1, 200)) == known(cost.step_s(1))


def test_depth_1_shows_the_sum_of_row_and_draft_but_not_each() -> None:
    cost = short_step_costs(shorts(1, (0, 1.0), (0, 1.01), (1, 1.4), (1, 1.42)))
    assert isinstance(cost, StepCost)
    assert cost.depth_s.value == pytest.approx(0.405, rel=1e-2)
    assert cost.row_s == cost.draft_s == Unknown("no draft was cut, so only their sum shows")
    assert cost.needs_interaction is None


def test_a_slow_outlier_among_short_steps_is_left_out_and_counted() -> None:
    even = [(r, 1.0 + 0.4 * r + 0.001 * i) for r in (0, 1, 2) for i in range(5)]
    clean, spoilt = short_step_costs(shorts(2, *even)), short_step_costs(shorts(2, *even, (1, 9.0)))
    assert isinstance(clean, StepCost)
    assert isinstance(spoilt, StepCost)
    assert (clean.left_out, spoilt.left_out) == (0, 1)
    assert spoilt.depth_s == clean.depth_s


def test_short_steps_of_two_starts_are_refused() -> None:
    first = shorts(2, (0, 1.0), (1, 1.4), (2, 1.8))
    other = [replace(s, start_id="2") for s in first]
    verdict = short_step_costs([*first, *other])
    assert verdict == Unknown("short steps of several starts have no common plain step")


def test_steady_steps_of_several_depths_and_contexts_fit_jointly() -> None:
    times = [
        StepTime(rows=k, drafted=k, context_tokens=x, step_s=true_s(k, k, x), count=12)
        for k in (0, 2, 3)
        for x in (500, 8000)
    ]
    cost = fitted(times)
    assert cost.depth_s.value == pytest.approx(ROW + DRAFT)
    assert known(cost.token_s).value == pytest.approx(TOKEN)
    assert cost.lack == Unknown(
        "the test needs repeated steps and more kinds of steps than parameters"
    )


def test_a_mean_of_many_steps_weighs_more() -> None:
    times = [
        StepTime(rows=0, drafted=0, context_tokens=9, step_s=1.0),
        StepTime(rows=1, drafted=1, context_tokens=9, step_s=1.4, count=99),
        StepTime(rows=1, drafted=1, context_tokens=9, step_s=1.4001),
        StepTime(rows=1, drafted=1, context_tokens=9, step_s=1.5),
    ]
    assert fitted(times).depth_s.value == pytest.approx(0.401, abs=1e-3)
    alike = [replace(t, count=1) for t in times]
    assert fitted(alike).depth_s.value == pytest.approx(0.431, abs=5e-3)


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ([], "no step was timed"),
        ([(0, 0, 1.0)], "parameters need"),
        ([(1, 1, 1.0), (1, 1, 1.1)], "do not tell"),
        ([(1, 3, 1.0), (2, 3, 1.2), (3, 3, 1.4)], "do not tell"),
        ([(1, 1, 1.0), (2, 2, 3.0)], "not positive"),
    ],
)
def test_times_that_do_not_determine_the_costs_are_unknown(
    times: list[tuple[int, int, float]], word: str
) -> None:
    verdict = fit_steps(
        [StepTime(rows=r, drafted=d, context_tokens=1, step_s=s) for r, d, s in times]
    )
    assert isinstance(verdict, Unknown)
    assert word in verdict.reason


def test_repetitions_without_scatter_test_nothing() -> None:
    same = [
        StepTime(rows=k, drafted=k, context_tokens=1, step_s=1 + 0.4 * k)
        for k in (0, 1, 2)
        for _ in range(2)
    ]
    assert fitted(same).lack == Unknown("the repeated steps do not scatter at all")


def test_an_interaction_needs_enough_kinds_of_steps() -> None:
    three = [(0, 1, 1.0), (1, 1, 1.4), (0, 2, 1.1)]
    cost = fitted([StepTime(rows=r, drafted=r, context_tokens=x, step_s=s) for r, x, s in three])
    assert isinstance(cost.interaction_s, Unknown)
    four = [*three, (1, 2, 1.6)]
    cost = fitted([StepTime(rows=r, drafted=r, context_tokens=x, step_s=s) for r, x, s in four])
    assert isinstance(cost.interaction_s, Unknown)
    assert "leave no residual" in cost.interaction_s.reason


def test_least_squares_agrees_with_a_case_worked_by_hand() -> None:
    """Points (0, 1), (1, 3), (2, 4): slope 3/2, intercept 7/6, squares 1/6."""
    fit = least_squares([(1, 0), (1, 1), (1, 2)], [1, 3, 4], [1, 1, 1])
    assert isinstance(fit, LinearFit)
    assert fit.beta == pytest.approx((7 / 6, 3 / 2))
    assert (fit.squares, fit.freedom, fit.variance) == pytest.approx((1 / 6, 1, 1 / 6))
    flat = [x for row in fit.covariance for x in row]
    assert flat == pytest.approx([5 / 6, -1 / 2, -1 / 2, 1 / 2])
    assert fit.residuals == pytest.approx((-1 / 6, 1 / 3, -1 / 6))
    value, error = fit.combined((1, 2))
    assert value == pytest.approx(25 / 6)
    assert error == pytest.approx((1 / 6 * (5 / 6 - 2 + 2)) ** 0.5)


def filled(share: float, *, start: str = "1", sd: float = 0.002, seed: int = 3) -> list[ShortStep]:
    """Short steps of one start at depth 2; 1000 tokens cost ``share`` of a plain step."""
    rng = random.Random(seed)  # noqa: S311 - noise of a simulation
    return [
        ShortStep(
            arm=arm(2),
            start_id=start,
            fingerprint="f",
            rows=rows,
            step_s=PLAIN
            * (1 + share * context / 1000 + 0.4 * rows + (0.3 if rows else 0.0))
            * (1 + rng.gauss(0, sd)),
            context_tokens=context,
        )
        for turn in range(24)
        for rows in (0, 1, 2)
        for context in (100 + 120 * turn + 4 * rows,)
    ]


def test_the_fill_of_the_context_has_a_price_where_the_steps_show_it() -> None:
    cost = context_cost(filled(0.008))
    assert isinstance(cost, Interval)
    assert cost.low < 0.008 < cost.high
    assert cost.high - cost.low < 0.004


def test_no_price_is_told_that_the_steps_do_not_show() -> None:
    nothing = Unknown("no start shows what the fill of the context costs")
    assert context_cost([]) == nothing
    assert context_cost(filled(0.0)) == nothing
    assert context_cost(filled(-0.02)) == nothing
    assert context_cost(filled(0.008, sd=0.1)) == nothing
    assert context_cost(filled(0.008)[:3]) == nothing, "as many parameters as steps"
    assert context_cost(shorts(2, (0, 1.0), (1, 1.4), (2, 1.8))) == nothing, "one fill"
    twisted = [
        replace(s, step_s=s.step_s * (1 + 1e-4 * s.rows * s.context_tokens)) for s in filled(0.008)
    ]
    assert context_cost(twisted) == nothing, "a row costs more at a fuller context"


def test_of_several_starts_the_one_that_tells_it_best_counts() -> None:
    sharp, blunt = filled(0.008), filled(0.03, start="2", sd=0.02, seed=5)
    assert context_cost([*blunt, *sharp]) == context_cost(sharp) != context_cost(blunt)
    assert context_cost([*sharp, *blunt][::-1]) == context_cost(sharp[::-1])
