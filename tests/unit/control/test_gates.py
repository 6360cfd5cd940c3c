"""Gates over a scripted card: what passes, what is waited for, what is hopeless at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.model import HardwareProfile
from mtpd.control.gates import COOL_S, DEFAULT_EDGE_C, SAMPLE_S, Gates
from mtpd.gpu.base import Device, GpuReading, PowerCap, absent_everywhere
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sampler import Sampler
from mtpd.gpu.worker import TelemetryThread
from mtpd.types import Absent, Value
from mtpd.units import DeviceKey
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterator

    from mtpd.types import ProcessMemory, Reading

CARD = DeviceKey("0000:03:00.0")
CAPPED = HardwareProfile(
    name="card",
    description="a card",
    isa="gfx906",
    vram_mib=16368,
    power_cap_w=150.0,
    gate_edge_c=50.0,
    row_cost=None,
    row_cost_source=None,
    drafting_note=None,
)


class Card:
    """A provider that gives one reading after the other; the last one stays."""

    name = "scripted"

    def __init__(self, *readings: GpuReading) -> None:
        self._left = list(readings)
        self._now = readings[0]
        self.reads = 0

    def devices(self) -> tuple[Device, ...]:
        return (Device(key=CARD, vendor="amd"),)

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        assert key == CARD
        self.reads += 1
        self._now = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return self._now

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...]:
        return ()

    def power_cap(self, key: DeviceKey) -> PowerCap:
        return PowerCap(current_w=self._now.power_cap_w)

    def close(self) -> None:
        pass


class Waiting:
    """Sleeps that only move the clock, by ``lasts`` seconds for each one asked for."""

    def __init__(self, *, lasts: float = 1.0) -> None:
        self.clock = FakeClock()
        self.slept: list[float] = []
        self._lasts = lasts

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(self._lasts * seconds)
        await anyio.lowlevel.checkpoint()


def reading(edge: float | None, cap: float | None = 150.0) -> GpuReading:
    edge_c: Reading[float] = Absent("no sensor") if edge is None else Value(edge, "scripted")
    cap_w: Reading[float] = Absent("no right to read") if cap is None else Value(cap, "scripted")
    return replace(absent_everywhere("not scripted"), edge_c=edge_c, power_cap_w=cap_w)


Make = Callable[..., Gates]


@pytest.fixture
def gates() -> Iterator[Make]:
    thread = TelemetryThread()

    def make(
        card: Card | HostProvider,
        waiting: Waiting,
        *,
        hardware: HardwareProfile | None = CAPPED,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> Gates:
        sampler = Sampler(
            provider=LayeredProvider((card,)),
            device=card.devices()[0].key,
            thread=thread,
            clock=waiting.clock,
            publish=lambda _event: None,
        )
        return Gates(
            sampler=sampler, hardware=hardware, clock=waiting.clock, sleep=sleep or waiting.sleep
        )

    yield make
    thread.close()


async def test_a_host_without_a_card_passes_at_once(gates: Make) -> None:
    waiting = Waiting()
    found = gates(HostProvider(), waiting)
    result = await found.measuring()
    assert (result.passed, result.gate, result.edge_c) == (True, "not_applicable", None)
    assert [view.state for view in await found.views()] == ["not_applicable"] * 2
    assert waiting.slept == []


async def test_a_cool_card_passes_after_three_samples_a_second_apart(gates: Make) -> None:
    waiting, card = Waiting(), Card(reading(40.0))
    result = await gates(card, waiting).measuring()
    assert result.passed
    assert "at or below 50 °C for 3 samples" in result.reason
    assert "power cap is 150 W" in result.reason
    assert waiting.slept == [SAMPLE_S, SAMPLE_S]


async def test_a_hot_card_is_waited_for_until_it_was_cool_three_times(gates: Make) -> None:
    hot = [reading(edge) for edge in (61.0, 52.0, 49.0, 51.0, 50.0, 49.0, 48.0)]
    waiting, card = Waiting(), Card(*hot)
    assert (await gates(card, waiting).measuring()).passed
    assert card.reads == len(hot)
    assert waiting.slept == [SAMPLE_S] * (len(hot) - 1)


async def test_a_card_that_does_not_cool_is_given_up_with_its_temperature(gates: Make) -> None:
    waiting = Waiting(lasts=100.0)
    result = await gates(Card(reading(71.0)), waiting).measuring()
    assert (result.passed, result.gate, result.edge_c) == (False, "timeout", 71.0)
    assert result.reason == "gate: timeout after 600 s: the edge is at 71 °C, above 50 °C"
    assert 100.0 * sum(waiting.slept) == COOL_S


@pytest.mark.parametrize(
    ("cap", "why"),
    [(225.0, "the power cap is 225 W, not the 150 W that are configured"), (None, "unknown")],
)
async def test_a_wrong_or_unknown_cap_is_not_waited_for(
    gates: Make, cap: float | None, why: str
) -> None:
    waiting = Waiting()
    result = await gates(Card(reading(40.0, cap), reading(40.0, cap)), waiting).measuring()
    assert not result.passed
    assert waiting.slept == []
    states = {view.name: view for view in await gates(Card(reading(40.0, cap)), waiting).views()}
    assert why in states["power_cap"].reason


async def test_an_unknown_temperature_passes_nothing_and_is_not_waited_for(gates: Make) -> None:
    waiting = Waiting()
    result = await gates(Card(reading(None)), waiting).measuring()
    assert not result.passed
    assert result.reason == "the edge temperature is unknown: no sensor"
    assert sum(waiting.slept) < COOL_S / 100


async def test_without_a_declared_cap_nothing_is_measured_on_a_card(gates: Make) -> None:
    for hardware in (None, replace(CAPPED, power_cap_w=None)):
        waiting = Waiting()
        result = await gates(
            Card(reading(DEFAULT_EDGE_C, 225.0)), waiting, hardware=hardware
        ).measuring()
        assert not result.passed
        assert result.reason == "the power cap is 225 W, and no hardware profile declares one"
        assert waiting.slept == []


async def test_a_profile_without_a_temperature_has_the_studys(gates: Make) -> None:
    hardware = replace(CAPPED, gate_edge_c=None)
    warm = gates(Card(reading(DEFAULT_EDGE_C)), Waiting(), hardware=hardware)
    assert (await warm.measuring()).passed
    above = gates(Card(reading(DEFAULT_EDGE_C + 0.5)), Waiting(lasts=300.0), hardware=hardware)
    assert not (await above.measuring()).passed


async def test_a_card_without_a_fan_may_rest_at_any_temperature(gates: Make) -> None:
    cooling = [reading(edge) for edge in (71.0, 66.0, 62.0, 59.0, 57.0, 56.0)]
    waiting, card = Waiting(), Card(*cooling)
    hardware = replace(CAPPED, gate="relative")
    result = await gates(card, waiting, hardware=hardware).measuring()
    assert (result.passed, result.gate, result.edge_c) == (True, "relative", 56.0)
    assert "rests at 56 °C" in result.reason
    assert 30 <= sum(waiting.slept) <= 60


async def test_a_busy_card_that_exceeds_its_cap_is_not_measured(gates: Make) -> None:
    busy = replace(
        reading(40.0),
        power_w=Value(171.0, "scripted"),
        busy_percent=Value(99.0, "scripted"),
    )
    waiting = Waiting()
    asked = gates(Card(*[busy] * 10, reading(40.0)), waiting)
    for _ in range(10):
        await asked.views()
        waiting.clock.advance(1.0)
    result = await asked.measuring()
    assert not result.passed
    assert "the cap of 150 W is not in force" in result.reason


async def test_who_asks_for_the_status_meanwhile_does_not_shorten_the_hold(gates: Make) -> None:
    waiting, card = Waiting(), Card(reading(40.0))
    asked = gates(card, waiting)
    for _ in range(3):
        await asked.views()
    (shown, _) = await asked.views()
    assert shown.state == "passed"

    async def sleep_while_somebody_asks(seconds: float) -> None:
        await waiting.sleep(seconds)
        await asked.views()

    asked = gates(card, waiting, sleep=sleep_while_somebody_asks)
    assert (await asked.measuring()).passed
    assert waiting.slept == [SAMPLE_S, SAMPLE_S]


async def test_a_cap_that_cannot_pass_refuses_before_an_engine_is_started(gates: Make) -> None:
    waiting = Waiting()
    assert await gates(Card(reading(90.0)), waiting).refusal() is None, "it may cool"
    assert await gates(Card(reading(None)), waiting).refusal() is None
    unread = replace(reading(40.0), power_cap_w=Absent("the card is asleep"))
    assert await gates(Card(unread), waiting).refusal() is None, "it may wake"
    wrong = replace(reading(40.0), power_cap_w=Value(190.0, "scripted"))
    assert "190 W" in str(await gates(Card(wrong), waiting).refusal())


async def test_a_card_without_a_profile_is_judged_by_an_absolute_temperature(gates: Make) -> None:
    result = await gates(Card(reading(40.0)), Waiting(), hardware=None).measuring()
    assert result.gate == "absolute"


async def test_a_card_that_slept_must_be_seen_cool_anew(gates: Make) -> None:
    waiting, card = Waiting(), Card(reading(40.0))

    async def sleep(seconds: float) -> None:
        await waiting.sleep(seconds)
        if len(waiting.slept) == 2:
            waiting.clock.suspend(28_800.0)

    result = await gates(card, waiting, sleep=sleep).measuring()
    assert result.passed
    assert waiting.slept == [SAMPLE_S] * 4, "two before, and three after it of their own"
