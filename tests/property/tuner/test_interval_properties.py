"""More observations at fixed rates never widen an interval; units of measure do not matter."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.property.tuner.test_tuner_properties import (
    DEPTHS,
    INCUMBENTS,
    candidates,
    chains,
    machines,
)
from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms
from tuner.acceptance import PositionCounts, alpha_intervals, e_hat
from tuner.cost import StepPoint, fit_cost
from tuner.design import ModelBased
from tuner.drafts import DraftStep, traced
from tuner.economics import economics
from tuner.memory import QWEN35_27B, feasible
from tuner.plan import History
from tuner.pools import Candidate, Objective, choose_model
from tuner.select import choose, choose_depth, summarise
from tuner.step_cost import Estimate, StepCost, StepTime, fit_steps
from tuner.types import Arm, Interval, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.drafts import TracedCounts

pytestmark = pytest.mark.slow

TIME_UNITS: Final = st.sampled_from([1e-3, 1e3, 7.0])
SIZES: Final = st.sampled_from([2, 1000, 1024])


@st.composite
def step_times(draw: st.DrawFn) -> list[StepTime]:
    """Steps of a random machine with 3 % scatter: at least two kinds of rows and contexts."""
    return [
        StepTime(
            rows=rows,
            drafted=3 if rows else 0,
            context_tokens=context,
            step_s=(0.03 + 0.01 * rows + 0.002 * (3 if rows else 0) + 2e-7 * context)
            * (1 + draw(st.floats(-0.03, 0.03))),
        )
        for rows in range(4)
        for context in (100, 8000)
    ]


def width(one: Estimate | Unknown) -> float:
    assert isinstance(one, Estimate)
    interval = one.interval()
    assert isinstance(interval, Interval)
    return interval.high - interval.low


def fitted(times: Sequence[StepTime]) -> StepCost:
    cost = fit_steps(times)
    assert isinstance(cost, StepCost)
    return cost


@given(step_times(), st.integers(2, 5), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_more_step_times_never_widen_a_cost(times: list[StepTime], copies: int, depth: int) -> None:
    few, many = fitted(times), fitted(times * copies)
    for a, b in zip(_costs(few, depth), _costs(many, depth), strict=True):
        assert width(b) <= width(a) * (1 + 1e-9)


def _costs(cost: StepCost, depth: int) -> tuple[Estimate | Unknown, ...]:
    return (
        *(cost.plain_s, cost.depth_s, cost.row_s, cost.draft_s, cost.token_s),
        *(cost.step_s(depth, 4000), cost.relative(depth, 4000)),
    )


@given(chains(), step_times(), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_more_steps_never_widen_e_or_its_balance(
    chain: tuple[int, ...], times: list[StepTime], copies: int
) -> None:
    few = PositionCounts(steps=200, accepted=chain)
    many = PositionCounts(steps=200 * copies, accepted=tuple(n * copies for n in chain))
    for upto in range(1, 5):
        assert e_hat(many, upto)[1] <= e_hat(few, upto)[1]
    before, after = economics(few, fitted(times)), economics(many, fitted(times * copies))
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    for a, b in zip(before, after, strict=True):
        assert b.gain.high / b.gain.low <= a.gain.high / a.gain.low * (1 + 1e-9)
        assert b.gain.mid == pytest.approx(a.gain.mid)


def counted(found: TracedCounts) -> PositionCounts:
    return PositionCounts(steps=found.steps, accepted=found.kept, offered=found.offered)


@given(
    st.lists(st.integers(1, 3).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d)))),
    st.integers(2, 6),
)
@settings(max_examples=60)
def test_more_traced_steps_never_widen_an_acceptance(
    steps: list[tuple[int, int]], copies: int
) -> None:
    made = [DraftStep(drafted=d, accepted=a) for d, a in steps]
    few, many = traced(3, made), traced(3, made * copies)
    for a, b in zip(alpha_intervals(counted(few)), alpha_intervals(counted(many)), strict=True):
        assert b.high - b.low <= a.high - a.low + 1e-9
    for n, k, whole in zip(few.offered, few.kept, [few.steps, *few.kept], strict=False):
        assert k <= n <= whole


@given(step_times(), TIME_UNITS, st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_another_unit_of_time_scales_step_times_and_leaves_shares(
    times: list[StepTime], k: float, depth: int
) -> None:
    here, there = (
        fitted(times),
        fitted([dataclasses.replace(t, step_s=t.step_s * k) for t in times]),
    )
    assert there.plain_s.value == pytest.approx(here.plain_s.value * k)
    a, b = here.relative(depth, 4000), there.relative(depth, 4000)
    assert isinstance(a, Estimate)
    assert isinstance(b, Estimate)
    assert b.value == pytest.approx(a.value)
    assert b.se == pytest.approx(a.se)
    assert there.needs_interaction == here.needs_interaction
    line, scaled = (
        fit_cost([StepPoint(depth=t.rows, step_s=t.step_s * unit) for t in times])
        for unit in (1.0, k)
    )
    assert scaled.c == pytest.approx(line.c)  # type: ignore[union-attr]  # eight points fit


def slower(machine: Machine, k: float) -> Machine:
    return dataclasses.replace(machine, raw_tps=machine.raw_tps / k)


@given(machines(), DEPTHS, INCUMBENTS, TIME_UNITS)
@settings(max_examples=40, deadline=None)
def test_another_unit_of_time_leaves_the_depth(
    machine: Machine, depths: list[int], incumbent: Arm | None, k: float
) -> None:
    rows, scaled = (summarise(m.sweep(*depths)) for m in (machine, slower(machine, k)))
    assert choose_depth(scaled, incumbent).arm == choose_depth(rows, incumbent).arm
    told, told_scaled = (
        History(observations=m.sweep(*depths)) for m in (machine, slower(machine, k))
    )
    first, second = choose(told, incumbent), choose(told_scaled, incumbent)
    assert second.arm == first.arm
    if first.predicted is not None and second.predicted is not None:
        assert second.predicted.mid * k == pytest.approx(first.predicted.mid)


@given(machines(), TIME_UNITS)
@settings(max_examples=20, deadline=None)
def test_another_unit_of_time_leaves_the_search(machine: Machine, k: float) -> None:
    design = ModelBased(arms=arms(0, 1, 2, 3), workloads=WORKLOADS)
    _, asks, stop = machine.calibrate(design)
    _, scaled, end = slower(machine, k).calibrate(design)
    assert [a.arm for a in scaled] == [a.arm for a in asks]
    assert [(r.arm, r.verdict) for r in end.rejected] == [(r.arm, r.verdict) for r in stop.rejected]


@given(
    rows=candidates(),
    objective=st.sampled_from(Objective),
    k=TIME_UNITS,
    size=SIZES,
    bound=st.none() | st.floats(1.0, 1.5),
    floor=st.floats(0.0, 40.0),
)
@settings(max_examples=80)
def test_other_units_of_time_and_memory_leave_the_model(
    *,
    rows: list[Candidate],
    objective: Objective,
    k: float,
    size: int,
    bound: float | None,
    floor: float,
) -> None:
    assume(all(row.tps is None or not math.isclose(row.tps, floor) for row in rows))
    scaled = [
        dataclasses.replace(
            row,
            tps=None if row.tps is None else row.tps * k,
            memory_bytes=None if row.memory_bytes is None else row.memory_bytes * size,
        )
        for row in rows
    ]

    def chosen(among: list[Candidate], least: float) -> Arm | None:
        return choose_model(
            among,
            objective=objective,
            incumbent=arm(1, "a"),
            accept_offload=True,
            quality_bound=bound,
            floor_tps=least,
        ).arm

    assert chosen(scaled, floor * k) == chosen(rows, floor)


@given(st.floats(1000.0, 30_000.0), st.floats(0.0, 900.0), st.integers(1, 4), SIZES)
def test_another_unit_of_memory_leaves_the_depths_that_fit(
    free: float, drafter: float, slots: int, k: int
) -> None:
    def fitting(unit: int) -> list[bool]:
        return [
            row.fits
            for row in feasible(
                range(6),
                geometry=dataclasses.replace(
                    QWEN35_27B, element_bytes=QWEN35_27B.element_bytes * unit
                ),
                slots=slots,
                rest_mib=9_000.0 * unit,
                drafter_mib=drafter * unit,
                free_mib=free * unit,
            )
        ]

    assert fitting(k) == fitting(1)
