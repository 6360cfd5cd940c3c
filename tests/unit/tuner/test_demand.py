from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.demand import HALF_S, LEAST_S, LONGEST_S, Demand


def test_a_first_burst_is_spread_over_ten_minutes() -> None:
    assert Demand().look(0.0, 6000).tokens_per_s == 6000 / LEAST_S


def test_steady_traffic_is_its_own_rate_and_silence_lowers_it() -> None:
    demand = Demand().look(0.0)
    for now in range(60, 24 * 3600, 60):
        demand = demand.look(float(now), 600)
    assert demand.tokens_per_s == pytest.approx(10.0, rel=0.01)
    quiet = demand
    for now in range(24 * 3600, 32 * 3600, 600):
        quiet = quiet.look(float(now))
    assert 0.3 < quiet.tokens_per_s / demand.tokens_per_s < 0.6
    assert HALF_S == 8 * 3600


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 10_000)), max_size=40))
def test_no_clock_makes_time_run_back(steps: list[tuple[float, int]]) -> None:
    demand, now = Demand(), 0.0
    for step, tokens in steps:
        now += step
        after = demand.look(now, tokens)
        assert 0.0 <= after.seconds <= demand.seconds + LONGEST_S
        assert after.tokens_per_s >= 0.0
        demand = after
