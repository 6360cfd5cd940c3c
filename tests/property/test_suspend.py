"""A suspend is counted once, as one length, however often somebody looks."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mtpd.control.waking import Waking
from mtpd.events import MachineResumed
from mtpd.series import Series, grid
from mtpd.suspend import LEAST_S, lasted_s, length
from tests.fakes.clock import FakeClock

SECONDS = st.floats(0.0, 4e7)


@given(SECONDS, SECONDS)
def test_it_is_never_negative_and_never_more_than_passed(before: float, now: float) -> None:
    found = lasted_s(before, now)
    assert found == 0.0 or LEAST_S < found == now - before


@given(SECONDS)
def test_a_length_is_short_and_says_no_more_than_there_was(seconds: float) -> None:
    said = length(seconds)
    found = re.fullmatch(r"(\d+) (d|h|min|s)(?: (\d+) (d|h|min|s))?", said)
    assert found is not None, said
    sizes = {"d": 86_400, "h": 3_600, "min": 60, "s": 1, None: 0}
    first, unit, second, smaller = found.groups()
    total = int(first) * sizes[unit] + int(second or 0) * sizes[smaller]
    assert total - 0.5 <= seconds < total + sizes[smaller or unit]


@given(st.lists(st.tuples(st.sampled_from(["awake", "asleep", "look"]), st.floats(0.0, 1e5))))
def test_all_that_is_slept_is_told_but_for_a_rest_that_is_too_short(
    happened: list[tuple[str, float]],
) -> None:
    clock, told = FakeClock(), list[object]()
    waking, asleep_s = Waking(clock=clock, publish=told.append), 0.0
    for what, seconds in happened:
        match what:
            case "awake":
                clock.advance(seconds)
            case "asleep":
                clock.suspend(seconds)
                asleep_s += seconds
            case _:
                waking.look()
    waking.look()
    lengths = [one.suspended_s for one in told if isinstance(one, MachineResumed)]
    assert len(lengths) == len(told)
    assert all(one > LEAST_S - 0.001 for one in lengths)
    assert (
        0.0
        <= asleep_s - sum(lengths) + 0.001 * len(lengths) + 0.01
        <= LEAST_S + 0.02 + len(lengths)
    )


@given(st.floats(10.0, 1e5), st.floats(60.0, 8e4))
def test_a_night_between_two_values_is_a_gap_on_an_axis_that_goes_on(
    began_s: float, night_s: float
) -> None:
    series = Series()
    series.add(began_s, 1.0)
    series.add(began_s + night_s, 2.0)
    seen = [
        one.mean for one in series.read(grid(began_s + night_s, since_s=86_400, step_s=60)) if one
    ]
    assert seen == [1.0, 2.0]
