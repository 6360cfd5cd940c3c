"""Conditions of measuring: the card is cool and its power cap is in force.

Covers asking the card and waiting for it to cool. Without a card neither question
arises, which passes; an unknown answer never does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from mtpd.gpu import gate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.config.model import HardwareProfile
    from mtpd.gpu.base import GpuProvider
    from mtpd.types import GateResult, Reading
    from mtpd.units import DeviceKey
    from mtpd.views import GateView

__all__ = ["DEFAULT_EDGE_C", "Gates"]

DEFAULT_EDGE_C = 44.0
"""Study 000: every run began at an edge temperature of at most 44 degrees Celsius."""

SAMPLE_S = 1.0
COOL_S = 900.0
"""How long a card may take to cool before a measurement is given up."""


class Gates:
    """Answers for one device.

    Args:
        provider: Source of readings.
        device: Which device of it.
        hardware: What the card is declared to be, or None.
        clock: Bounds the wait.
        sleep: Waits between two samples.
    """

    def __init__(
        self,
        *,
        provider: GpuProvider,
        device: DeviceKey,
        hardware: HardwareProfile | None,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._provider = provider
        self._device = device
        self._clock = clock
        self._sleep = sleep
        self._limit_c = DEFAULT_EDGE_C
        self._cap_w: float | None = None
        if hardware is not None:
            self._limit_c = hardware.gate_edge_c or DEFAULT_EDGE_C
            self._cap_w = hardware.power_cap_w
        self._shown = _edges()

    async def views(self) -> tuple[GateView, ...]:
        """Every gate as the API shows it, with a fresh reading."""
        return await self._look(self._shown)

    async def measuring(self) -> GateResult:
        """Wait until a measurement may start, or until it is clear that it may not.

        A hot card is waited for, up to ``COOL_S``; an unknown temperature or a wrong cap
        does not become right by waiting.
        """
        began = self._clock.now()
        edges = _edges()  # its own: who asks for the status meanwhile must not shorten the hold
        while True:
            cooling, cap = await self._look(edges)
            result = gate.result(cooling, cap)
            sampled = len(edges) == gate.HOLD
            waits = cooling.state == "failed" or not sampled
            hopeless = cap.state not in {"passed", "not_applicable"}
            if result.passed or hopeless or not waits:
                return result
            if self._clock.now() - began > COOL_S:
                return result
            await self._sleep(SAMPLE_S)

    async def _look(self, edges: deque[Reading[float]]) -> tuple[GateView, GateView]:
        # A driver may block for a while; the loop must not.
        reading = await to_thread.run_sync(self._provider.read, self._device)
        edges.append(reading.edge_c)
        return (
            gate.cooling(tuple(edges), limit_c=self._limit_c),
            gate.cap(reading.power_cap_w, wanted_w=self._cap_w),
        )


def _edges() -> deque[Reading[float]]:
    return deque(maxlen=gate.HOLD)
