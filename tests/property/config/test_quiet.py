"""Saves that come to rest: each burst is told once, and never while it lasts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.quiet import Look, look

QUIET_S = 2.0
steps = st.lists(st.tuples(st.floats(0.0, 3.0), st.booleans()), max_size=40)


@given(steps)
def test_a_change_is_told_once_it_has_rested_and_only_once(moves: list[tuple[float, bool]]) -> None:
    seen, now, stamp = Look(0), 100.0, 0
    changed_at: float | None = None
    for seconds, saved in moves:
        now += seconds
        stamp += saved
        seen, told = look(seen, stamp, now, quiet_s=QUIET_S)
        if saved:
            changed_at = now
            assert not told, "told while it moves"
        rested = changed_at is not None and now - changed_at >= QUIET_S
        assert told == rested
        if told:
            changed_at = None


def test_ten_saves_in_two_seconds_are_one_change() -> None:
    seen, told = Look(0), []
    for tenth in range(60):
        stamp = min(10, tenth // 2)
        seen, rested = look(seen, stamp, tenth / 10, quiet_s=QUIET_S)
        told.append(rested)
    assert told.count(True) == 1
    assert told.index(True) == 40
