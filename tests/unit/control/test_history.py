"""What is remembered of the last hours, over a real sampler of a fake card."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.control.history import DEVICE, POSITIONS, SERIES, History
from mtpd.engine.prom import SpecCounters
from mtpd.events import DaemonStarted
from mtpd.history_views import UNITS, DeviceLimitsView, HistoryView
from mtpd.proxy.admission_types import Priority
from mtpd.proxy.open_requests import OpenRequest, OpenRequests
from mtpd.types import Absent
from mtpd.views import QueueView
from tests.fakes import sysfs
from tests.fakes.card import Bench
from tests.unit.control.test_observed import COUNTED, FINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMITS = DeviceLimitsView(
    device=sysfs.FIRST,
    declared_cap_w=150.0,
    gate_edge_c=44.0,
    junction_limit_c=None,
    vram_total_bytes=None,
)


class Rig:
    """A history with its card, its clock and its queue."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(sysfs.build(folder, "idle"))
        self.queue = QueueView(waiting=2, limit=64, timeout_s=120.0, in_flight=1)
        self.requests = OpenRequests(self.bench.clock)
        self.history = History(
            sampler=self.bench.sampler,
            queue=lambda: self.queue,
            requests=self.requests,
            limits=LIMITS,
            clock=self.bench.clock,
        )

    async def read(self, after_s: float = 0.0) -> None:
        """Take a reading some seconds later."""
        self.bench.clock.advance(after_s)
        self.history.sampled(await self.bench.sampler.fresh())

    def view(self, since_s: float = 60.0, step_s: float = 5.0) -> HistoryView:
        return self.history.view(None, since_s=since_s, step_s=step_s)

    def mean(self, metric: str, position: int | None = None) -> list[float | None]:
        (found,) = [
            one for one in self.view().series if (one.metric, one.position) == (metric, position)
        ]
        return list(found.mean)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.bench.thread.close()


async def test_readings_of_the_card_and_the_queue_are_kept_and_gaps_are_gaps(rig: Rig) -> None:
    await rig.read()
    await rig.read(after_s=20)
    power = rig.mean("power_w")
    assert [value is not None for value in power[-5:]] == [True, False, False, False, True]
    assert rig.mean("requests_waiting")[-5:] == [2.0, None, None, None, 2.0]
    view = rig.view()
    (limits,) = view.limits
    assert limits.vram_total_bytes is not None
    assert dataclasses.replace(limits, vram_total_bytes=None) == LIMITS
    assert (view.at, view.begin) == ("2026-11-29T12:00:20.000Z", "2026-11-29T11:59:25.000Z")
    assert (view.step_s, view.count) == (5.0, 12)
    assert {one.device for one in view.series if one.metric in DEVICE} == {sysfs.FIRST}
    assert {one.unit for one in view.series if one.metric == "edge_c"} == {"°C"}


async def test_a_sensor_that_is_lost_leaves_a_gap_and_never_a_zero(rig: Rig) -> None:
    await rig.read()
    sample = await rig.bench.sampler.fresh()
    rig.bench.clock.advance(10)
    lost = dataclasses.replace(sample.reading, edge_c=Absent("the card is in reset"))
    rig.history.sampled(dataclasses.replace(sample, at_s=rig.bench.clock.now(), reading=lost))
    assert rig.mean("edge_c")[-1] is None
    assert rig.mean("power_w")[-1] is not None


async def test_what_was_never_seen_is_missing_with_its_reason(rig: Rig) -> None:
    sample = await rig.bench.sampler.fresh()
    lost = dataclasses.replace(sample.reading, junction_c=Absent("no such sensor"))
    rig.history.sampled(dataclasses.replace(sample, reading=lost))
    view = rig.view()
    missing = {one.metric: one for one in view.missing}
    assert missing["junction_c"].reason == "no such sensor"
    assert missing["junction_c"].device == sysfs.FIRST
    assert missing["decode_tps"].reason == "no reply of 16 tokens or more has ended yet"
    assert {one.metric for one in view.series} | set(missing) == set(UNITS)


async def test_replies_say_how_fast_they_were_and_what_they_cost(rig: Rig) -> None:
    for _ in range(10):
        await rig.read(after_s=1)
    rig.history.observe(DaemonStarted(version="1"))
    rig.history.observe(
        dataclasses.replace(FINISHED, decode_s=8.0, prompt_s=2.0, cached_tokens=1000)
    )
    rig.history.observe(dataclasses.replace(FINISHED, decode_s=2.0))
    # 202 tokens in 10 seconds; of 9000 prompt tokens 8000 were read in 2 seconds.
    assert rig.mean("decode_tps")[-1] == 20.2
    assert rig.mean("prompt_tps")[-1] == 4000.0
    power = rig.bench.sampler.around(0, rig.bench.clock.now()).power_mean_w
    assert power is not None
    joules = rig.mean("joules_per_token")[-1]
    assert joules == pytest.approx(power * 10.0 / 202, rel=1e-6)
    speed = rig.view().series[0]
    assert (speed.metric, speed.low[-1], speed.high[-1]) == ("decode_tps", 12.625, 50.5)


async def test_what_says_nothing_of_the_speed_is_not_taken(rig: Rig) -> None:
    for _ in range(10):
        await rig.read(after_s=1)
    for change in ({"generated": 15}, {"generated": None}, {"decode_s": None}, {"decode_s": 0.0}):
        rig.history.observe(dataclasses.replace(FINISHED, **change))
    rig.history.observe(
        dataclasses.replace(FINISHED, generated=1, prompt_s=1.0, cached_tokens=9000)
    )
    assert not {one.metric for one in rig.view().series} & {"decode_tps", "prompt_tps"}
    rig.history.observe(dataclasses.replace(FINISHED, generated=16, decode_s=8.0, alone=False))
    assert rig.mean("decode_tps")[-1] == 2.0, "sixteen are enough"
    rig.history.observe(dataclasses.replace(FINISHED, decode_s=8.0, alone=False))
    assert "joules_per_token" not in {one.metric for one in rig.view().series}


async def test_acceptance_is_pooled_by_position_given_that_all_before_were_accepted(
    rig: Rig,
) -> None:
    rig.history.counted(COUNTED)
    rig.history.counted(SpecCounters(drafts=10, drafted=20, accepted=4, per_position=(4, 0, 0)))
    rig.history.counted(SpecCounters(drafts=5, drafted=0, accepted=0, per_position=None))
    assert rig.mean("acceptance", 1)[-1] == pytest.approx(40 / 50)
    assert rig.mean("acceptance", 2)[-1] == pytest.approx(24 / 40)
    positions = [one.position for one in rig.view().series]
    assert positions == [1, 2], "the third was never reached"


async def test_a_stream_is_seen_while_it_runs(rig: Rig) -> None:
    sent = 0
    one = OpenRequest(
        id="r",
        profile="m",
        path="/v1/chat/completions",
        priority=Priority.NORMAL,
        caller=None,
        came=rig.bench.clock.now(),
        events=lambda: sent,
    )
    await rig.read()
    with rig.requests.shown(one):
        sent = 30
        await rig.read(after_s=5)
        sent = 80
    await rig.read(after_s=5)
    await rig.read(after_s=5)
    assert rig.mean("stream_tps")[-3:] == [6.0, 10.0, 0.0]


async def test_it_holds_no_more_series_than_it_says(rig: Rig) -> None:
    await rig.read()
    await rig.read(after_s=1)
    rig.history.observe(dataclasses.replace(FINISHED, prompt_s=1.0))
    deep = tuple(range(2 * POSITIONS, 0, -1))
    rig.history.counted(SpecCounters(drafts=99, drafted=99, accepted=99, per_position=deep))
    assert len(rig.history._series) <= SERIES
    assert len([one for one in rig.view().series if one.position]) == POSITIONS


async def test_it_follows_the_sampler(rig: Rig) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.history.run)
        async with rig.bench.running():
            await rig.bench.readings(8)
        tasks.cancel_scope.cancel()
    assert sum(value is not None for value in rig.mean("power_w")) >= 1


async def test_a_night_is_a_gap_and_no_rate_is_drawn_over_it(rig: Rig) -> None:
    await rig.read()
    await rig.read(after_s=5)
    rig.bench.clock.suspend(1800.0)
    streamed = OpenRequest(
        id="r", profile="m", path="/", priority=Priority.NORMAL, caller=None, came=0.0
    )
    streamed.events = lambda: 900
    with rig.requests.shown(streamed):
        await rig.read(after_s=5)
        view = rig.view(since_s=2000.0)
        assert view.at == "2026-11-29T12:30:10.000Z"
        power = rig_series(view, "power_w")
        assert [at for at, value in enumerate(reversed(power)) if value is not None] == [
            0,
            361,
            362,
        ]
        assert rig_series(view, "stream_tps")[-1] is None
        await rig.read(after_s=5)
        assert rig_series(rig.view(), "stream_tps")[-1] == 0.0


def rig_series(view: HistoryView, metric: str) -> list[float | None]:
    return next(list(one.mean) for one in view.series if one.metric == metric)


async def test_a_request_that_was_slept_through_says_nothing_of_speed(rig: Rig) -> None:
    rig.history.observe(dataclasses.replace(FINISHED, suspended_s=28_800.0))
    assert not rig.view().series
