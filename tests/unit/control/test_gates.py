"""Gates over a scripted card: what passes, what is waited for, what is hopeless at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.model import HardwareProfile
from mtpd.control.gates import COOL_S, DEFAULT_EDGE_C, SAMPLE_S, Gates
from mtpd.gpu.base import Device, GpuReading, PowerCap, absent_everywhere
from mtpd.gpu.host import HostProvider
from mtpd.types import Absent, Value
from mtpd.units import DeviceKey
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection

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
        self.reads = 0

    def devices(self) -> tuple[Device, ...]:
        return (Device(key=CARD, vendor="amd"),)

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        assert key == CARD
        self.reads += 1
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...]:
        return ()

    def power_cap(self, key: DeviceKey) -> PowerCap:
        return PowerCap(current_w=self._left[0].power_cap_w)

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


def gates(card: Card, waiting: Waiting, *, hardware: HardwareProfile | None = CAPPED) -> Gates:
    return Gates(
        provider=card,
        device=CARD,
        hardware=hardware,
        clock=waiting.clock,
        sleep=waiting.sleep,
    )


async def test_a_host_without_a_card_passes_at_once() -> None:
    waiting = Waiting()
    host = HostProvider()
    found = Gates(
        provider=host,
        device=host.devices()[0].key,
        hardware=CAPPED,
        clock=waiting.clock,
        sleep=waiting.sleep,
    )
    assert (await found.measuring()).passed
    assert [view.state for view in await found.views()] == ["not_applicable"] * 2
    assert waiting.slept == []


async def test_a_cool_card_passes_after_three_samples_a_second_apart() -> None:
    waiting, card = Waiting(), Card(reading(40.0))
    result = await gates(card, waiting).measuring()
    assert result.passed
    assert "at or below 50 °C for 3 samples" in result.reason
    assert "power cap is 150 W" in result.reason
    assert waiting.slept == [SAMPLE_S, SAMPLE_S]


async def test_a_hot_card_is_waited_for_until_it_was_cool_three_times() -> None:
    hot = [reading(edge) for edge in (61.0, 52.0, 49.0, 51.0, 50.0, 49.0, 48.0)]
    waiting, card = Waiting(), Card(*hot)
    assert (await gates(card, waiting).measuring()).passed
    assert card.reads == len(hot)
    assert waiting.slept == [SAMPLE_S] * (len(hot) - 1)


async def test_a_card_that_does_not_cool_is_given_up_with_its_temperature() -> None:
    waiting = Waiting(lasts=100.0)
    result = await gates(Card(reading(71.0)), waiting).measuring()
    assert not result.passed
    assert result.reason == "the edge is at 71 °C, above 50 °C"
    assert COOL_S < 100.0 * sum(waiting.slept) <= COOL_S + 100.0 * SAMPLE_S


@pytest.mark.parametrize(
    ("cap", "why"),
    [(225.0, "the power cap is 225 W, not the 150 W that are configured"), (None, "unknown")],
)
async def test_a_wrong_or_unknown_cap_is_not_waited_for(cap: float | None, why: str) -> None:
    waiting = Waiting()
    result = await gates(Card(reading(40.0, cap), reading(40.0, cap)), waiting).measuring()
    assert not result.passed
    assert waiting.slept == []
    states = {view.name: view for view in await gates(Card(reading(40.0, cap)), waiting).views()}
    assert why in states["power_cap"].reason


async def test_an_unknown_temperature_passes_nothing_and_is_not_waited_for() -> None:
    waiting = Waiting()
    result = await gates(Card(reading(None)), waiting).measuring()
    assert not result.passed
    assert result.reason == "the edge temperature is unknown: no sensor"
    assert sum(waiting.slept) < COOL_S / 100


async def test_without_a_hardware_profile_the_studys_limit_holds_and_no_cap() -> None:
    waiting = Waiting()
    warm = gates(Card(reading(DEFAULT_EDGE_C, 225.0)), waiting, hardware=None)
    assert (await warm.measuring()).passed
    above = gates(Card(reading(DEFAULT_EDGE_C + 0.5)), Waiting(lasts=300.0), hardware=None)
    assert not (await above.measuring()).passed


async def test_who_asks_for_the_status_meanwhile_does_not_shorten_the_hold() -> None:
    waiting, card = Waiting(), Card(reading(40.0))
    asked = gates(card, waiting)
    for _ in range(3):
        await asked.views()
    (shown, _) = await asked.views()
    assert shown.state == "passed"

    async def sleep_while_somebody_asks(seconds: float) -> None:
        await waiting.sleep(seconds)
        await asked.views()

    asked = Gates(
        provider=card,
        device=CARD,
        hardware=CAPPED,
        clock=waiting.clock,
        sleep=sleep_while_somebody_asks,
    )
    assert (await asked.measuring()).passed
    assert waiting.slept == [SAMPLE_S, SAMPLE_S]
