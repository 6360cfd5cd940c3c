"""Gates: cool enough, capped as declared; the unknown passes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.gpu.gate import cap, cooling, result
from mtpd.types import Absent, NotApplicable, Reading, Value

NO_GPU = NotApplicable("there is no GPU")
ABSENT = Absent("temp1_input: EPERM")


def _edges(*values: float | None) -> list[Reading[float]]:
    return [ABSENT if value is None else Value(value, "sysfs") for value in values]


@pytest.mark.parametrize(
    ("samples", "state"),
    [
        (_edges(44.0, 44.0, 44.0), "passed"),
        (_edges(90, 44, 43, 42), "passed"),
        (_edges(44, 44.1, 44), "failed"),
        (_edges(44, 44, 45), "failed"),
        (_edges(44, 44), "unknown"),
        (_edges(), "unknown"),
        (_edges(44, None, 44), "unknown"),
        (_edges(None, 44, 44, 44), "passed"),
        (_edges(44, 44, float("nan")), "failed"),
        ([NO_GPU], "not_applicable"),
        ([NO_GPU, NO_GPU, NO_GPU], "not_applicable"),
    ],
)
def test_the_last_three_samples_decide(samples: list[Reading[float]], state: str) -> None:
    view = cooling(samples, limit_c=44.0)
    assert (view.name, view.state) == ("cooling", state)
    assert view.reason


def test_the_reason_says_how_hot_it_is() -> None:
    view = cooling(_edges(44, 44, 52), limit_c=44.0)
    assert view.reason == "the edge is at 52 °C, above 44 °C"


@given(
    samples=st.lists(
        st.one_of(st.floats(-40, 150).map(lambda value: Value(value, "sysfs")), st.just(ABSENT)),
        max_size=6,
    )
)
def test_only_three_cool_samples_in_a_row_pass(samples: list[Reading[float]]) -> None:
    passed = cooling(samples, limit_c=44.0).state == "passed"
    last = samples[-3:]
    cool = [one for one in last if isinstance(one, Value) and one.value <= 44.0]
    assert passed == (len(cool) == 3)


@pytest.mark.parametrize(
    ("reading", "wanted", "state"),
    [
        (Value(150.0, "sysfs"), 150.0, "passed"),
        (Value(150.4, "sysfs"), 150.0, "passed"),
        (Value(190.0, "sysfs"), 150.0, "failed"),
        (Value(140.0, "sysfs"), 150.0, "failed"),
        (ABSENT, 150.0, "unknown"),
        (ABSENT, None, "not_applicable"),
        (Value(190.0, "sysfs"), None, "not_applicable"),
        (NO_GPU, 150.0, "not_applicable"),
    ],
)
def test_the_cap_in_force_must_be_the_declared_one(
    reading: Reading[float], wanted: float | None, state: str
) -> None:
    assert cap(reading, wanted_w=wanted).state == state


def test_what_does_not_apply_passes_and_what_is_unknown_does_not() -> None:
    cool = cooling([NO_GPU], limit_c=44.0)
    passed = result(cool, cap(NO_GPU, wanted_w=150.0))
    assert (passed.passed, passed.reason) == (True, "there is no GPU; there is no GPU")
    unknown = result(cool, cap(ABSENT, wanted_w=150.0))
    assert (unknown.passed, unknown.reason) == (
        False,
        "the power cap is unknown: temp1_input: EPERM",
    )
    hot = result(cooling(_edges(90), limit_c=44.0), cap(ABSENT, wanted_w=150.0))
    assert hot.reason == "the edge is at 90 °C, above 44 °C"
