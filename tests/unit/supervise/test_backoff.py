from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.supervise.backoff import Memory, breaker, delay_s, remember


def test_delays_double_from_half_a_second_to_a_minute() -> None:
    delays = [delay_s(streak, 0.5) for streak in range(1, 10)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@given(st.integers(1, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_jitter_moves_a_delay_by_a_fifth_at_most(streak: int, jitter: float) -> None:
    middle = delay_s(streak, 0.5)
    assert 0.8 * middle <= delay_s(streak, jitter) <= 1.2 * middle


@pytest.mark.parametrize(
    ("every_s", "count", "open_"),
    [
        (10.0, 5, None),
        (10.0, 6, "6 failures within 60 s"),
        (12.5, 6, None),
        (55.0, 11, "11 failures within 600 s"),
        (61.0, 30, None),
    ],
)
def test_the_breaker_opens_on_six_a_minute_and_eleven_in_ten(
    every_s: float, count: int, open_: str | None
) -> None:
    memory, now = Memory(), 0.0
    for number in range(count):
        now = number * every_s
        memory = remember(memory, now)
    assert breaker(memory, now) == open_


def test_memory_is_bounded() -> None:
    memory = Memory()
    for number in range(1000):
        memory = remember(memory, float(number))
    assert len(memory.failures) == 11
    assert memory.streak == 1000
