"""Whose turn it is among the row counts: fair, bounded, and never more than was wanted."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mtpd.short_steps import TRIES, _Turns


@given(st.integers(0, 6), st.integers(0, 8), st.lists(st.booleans(), max_size=400))
def test_every_row_count_has_its_turn_until_it_has_enough_or_was_tried_enough(
    depth: int, wanted: int, luck: list[bool]
) -> None:
    turns = _Turns(depth, wanted)
    had = dict.fromkeys(range(depth + 1), 0)
    tried: list[int] = []
    draws = iter([*luck, *[False] * (wanted * TRIES * (depth + 1))])
    ends = 0
    while turns.open:
        if (rows := turns.next()) is None:
            ends += 1
            assert tried, "no turn is over before it began"
            continue
        tried.append(rows)
        if next(draws):
            turns.took(rows)
            had[rows] += 1

    # A turn has an end, and never two without a try between them.
    assert ends <= len(tried)
    for rows, count in had.items():
        assert count <= wanted
        assert tried.count(rows) <= wanted * TRIES
        # Nobody is left before it has what it wants or has had all its tries.
        assert count == wanted or tried.count(rows) == wanted * TRIES
    assert turns.missing == {
        str(rows): wanted - count for rows, count in had.items() if count < wanted
    }


@given(st.integers(1, 6), st.integers(1, 5))
def test_nobody_has_two_turns_while_another_waits(depth: int, wanted: int) -> None:
    turns = _Turns(depth, wanted)
    order: list[int] = []
    while len(turns.open) > 1:
        if (rows := turns.next()) is not None:
            order.append(rows)

    assert order[: depth + 1] == list(range(depth + 1))
    assert all(before != after for before, after in pairwise(order))
