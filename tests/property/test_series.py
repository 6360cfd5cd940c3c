"""Time series: what is read is what was put in, and a gap is a gap."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mtpd.series import MOST_POINTS, RINGS, Bin, Series, grid, pooled

SMALL = ((2.0, 10), (10.0, 8))
VALUES = st.floats(-1e6, 1e6)
POINTS = st.lists(
    st.tuples(st.integers(0, 200).map(lambda n: n / 2), VALUES, st.floats(0.001, 1e6)), max_size=60
)


def filled(points: list[tuple[float, float, float]]) -> Series:
    series = Series(SMALL)
    for at_s, value, weight in points:
        series.add(at_s, value, weight)
    return series


@given(POINTS, st.floats(1, 100), st.floats(1, 40), st.booleans())
def test_what_is_read_is_what_was_put_in(
    points: list[tuple[float, float, float]],
    since_s: float,
    step_s: float,
    sort: bool,  # noqa: FBT001
) -> None:
    points = sorted(points) if sort else points
    now_s = max((at_s for at_s, _, _ in points), default=0.0)
    wanted = grid(now_s, since_s=since_s, step_s=step_s, rings=SMALL)
    base_s, size = SMALL[wanted.ring]
    found = filled(points).read(wanted)
    assert len(found) == wanted.count
    kept = _kept(points, base_s, size)
    for number, one in enumerate(found, wanted.first):
        begin_s, end_s = number * wanted.step_s, (number + 1) * wanted.step_s
        inside = [(value, weight) for at_s, value, weight in kept if begin_s <= at_s < end_s]
        if not inside:
            assert one is None, "a bin in which nothing was seen is a gap"
            continue
        assert one is not None
        values = [value for value, _ in inside]
        assert (one.low, one.high) == (min(values), max(values))
        weight = sum(weight for _, weight in inside)
        mean = sum(value * weight for value, weight in inside) / weight
        assert math.isclose(one.weight, weight, rel_tol=1e-9)
        assert math.isclose(one.mean, mean, rel_tol=1e-6, abs_tol=1e-3)
        assert one.low <= one.mean <= one.high


def _kept(
    points: list[tuple[float, float, float]], base_s: float, size: int
) -> list[tuple[float, float, float]]:
    """Those that no later one had pushed out, nor would have been too old when they came."""
    kept: dict[int, list[tuple[float, float, float]]] = {}
    newest = None
    for point in points:
        number = math.floor(point[0] / base_s)
        newest = number if newest is None else newest
        if number > newest - size:
            kept.setdefault(number, []).append(point)
        newest = max(newest, number)
        kept = {n: found for n, found in kept.items() if n > newest - size}
    return [point for found in kept.values() for point in found]


@given(st.floats(0, 1e7), st.floats(1, 1e6), st.floats(0.1, 1e6))
def test_a_grid_reaches_the_present_and_as_far_back_as_is_kept(
    now_s: float, since_s: float, step_s: float
) -> None:
    wanted = grid(now_s, since_s=since_s, step_s=step_s)
    base_s, size = RINGS[wanted.ring]
    times = wanted.step_s / base_s
    assert times == round(times) >= 1
    assert wanted.step_s >= step_s or math.isclose(wanted.step_s, step_s)
    assert 1 <= wanted.count <= MOST_POINTS
    end_s = wanted.begin_s + wanted.count * wanted.step_s
    assert end_s - wanted.step_s <= now_s < end_s or math.isclose(end_s, now_s)
    assert wanted.count * wanted.step_s >= min(since_s, base_s * size) - 1e-6
    if since_s <= RINGS[0][0] * RINGS[0][1]:
        assert wanted.ring == 0


@given(st.lists(st.one_of(st.none(), st.builds(
    lambda value, weight: Bin(value, value, value, weight), VALUES, st.floats(0.001, 1e6)
)), max_size=20))  # fmt: skip
def test_pooling_in_parts_is_pooling_at_once(bins: list[Bin | None]) -> None:
    whole, half = pooled(bins), len(bins) // 2
    parts = pooled((pooled(bins[:half]), pooled(bins[half:])))
    if whole is None or parts is None:
        assert whole is parts
        return
    assert (whole.low, whole.high) == (parts.low, parts.high)
    assert math.isclose(whole.weight, parts.weight, rel_tol=1e-9)
    assert math.isclose(whole.mean, parts.mean, rel_tol=1e-6, abs_tol=1e-3)


def test_a_gap_within_and_what_says_nothing() -> None:
    series = Series(SMALL)
    for at_s, value in ((1.0, 5.0), (2.0, math.nan), (3.0, math.inf), (9.0, 0.0)):
        series.add(at_s, value)
    series.add(5.0, 7.0, 0.0)
    found = series.read(grid(9.0, since_s=10, step_s=2, rings=SMALL))
    assert [None if one is None else one.mean for one in found] == [5.0, None, None, None, 0.0]


def test_after_a_long_silence_nothing_of_before_is_left() -> None:
    series = Series(SMALL)
    series.add(1.0, 5.0)
    series.add(1.0 + 20 * 3, 6.0)  # three times around the finer ring
    found = series.read(grid(61.0, since_s=20, step_s=2, rings=SMALL))
    assert [one.mean for one in found if one is not None] == [6.0]


def test_a_longer_past_takes_the_coarser_ring_and_no_more_points_than_allowed() -> None:
    assert (grid(0, since_s=3600, step_s=1).ring, grid(0, since_s=3601, step_s=1).ring) == (0, 1)
    day = grid(100_000.0, since_s=86_400, step_s=1)
    assert (day.step_s, day.count) == (60.0, 1440)
    few = grid(100_000.0, since_s=86_400, step_s=1, most=100)
    assert (few.step_s, few.count) == (900.0, 96)
    beyond = grid(100_000.0, since_s=1e9, step_s=3600)
    assert (beyond.step_s, beyond.count) == (3600.0, 24)
