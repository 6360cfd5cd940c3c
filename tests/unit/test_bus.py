"""The bus: order, replay, slow readers, the envelope."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from mtpd.bus import Bus, SubscriberDropped
from mtpd.events import (
    DaemonStarted,
    DaemonStopping,
    DecisionMade,
    EngineLoadProgress,
    EngineTransition,
    Envelope,
    Event,
    MeasurementTaken,
    MemoryCreeps,
    OperationChanged,
    RequestFinished,
    ResidencyJudged,
    type_name,
)
from mtpd.units import Seq
from mtpd.views import ResidencyView
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision_view, measurement_view, operation_view


def _bus(*, keep: int = 8, queue: int = 4) -> Bus:
    return Bus(boot="boot-1", clock=FakeClock(), keep=keep, queue=queue)


def _event(number: int = 0) -> DaemonStarted:
    return DaemonStarted(version=str(number))


async def _take(bus: Bus, count: int, *, after: Seq | None = None) -> list[int]:
    """Read so many events of an open stream."""
    with anyio.fail_after(5):
        async with bus.subscribe(after) as reader:
            return [await _next_seq(reader.__anext__) for _ in range(count)]


async def _next_seq(read: object) -> int:
    assert callable(read)
    item = await read()
    assert isinstance(item, Envelope)
    return item.seq


def test_an_envelope_says_who_when_and_why() -> None:
    bus = _bus()
    first = bus.publish(_event())
    second = bus.publish(_event(), cause=first.seq)

    assert (first.boot, first.seq, first.cause) == ("boot-1", 1, None)
    assert (second.seq, second.cause) == (2, 1)
    assert first.at == "2026-11-29T12:00:00.000Z"
    assert bus.seq == 2


async def test_a_reader_gets_what_comes_after_it_subscribed() -> None:
    bus = _bus()
    bus.publish(_event())
    async with bus.subscribe() as reader:
        bus.publish(_event(2))
        bus.publish(_event(3))
        assert [await _next_seq(reader.__anext__) for _ in range(2)] == [2, 3]


async def test_a_reader_that_waits_is_woken() -> None:
    bus = _bus()
    got: list[int] = []

    async def read() -> None:
        got.extend(await _take(bus, 3))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for number in range(3):
                await anyio.wait_all_tasks_blocked()
                bus.publish(_event(number))
    assert got == [1, 2, 3]


async def test_a_replay_begins_after_the_wanted_event() -> None:
    bus = _bus()
    for number in range(5):
        bus.publish(_event(number))
    assert await _take(bus, 3, after=Seq(2)) == [3, 4, 5]


async def test_a_replay_is_bounded_and_begins_with_the_oldest_kept() -> None:
    bus = _bus(keep=3)
    for number in range(10):
        bus.publish(_event(number))
    assert await _take(bus, 3, after=Seq(0)) == [8, 9, 10]


async def test_a_replay_longer_than_the_queue_does_not_drop_its_reader() -> None:
    bus = _bus(keep=100, queue=2)
    for number in range(50):
        bus.publish(_event(number))
    async with bus.subscribe(Seq(0)) as reader:
        bus.publish(_event())
        assert [await _next_seq(reader.__anext__) for _ in range(51)] == list(range(1, 52))
    assert bus.dropped == 0


async def test_a_slow_reader_is_dropped_and_told_where_it_was() -> None:
    bus = _bus(queue=4)
    async with bus.subscribe() as slow, bus.subscribe() as other:
        for number in range(6):
            bus.publish(_event(number))
            assert await _next_seq(other.__anext__) == number + 1
        items = [item async for item in slow]

    assert [item.seq for item in items[:-1] if isinstance(item, Envelope)] == [1, 2, 3, 4]
    assert items[-1] == SubscriberDropped(Seq(4))
    assert bus.dropped == 1


async def test_a_reader_that_left_is_not_counted_as_slow() -> None:
    bus = _bus(queue=1)
    async with bus.subscribe():
        pass
    for number in range(5):
        bus.publish(_event(number))
    assert bus.dropped == 0


async def test_closing_ends_every_stream_after_what_is_queued() -> None:
    bus = _bus()
    async with bus.subscribe() as reader:
        bus.publish(_event())
        bus.close()
        items = [item async for item in reader]
    assert len(items) == 1
    async with bus.subscribe() as late:
        assert [item async for item in late] == []


async def test_a_busy_stream_lets_its_reader_be_cancelled() -> None:
    bus = _bus(queue=10_000)
    read = 0
    async with bus.subscribe() as reader:
        for number in range(1000):
            bus.publish(_event(number))
        with anyio.CancelScope() as scope:
            async for _ in reader:
                read += 1
                if read == 10:
                    scope.cancel()
    assert read == 10


RESIDENCY = ResidencyView(state="host", layers=None, spilled_bytes=None, reason="", evidence=())
EVENTS: list[tuple[Event, str, dict[str, str]]] = [
    (DaemonStarted(version="1"), "daemon.started", {}),
    (DaemonStopping(reason="SIGTERM"), "daemon.stopping", {}),
    (
        EngineTransition(
            engine_id="e", profile="tiny", arm="tiny@2", old="ready", new="draining", reason=""
        ),
        "engine.transition",
        {"engine": "e", "profile": "tiny"},
    ),
    (
        EngineLoadProgress(engine_id="e", profile="tiny", lines=3),
        "engine.load_progress",
        {"engine": "e", "profile": "tiny"},
    ),
    (
        ResidencyJudged(engine_id="e", profile="tiny", arm="tiny@2", residency=RESIDENCY),
        "residency.judged",
        {"engine": "e", "profile": "tiny"},
    ),
    (
        MemoryCreeps(
            engine_id="e",
            profile="tiny",
            arm="tiny@2",
            grown_bytes=1,
            window_s=600.0,
            full_in_s=None,
        ),
        "memory.creeps",
        {"engine": "e", "profile": "tiny"},
    ),
    (
        MeasurementTaken(measurement=measurement_view(id=7, operation_id="op")),
        "measurement.taken",
        {"measurement": "7", "engine": "engine-1", "operation": "op"},
    ),
    (
        DecisionMade(decision=decision_view(id=9, operation_id=None)),
        "decision.made",
        {"decision": "9", "subject": "tiny"},
    ),
    (
        OperationChanged(operation=operation_view(id="op")),
        "operation.changed",
        {"operation": "op"},
    ),
    (
        RequestFinished(
            request_id="r",
            profile="tiny",
            depth=2,
            path="/completion",
            outcome="complete",
            status=200,
            duration_s=0.5,
        ),
        "request.finished",
        {"request": "r", "profile": "tiny"},
    ),
]


@pytest.mark.parametrize(("event", "kind", "ids"), EVENTS, ids=[kind for _, kind, _ in EVENTS])
def test_an_event_has_a_dotted_type_and_says_what_it_is_about(
    event: Event, kind: str, ids: dict[str, str]
) -> None:
    envelope = _bus().publish(event)
    assert type_name(type(event)) == kind
    assert (envelope.type, envelope.ids, envelope.event) == (kind, ids, event)


async def test_every_reader_sees_the_same_gapless_order() -> None:
    bus = _bus(queue=1000)
    seen: list[list[int]] = []

    async def read(count: int) -> None:
        seen.append(await _take(bus, count))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for count in (10, 20, 30):
                tasks.start_soon(read, count)
            await anyio.wait_all_tasks_blocked()
            for number in range(30):
                bus.publish(_event(number))
    assert sorted(len(one) for one in seen) == [10, 20, 30]
    assert all(b == a + 1 for one in seen for a, b in pairwise(one))
