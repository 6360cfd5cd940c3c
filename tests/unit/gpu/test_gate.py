"""Gates: cool enough, capped as declared; the unknown passes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.gpu.base import PowerCap, no_cap
from mtpd.gpu.gate import cap, cooling, relative, result
from mtpd.types import Absent, NotApplicable, Reading, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.views import GateView

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
        (ABSENT, None, "unknown"),
        (Value(190.0, "sysfs"), None, "failed"),
        (NO_GPU, 150.0, "not_applicable"),
        (NO_GPU, None, "not_applicable"),
    ],
)
def test_the_cap_in_force_must_be_the_declared_one(
    reading: Reading[float], wanted: float | None, state: str
) -> None:
    assert cap(PowerCap(current_w=reading), wanted_w=wanted).state == state


def test_a_card_without_a_limit_cannot_have_a_declared_one() -> None:
    view = cap(PowerCap(current_w=ABSENT, supported=False), wanted_w=150.0)
    assert view.state == "failed"
    assert view.reason == "the driver has no power limit for this card"


def test_what_does_not_apply_passes_and_what_is_unknown_does_not() -> None:
    cool = cooling([NO_GPU], limit_c=44.0)
    passed = result(cool, cap(no_cap(NO_GPU), wanted_w=150.0))
    assert (passed.passed, passed.reason) == (True, "there is no GPU; there is no GPU")
    assert passed.gate == "not_applicable"
    unknown = result(cool, cap(no_cap(ABSENT), wanted_w=150.0))
    assert (unknown.passed, unknown.reason) == (
        False,
        "the power cap is unknown: temp1_input: EPERM",
    )
    hot = result(cooling(_edges(90), limit_c=44.0), cap(no_cap(ABSENT), wanted_w=150.0))
    assert hot.reason == "the edge is at 90 °C, above 44 °C"
    assert hot.gate == "absolute"


# --- the relative gate -----------------------------------------------------------------------


def _rest(edge: Callable[[float], float | None], *, seconds: int = 60) -> GateView:
    samples: list[tuple[float, Reading[float]]] = []
    for at_s in range(seconds + 1):
        edge_c = edge(float(at_s))
        samples.append((1000.0 + at_s, ABSENT if edge_c is None else Value(edge_c, "sysfs")))
    return relative(samples)


def test_a_card_at_rest_passes_at_any_temperature() -> None:
    assert _rest(lambda _: 57.0).state == "passed"
    assert "57 °C" in _rest(lambda _: 57.0).reason


def test_whole_degrees_that_flicker_are_rest() -> None:
    assert _rest(lambda at_s: 57.0 + (int(at_s) % 2)).state == "passed"


@pytest.mark.parametrize("per_s", [0.5, 0.03, 0.02, -0.02, -0.03])
def test_a_card_that_still_changes_does_not_pass(per_s: float) -> None:
    assert _rest(lambda at_s: 60.0 + per_s * at_s).state == "failed"


@pytest.mark.parametrize("per_s", [0.015, -0.015])
def test_a_change_below_a_fifth_of_a_degree_in_ten_seconds_passes(per_s: float) -> None:
    assert _rest(lambda at_s: 60.0 + per_s * at_s).state == "passed"


def test_rest_has_to_last() -> None:
    view = _rest(lambda _: 57.0, seconds=20)
    assert (view.state, view.reason) == ("failed", "at rest for 20 of 30 s")


def test_a_card_that_was_cooler_lately_does_not_pass() -> None:
    view = _rest(lambda at_s: 50.0 if at_s < 20 else 57.0, seconds=100)
    assert view.state == "failed"
    assert "above the 50 °C" in view.reason
    assert _rest(lambda at_s: 50.0 if at_s < 20 else 57.0, seconds=150).state == "passed"
    assert _rest(lambda at_s: 55.0 if at_s < 20 else 57.0, seconds=100).state == "passed"


def test_what_is_unknown_passes_no_relative_gate() -> None:
    assert relative([]).state == "unknown"
    assert _rest(lambda at_s: None if at_s == 60 else 57.0).state == "unknown"
    assert _rest(lambda at_s: None if at_s < 60 else 57.0).state == "failed"
    assert relative([(0.0, NO_GPU)]).state == "not_applicable"
