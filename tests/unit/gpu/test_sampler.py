"""The sampler: its pace, its ring and windows, what it tells, and what it survives."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import to_thread

from mtpd.events import DeviceCapChanged, DeviceStateChanged, DeviceThrottled
from mtpd.gpu.base import FIELDS, NOT_ASKED
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sampler import IDLE_S, MEASURING_S, RING, SERVING_S, DeviceState, Sample, Sampler
from mtpd.gpu.worker import TelemetryThread
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, MIB
from tests.fakes import sysfs
from tests.fakes.card import Bench
from tests.fakes.clock import FakeClock
from tuner.power import CapHeld, Energy, Throttle
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mtpd.gpu.window import Window
    from mtpd.types import Reading


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(sysfs.build(tmp_path, "idle"))
    yield made
    made.thread.close()


def _latest(sampler: Sampler) -> Sample | Absent:
    return sampler.latest


def _edge(sampler: Sampler) -> Reading[float]:
    latest = sampler.latest
    assert isinstance(latest, Sample)
    return latest.reading.edge_c


# --- pace ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("serving", "period_s"), [(True, SERVING_S), (False, IDLE_S)])
async def test_readings_are_seldom_when_idle(
    tmp_path: Path,
    serving: bool,  # noqa: FBT001
    period_s: float,
) -> None:
    bench = Bench(sysfs.build(tmp_path, "idle"), serving=lambda: serving)
    async with bench.running():
        await bench.readings(5)
    assert set(bench.slept) == {period_s}


async def test_readings_are_frequent_while_something_is_measured(bench: Bench) -> None:
    async with bench.running() as sampler:
        await bench.readings(2)
        async with sampler.measuring():
            bench.slept.clear()
            await bench.readings(12)
        assert set(bench.slept[1:]) == {MEASURING_S}
        await bench.readings(2)
        assert bench.slept[-1] == SERVING_S


async def test_the_slow_fields_are_read_once_a_second_and_kept_between(bench: Bench) -> None:
    files = bench.sampler._provider._sources[0]._files  # type: ignore[attr-defined]  # counts reads
    async with bench.running() as sampler, sampler.measuring() as window:
        files.reads.clear()
        await bench.readings(31)
    slow = [path for path in files.reads if path.endswith("gpu_metrics")]
    fast = [path for path in files.reads if path.endswith("power1_input")]
    assert len(slow) <= 5
    assert len(fast) >= 30
    assert {sample.throttle for sample in window.samples} == {Throttle.NONE}


async def test_slow_fields_that_are_old_are_not_kept(bench: Bench) -> None:
    await bench.sampler.fresh()
    bench.clock.advance(5.0)
    sample = await bench.sampler._take(slow=False)
    assert sample.reading.throttle == NOT_ASKED


async def test_a_hurried_loop_does_not_wait_for_its_period(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "idle"))

    async def sleep_for_ever(_seconds: float) -> None:
        await anyio.sleep_forever()

    bench.sampler._sleep = sleep_for_ever
    async with bench.running() as sampler:
        await bench.readings(1)
        with anyio.fail_after(5):
            for _ in range(3):
                sampler.hurry()
                await sampler.following()


# --- ring, windows, readers ------------------------------------------------------------------


async def test_nothing_is_known_before_the_first_reading(bench: Bench) -> None:
    assert _latest(bench.sampler) == Absent("nothing was read yet")
    assert bench.sampler.state == DeviceState("unseen")
    taken = await bench.sampler.fresh()
    assert _latest(bench.sampler) == taken
    assert taken.reading.edge_c == Value(38.0, "sysfs")


async def test_the_ring_is_bounded_and_windows_are_cut_from_it(bench: Bench) -> None:
    reading = (await bench.sampler.fresh()).reading
    for number in range(RING + 50):
        bench.sampler._keep(Sample(2000.0 + number, reading), stale=False)
    kept = bench.sampler.window(0.0, 1e9)
    assert len(kept) == RING
    assert bench.sampler.window(kept[10].at_s, kept[20].at_s) == kept[10:21]
    assert bench.sampler.window(-2.0, -1.0) == ()


async def test_a_subscriber_gets_new_readings(bench: Bench) -> None:
    seen: list[Sample] = []
    async with bench.running() as sampler:
        async for sample in sampler.subscribe():
            seen.append(sample)
            if len(seen) == 4:
                break
    assert [sample.at_s for sample in seen] == sorted({sample.at_s for sample in seen})


async def _measure(bench: Bench, seconds: float) -> Window:
    async with bench.running() as sampler, sampler.measuring() as window:
        end_s = bench.clock.now() + seconds
        while bench.clock.now() < end_s:
            await bench.readings(1)
    return window


async def test_a_window_has_a_reading_at_each_edge_and_an_energy(bench: Bench) -> None:
    bench.tree.sensors(power_w=149, busy_percent=99)
    window = await _measure(bench, 10.0)
    energy = window.energy()
    assert isinstance(energy, Energy)
    assert energy.source == "integrated"
    assert energy.joules == pytest.approx(149 * energy.duration_s)
    held = window.cap_held(150.0)
    assert isinstance(held, CapHeld)
    assert held.held
    assert window.slowed().reason is None


async def test_the_edges_are_read_whatever_the_loop_does(bench: Bench) -> None:
    began_s = bench.clock.now()
    async with bench.sampler.measuring() as window:
        bench.clock.advance(7.0)
    assert [sample.at_s for sample in window.samples] == [began_s, began_s + 7.0]
    assert window.energy() == Unknown("the power was unknown for more than 1 s")


async def test_energy_beyond_idle_needs_an_idle_reading(bench: Bench) -> None:
    bench.tree.sensors(power_w=149, busy_percent=99)
    window = await _measure(bench, 6.0)
    assert isinstance(window.net_j(), Unknown)
    bench.tree.sensors(power_w=21, busy_percent=0)
    for _ in range(3):
        await bench.sampler.fresh()
    assert bench.sampler.idle_w == Value(21.0, "sampler")
    bench.tree.sensors(power_w=149, busy_percent=99)
    window = await _measure(bench, 6.0)
    energy, net_j = window.energy(), window.net_j()
    assert isinstance(energy, Energy)
    assert net_j == pytest.approx((149 - 21) * energy.duration_s)


async def test_a_window_that_was_broken_off_has_no_energy(bench: Bench) -> None:
    windows: list[Window] = []

    async def broken_off(sampler: Sampler) -> None:
        async with sampler.measuring() as window:
            windows.append(window)
            await bench.readings(80)
            raise LookupError

    async with bench.running() as sampler:
        with pytest.raises(LookupError):
            await broken_off(sampler)
    (window,) = windows
    assert len(window.samples) > 70
    assert window.energy() == Unknown("the window has no last edge")
    assert isinstance(window.net_j(), Unknown)
    assert bench.sampler.period_s == SERVING_S


async def test_a_window_over_a_card_without_power_has_no_energy(bench: Bench) -> None:
    sysfs.reset(bench.tree)
    window = await _measure(bench, 6.0)
    assert isinstance(window.energy(), Unknown)


async def test_too_long_a_window_is_not_summed(bench: Bench) -> None:
    window = await _measure(bench, 6.0)
    sample = window.samples[-1]
    for number in range(36_000):
        window.add(replace(sample, at_s=sample.at_s + 1 + number))
    assert len(window.samples) == 36_000
    assert isinstance(window.energy(), Unknown)


# --- events ----------------------------------------------------------------------------------


async def test_a_cap_that_reverts_is_told_within_one_reading(bench: Bench) -> None:
    async with bench.running():
        await bench.readings(3)
        assert not [event for event in bench.events if isinstance(event, DeviceCapChanged)]
        bench.tree.sensors(cap_w=190)
        await bench.readings(2)
        bench.tree.fail(f"{sysfs.hwmon()}/power1_cap", 1)
        await bench.readings(2)
        bench.tree.heal()
        await bench.readings(2)
    told = [event for event in bench.events if isinstance(event, DeviceCapChanged)]
    assert told == [DeviceCapChanged(device=sysfs.FIRST, old_w=150.0, new_w=190.0, wanted_w=150.0)]


async def test_heat_is_told_when_it_comes_and_goes_and_the_cap_is_not(bench: Bench) -> None:
    async with bench.running():
        for bits in (sysfs.PPT, sysfs.PPT | sysfs.HOTSPOT | 1 << 11, sysfs.PPT, 0):
            bench.tree.sensors(throttle=bits)
            await bench.readings(2)
    told = [event for event in bench.events if isinstance(event, DeviceThrottled)]
    assert told == [
        DeviceThrottled(device=sysfs.FIRST, reasons=("current", "thermal")),
        DeviceThrottled(device=sysfs.FIRST, reasons=()),
    ]


async def test_a_card_that_sleeps_goes_and_returns_is_followed(bench: Bench) -> None:
    async with bench.running():
        await bench.readings(2)
        sysfs.reset(bench.tree)
        await bench.readings(2)
        bench.tree.heal()
        await bench.readings(2)
        bench.tree.vanish()
        await bench.readings(2)
        sysfs.card(bench.tree, number=5, edge_c=55)
        await bench.readings(2)
    states = [
        (event.old, event.new) for event in bench.events if isinstance(event, DeviceStateChanged)
    ]
    assert states == [
        ("unseen", "answering"),
        ("answering", "silent"),
        ("silent", "answering"),
        ("answering", "gone"),
        ("gone", "answering"),
    ]
    assert _edge(bench.sampler) == Value(55.0, "sysfs")


async def test_a_driver_that_hangs_is_stale_and_comes_back(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "idle"), deadline_s=0.15)
    path = tmp_path / sysfs.hwmon() / "temp1_input"
    await bench.sampler.fresh()
    path.unlink()
    os.mkfifo(path)
    async with bench.running() as sampler:
        with anyio.fail_after(10):
            while sampler.state.name != "stale":
                await sampler.following()
            assert _latest(sampler) == Absent("the driver has not answered within 0.15 s")
            hung = await sampler.fresh()
            assert {getattr(hung.reading, name) for name in FIELDS} == {_latest(sampler)}
            assert isinstance(await sampler.processes(), Absent)
            assert isinstance((await sampler.power_cap()).current_w, Absent)
            assert isinstance(await sampler.explain(), Absent)
            os.close(os.open(path, os.O_WRONLY))  # the blocked open goes on, and fails to read
            path.unlink()
            path.write_text("39000\n")
            while sampler.state.name != "answering":
                await sampler.following()
    assert _edge(sampler) == Value(39.0, "sysfs")


# --- who asks for more -----------------------------------------------------------------------


async def test_processes_limits_and_sources_are_asked_in_the_same_thread(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "serving"))
    found = await bench.sampler.processes((4242,))
    assert not isinstance(found, Absent)
    assert [one.vram_bytes for one in found] == [Value(14_680 * MIB, "kfd")]
    assert (await bench.sampler.power_cap()).max_w == Value(190.0, "sysfs")
    sources = await bench.sampler.explain()
    assert not isinstance(sources, Absent)
    assert [one.field for one in sources] == list(FIELDS)
    bench.thread.close()


async def test_a_worker_thread_can_read_now(bench: Bench) -> None:
    reading = await to_thread.run_sync(bench.sampler.read_from_thread)
    assert reading.edge_c == Value(38.0, "sysfs")


async def test_whether_the_cap_holds_is_judged_under_this_cap_only(bench: Bench) -> None:
    assert bench.sampler.cap_held() == Unknown("the power cap is not known")
    bench.tree.sensors(power_w=189, busy_percent=99, cap_w=190)
    async with bench.running() as sampler:
        await bench.readings(10)
        bench.tree.sensors(power_w=149, cap_w=150)
        await bench.readings(2)
        assert isinstance(sampler.cap_held(), Unknown)
        await bench.readings(8)
        held = sampler.cap_held()
        assert isinstance(held, CapHeld)
        assert (held.held, held.peak_w) == (True, 149.0)
        bench.clock.advance(2000.0)
        assert isinstance(sampler.cap_held(), Unknown)


async def test_the_host_is_answering_and_never_read_ten_times_a_second() -> None:
    thread = TelemetryThread()
    sampler = Sampler(
        provider=LayeredProvider((HostProvider(),)),
        device=HOST,
        thread=thread,
        clock=FakeClock(),
        publish=lambda _event: None,
        serving=lambda: False,
    )
    taken = await sampler.fresh()
    assert taken.reading.edge_c == NotApplicable("there is no GPU")
    assert sampler.state == DeviceState("answering")
    assert sampler.period_s == IDLE_S
    async with sampler.measuring() as window:
        assert sampler.period_s == SERVING_S
    assert isinstance(window.energy(), Unknown)
    thread.close()


# --- suspend ---------------------------------------------------------------------------------


async def test_a_card_that_woke_up_is_known_by_nothing_that_was_read_before(bench: Bench) -> None:
    sampler = bench.sampler
    await sampler.fresh()
    bench.clock.advance(1.0)
    await sampler.fresh()
    before = sampler.energy_j
    assert isinstance(before, Value)
    async with sampler.measuring() as window:
        bench.clock.advance(1.0)
        bench.clock.suspend(28_800.0)
        sample = await sampler._take(slow=False)
        assert sample.reading.throttle == NOT_ASKED, "the slow fields were read yesterday"
        assert sampler.window(0.0, 1e9) == (sample,)
        bench.clock.advance(1.0)
    assert window.energy() == Unknown("the machine was suspended for 8 h")
    assert window.net_j() == Unknown("the machine was suspended for 8 h")
    after = sampler.energy_j
    assert isinstance(after, Value)
    assert 0 < after.value - before.value < 100, "a second's, and not a night's"


async def test_a_cap_that_held_before_a_suspend_is_not_seen_to_hold(tmp_path: Path) -> None:
    bench = Bench(sysfs.build(tmp_path, "serving"))
    async with bench.running() as sampler:
        await bench.readings(10)
        assert isinstance(sampler.cap_held(), CapHeld)
        bench.clock.suspend(28_800.0)
        await bench.readings(1)
        assert isinstance(sampler.cap_held(), Unknown)
