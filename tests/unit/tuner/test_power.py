"""Energy, caps and throttling of a window: groups 12 and 14 of docs/gpu.md."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.power import (
    CapHeld,
    Energy,
    PowerSample,
    Slowed,
    Throttle,
    cap_held,
    counted,
    integrated,
    mean_w,
    measured,
    slowed,
)
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable


def trace(
    watts: Callable[[float], float | None], *, seconds: float = 10.0, rate_hz: float = 10.0
) -> list[PowerSample]:
    count = round(seconds * rate_hz) + 1
    return [
        PowerSample(at_s=100 + i / rate_hz, power_w=watts(i / rate_hz), busy_percent=99.0)
        for i in range(count)
    ]


def joules(energy: Energy | Unknown) -> float:
    assert isinstance(energy, Energy)
    return energy.joules


# --- energy ----------------------------------------------------------------------------------


def test_constant_power_is_power_by_time() -> None:
    energy = integrated(trace(lambda _: 150.0))
    assert isinstance(energy, Energy)
    assert energy.source == "integrated"
    assert energy.duration_s == pytest.approx(10.0)
    assert energy.joules == pytest.approx(1500.0)


def test_a_ramp_is_its_mean_by_time() -> None:
    assert joules(integrated(trace(lambda t: 100 + 10 * t))) == pytest.approx(1500.0)


@given(
    watts=st.lists(st.floats(1.0, 500.0), min_size=12, max_size=40),
    cut=st.integers(6, 34),
)
def test_a_window_is_the_sum_of_its_halves(watts: list[float], cut: int) -> None:
    samples = [
        PowerSample(at_s=float(i), power_w=one) for i, one in enumerate([*watts, *[9.0] * 40])
    ]
    whole = joules(integrated(samples))
    assert whole == pytest.approx(
        joules(integrated(samples[: cut + 1])) + joules(integrated(samples[cut:]))
    )
    low, high = min(one.power_w or 0 for one in samples), max(one.power_w or 0 for one in samples)
    assert low * (len(samples) - 1) <= whole * (1 + 1e-9)
    assert whole <= high * (len(samples) - 1) * (1 + 1e-9)


def test_a_gap_is_refused_and_a_short_one_is_not() -> None:
    samples = trace(lambda _: 150.0)
    assert joules(integrated(samples[:40] + samples[49:])) == pytest.approx(1500.0)
    found = integrated(samples[:40] + samples[51:])
    assert found == Unknown("the power was unknown for more than 1 s")


def test_power_that_is_unknown_is_a_gap_and_not_nothing() -> None:
    found = integrated(trace(lambda t: None if 4 < t < 6 else 150.0))
    assert found == Unknown("the power was unknown for more than 1 s")


@pytest.mark.parametrize("edge", [0.0, 10.0])
def test_an_edge_without_power_is_refused(edge: float) -> None:
    found = integrated(trace(lambda t: None if t == edge else 150.0))
    assert found == Unknown("the power at an edge of the window is unknown")


@pytest.mark.parametrize("count", [0, 1, 2, 49])
def test_too_short_a_window_is_refused(count: int) -> None:
    found = integrated(trace(lambda _: 150.0)[:count])
    assert isinstance(found, Unknown)
    assert "shorter than 5 s" in found.reason


def test_time_that_does_not_advance_is_refused() -> None:
    samples = trace(lambda _: 150.0)
    for disordered in (samples[::-1], [*samples, samples[-1]]):
        assert integrated(disordered) == Unknown("the samples are not in order of time")
        assert counted(disordered) == Unknown("the samples are not in order of time")


def test_a_counter_counts() -> None:
    samples = [PowerSample(at_s=0.0, energy_j=1000.0), PowerSample(at_s=9.0, energy_j=2350.0)]
    assert counted(samples) == Energy(joules=1350.0, duration_s=9.0, source="counter")
    assert measured(samples) == counted(samples)


@pytest.mark.parametrize(
    ("first", "last", "why"),
    [
        (65700.0, 65700.0, "stands still"),
        (65700.0, 3.0, "ran backwards"),
        (None, 3.0, "no energy counter"),
        (3.0, None, "no energy counter"),
    ],
)
def test_a_counter_that_is_not_real_is_refused(
    first: float | None, last: float | None, why: str
) -> None:
    samples = [PowerSample(at_s=0.0, energy_j=first), PowerSample(at_s=9.0, energy_j=last)]
    found = counted(samples)
    assert isinstance(found, Unknown)
    assert why in found.reason


def test_without_a_real_counter_power_is_integrated() -> None:
    assert joules(measured(trace(lambda _: 150.0))) == pytest.approx(1500.0)
    assert isinstance(measured([]), Unknown)


def test_joules_per_token_and_beyond_idle() -> None:
    energy = Energy(joules=1500.0, duration_s=10.0, source="integrated")
    # facts/gpu.md section 6: 150 W at 50.3 tokens per second.
    assert energy.per_token_j(503) == pytest.approx(2.98, abs=0.005)
    assert energy.net_j(21.0) == pytest.approx(1290.0)
    assert energy.net_j(400.0) == 0.0
    assert energy.per_token_j(500, idle_w=21.0) == pytest.approx(2.58)
    assert energy.mean_w == 150.0
    assert isinstance(energy.per_token_j(0), Unknown)


def test_the_mean_is_over_time_and_not_over_samples() -> None:
    samples = [
        PowerSample(at_s=0.0, power_w=100.0),
        PowerSample(at_s=1.0, power_w=100.0),
        PowerSample(at_s=2.0),
        PowerSample(at_s=9.0, power_w=200.0),
    ]
    assert mean_w(samples) == pytest.approx((100 + 8 * 150) / 9)
    assert mean_w(samples[:1]) is None
    assert mean_w(samples[2:3]) is None


# --- whether a cap holds ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watts", "held"), [(148.0, True), (154.4, True), (154.6, False), (171.0, False)]
)
def test_a_cap_is_judged_by_a_busy_window(watts: float, held: bool) -> None:  # noqa: FBT001
    found = cap_held(trace(lambda _: watts), cap_w=150.0)
    assert isinstance(found, CapHeld)
    assert found.held == held
    assert found.duration_s == pytest.approx(10.0)
    assert found.mean_w == pytest.approx(watts)


def test_a_single_peak_breaks_a_cap() -> None:
    found = cap_held(trace(lambda t: 173.0 if t == 5.0 else 140.0), cap_w=150.0)
    assert isinstance(found, CapHeld)
    assert not found.held
    assert found.peak_w == 173.0
    found = cap_held(trace(lambda t: 172.0 if t == 5.0 else 140.0), cap_w=150.0)
    assert isinstance(found, CapHeld)
    assert found.held


def test_an_idle_card_proves_nothing() -> None:
    idle = [PowerSample(at_s=i / 10, power_w=21.0, busy_percent=0.0) for i in range(200)]
    assert isinstance(cap_held(idle, cap_w=150.0), Unknown)
    unknown = [PowerSample(at_s=i / 10, power_w=148.0) for i in range(200)]
    assert isinstance(cap_held(unknown, cap_w=150.0), Unknown)
    assert isinstance(cap_held([], cap_w=150.0), Unknown)


def test_the_longest_stretch_of_work_counts() -> None:
    work = [
        *trace(lambda _: 171.0, seconds=4.0),
        PowerSample(at_s=105.0, power_w=30.0, busy_percent=5.0),
        *(PowerSample(at_s=106 + i / 10, power_w=140.0, busy_percent=100.0) for i in range(61)),
    ]
    found = cap_held(work, cap_w=150.0)
    assert isinstance(found, CapHeld)
    assert found.held
    assert found.duration_s == pytest.approx(6.0)


@pytest.mark.parametrize("gap_s", [2.6, 0.0, -3.0])
def test_a_gap_or_a_step_back_parts_the_work(gap_s: float) -> None:
    first = trace(lambda _: 140.0, seconds=3.0)
    second = [
        PowerSample(at_s=103.0 + gap_s + i / 10, power_w=140.0, busy_percent=99.0)
        for i in range(31)
    ]
    assert isinstance(cap_held(first + second, cap_w=150.0), Unknown)


def test_unknown_power_parts_the_work() -> None:
    samples = trace(lambda t: None if math.isclose(t, 5.0) else 140.0, seconds=9.0)
    assert isinstance(cap_held(samples, cap_w=150.0), Unknown)


# --- throttling ------------------------------------------------------------------------------


def throttled(*bits: Throttle | None) -> list[PowerSample]:
    return [PowerSample(at_s=float(i), throttle=one) for i, one in enumerate(bits)]


def test_the_cap_is_no_reason_to_discard() -> None:
    found = slowed(throttled(*[Throttle.POWER] * 3, Throttle.NONE))
    assert found == Slowed(at_cap_share=0.75, reason=None)


@pytest.mark.parametrize("bit", [Throttle.THERMAL, Throttle.CURRENT, Throttle.FIRMWARE])
def test_heat_in_more_than_a_twentieth_of_the_samples_is_one(bit: Throttle) -> None:
    assert slowed(throttled(bit, *[Throttle.NONE] * 19)).reason is None
    found = slowed(throttled(bit | Throttle.POWER, bit, *[Throttle.POWER] * 18))
    assert found.reason == "heat or current throttled 2 of 20 samples"
    assert found.at_cap_share == pytest.approx(0.95)


def test_without_bits_nothing_is_said_of_the_cap() -> None:
    assert slowed(throttled(None, None)) == Slowed(at_cap_share=None, reason=None)


def test_a_junction_near_its_limit_is_a_reason() -> None:
    samples = [PowerSample(at_s=0.0, junction_c=101.9), PowerSample(at_s=1.0, junction_c=102.0)]
    assert slowed(samples[:1], junction_limit_c=105.0).reason is None
    found = slowed(samples, junction_limit_c=105.0)
    assert found.reason == "the junction was at 102 °C, 105 °C is critical"
    assert slowed(samples).reason is None


def clocks(first: float, last: float, *, watts: float = 150.0) -> list[PowerSample]:
    return [
        PowerSample(at_s=float(i), core_mhz=mhz, power_w=power)
        for i, (mhz, power) in enumerate(
            [(first, 150.0)] * 3 + [(first, 150.0)] * 3 + [(last, watts)] * 3
        )
    ]


def test_a_clock_that_falls_at_equal_power_is_a_reason() -> None:
    found = slowed(clocks(1400.0, 1300.0))
    assert found.reason == "the clock fell from 1400 to 1300 MHz at equal power"
    assert slowed(clocks(1400.0, 1330.0)).reason is None
    assert slowed(clocks(1400.0, 1500.0)).reason is None
    assert slowed(clocks(1400.0, 1000.0, watts=100.0)).reason is None
    assert slowed(clocks(1400.0, 1300.0)[:5]).reason is None
