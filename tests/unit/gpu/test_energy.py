"""Joules since the daemon watches: by the counter, else by the power, never less than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.gpu.energy import MAX_GAP_S, EnergyCount
from mtpd.types import Absent, Value
from tests.fakes import sysfs
from tests.fakes.card import Bench
from tuner.power import PowerSample

if TYPE_CHECKING:
    from pathlib import Path


def joules(*samples: PowerSample) -> float | None:
    count = EnergyCount()
    for one in samples:
        count.add(one)
    return count.joules.value if isinstance(count.joules, Value) else None


def test_power_between_two_readings_is_summed() -> None:
    samples = [PowerSample(at_s=at, power_w=watts) for at, watts in ((0, 20), (5, 20), (6, 40))]
    assert joules(*samples) == 5 * 20 + 30


def test_the_cards_own_counter_goes_before_its_power() -> None:
    first = PowerSample(at_s=0, power_w=20, energy_j=1000)
    assert joules(first, PowerSample(at_s=60, power_w=20, energy_j=1500)) == 500


def test_a_counter_that_begins_anew_takes_nothing_away() -> None:
    samples = [
        PowerSample(at_s=at, energy_j=j) for at, j in ((0, 1000), (1, 1100), (2, 5), (3, 25))
    ]
    assert joules(*samples) == 120


@pytest.mark.parametrize(
    "second",
    [
        PowerSample(at_s=MAX_GAP_S + 1, power_w=20),
        PowerSample(at_s=0, power_w=20),
        PowerSample(at_s=1),
    ],
    ids=["too long ago", "at the same time", "unknown"],
)
def test_what_was_not_watched_adds_nothing(second: PowerSample) -> None:
    assert joules(PowerSample(at_s=0, power_w=20), second) == 0


def test_a_night_is_no_energy_whatever_the_counter_says() -> None:
    count = EnergyCount()
    count.add(PowerSample(at_s=0, power_w=20, energy_j=1000))
    count.pause()
    count.add(PowerSample(at_s=1, power_w=20, energy_j=577_000))
    assert count.joules == Value(0.0, "counter")
    count.add(PowerSample(at_s=2, power_w=20, energy_j=577_020))
    assert count.joules == Value(20.0, "counter")


def test_a_card_that_never_told_has_no_sum() -> None:
    assert joules() is None
    assert joules(PowerSample(at_s=0), PowerSample(at_s=1)) is None
    assert isinstance(EnergyCount().joules, Absent)


known = st.one_of(st.none(), st.floats(0, 1e6))


@given(st.lists(st.builds(PowerSample, at_s=st.floats(0, 1e6), power_w=known, energy_j=known)))
def test_the_sum_never_goes_back(samples: list[PowerSample]) -> None:
    count, before = EnergyCount(), 0.0
    for one in samples:
        count.add(one)
        if isinstance(count.joules, Value):
            assert count.joules.value >= before
            before = count.joules.value


async def test_the_sampler_counts_what_it_reads(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "idle"))
    bench.tree.sensors(power_w=100, busy_percent=99)
    before = bench.sampler.energy_j
    await bench.sampler.fresh()
    bench.clock.advance(4.0)
    await bench.sampler.fresh()
    bench.thread.close()
    assert isinstance(before, Absent)
    assert bench.sampler.energy_j == Value(400.0, "integrated")
