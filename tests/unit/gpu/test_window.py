"""What the readings of one repetition say of the card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.window import Around, around
from tests.fakes import sysfs
from tests.fakes.card import Bench
from tuner.power import PowerSample, Throttle

if TYPE_CHECKING:
    from pathlib import Path


def _trace(watts: float, *, throttle: Throttle = Throttle.POWER) -> list[PowerSample]:
    return [
        PowerSample(
            at_s=number / 10,
            power_w=watts,
            busy_percent=99.0,
            edge_c=40.0 + number / 4,
            junction_c=50.0 + number / 4,
            throttle=throttle,
        )
        for number in range(101)
    ]


def test_a_repetition_at_the_cap_is_comparable() -> None:
    found = around(_trace(149.0), cap_w=150.0, junction_limit_c=105.0)
    assert found.power_mean_w == pytest.approx(149.0)
    assert replace(found, power_mean_w=None) == Around(
        edge_start_c=40.0, edge_end_c=65.0, junction_max_c=75.0, power_cap_w=150.0, slowed=None
    )


def test_a_real_counter_is_believed_before_the_readings_of_power() -> None:
    trace = [replace(one, energy_j=140.0 * one.at_s) for one in _trace(149.0)]
    found = around(trace, cap_w=None, junction_limit_c=None, idle_w=20.0)
    assert found.power_mean_w == pytest.approx(140.0)
    assert found.power_idle_w == 20.0


def test_a_repetition_above_the_cap_is_not() -> None:
    found = around(_trace(171.0), cap_w=150.0, junction_limit_c=None)
    assert found.slowed == "the card drew 171 W under a cap of 150 W"
    assert around(_trace(171.0), cap_w=None, junction_limit_c=None).slowed is None


def test_heat_is_said_before_the_cap() -> None:
    found = around(_trace(171.0, throttle=Throttle.THERMAL), cap_w=150.0, junction_limit_c=None)
    assert found.slowed == "heat or current throttled 101 of 101 samples"


def test_nothing_read_is_nothing_known() -> None:
    assert around([], cap_w=None, junction_limit_c=None) == Around()


async def test_the_sampler_cuts_a_repetition_out_of_its_window(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "serving"))
    async with bench.running() as sampler:
        async with sampler.measuring():
            await bench.readings(10)
            begin_s = bench.clock.now()
            bench.tree.sensors(edge_c=80)
            await bench.readings(10)
            end_s = bench.clock.now()
            bench.tree.sensors(edge_c=90)
            await bench.readings(10)
            found = sampler.around(begin_s + 0.15, end_s - 0.05)
        assert (found.edge_start_c, found.edge_end_c, found.power_cap_w) == (80.0, 80.0, 150.0)
        assert sampler.around(begin_s + 0.15, end_s - 0.05).edge_start_c == 80.0
        assert sampler.around(-5.0, -1.0).edge_start_c is None
