"""Conditions of measuring: the card is cool and its power cap is in force.

Covers asking the card and waiting for it to cool. Without a card neither question
arises, which passes; an unknown answer never does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from mtpd.gpu import gate
from mtpd.suspend import lasted_s
from mtpd.types import Value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mtpd.clock import Clock
    from mtpd.config.model import HardwareProfile
    from mtpd.gpu.sampler import Sample, Sampler
    from mtpd.types import GateResult, Reading
    from mtpd.views import GateView

__all__ = ["DEFAULT_EDGE_C", "Gates"]

DEFAULT_EDGE_C: Final = 44.0
"""Study 000: every run began at an edge temperature of at most 44 degrees Celsius."""

SAMPLE_S: Final = 1.0
COOL_S: Final = 600.0
"""How long a card may take to cool before a measurement is given up."""

_KEPT: Final = round(gate.RELATIVE_S / SAMPLE_S) + 1


class Gates:
    """Answers for one device.

    Args:
        sampler: Reads it.
        hardware: What the card is declared to be, or None.
        clock: Bounds the wait.
        sleep: Waits between two samples.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        hardware: HardwareProfile | None,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._sampler = sampler
        self._clock = clock
        self._sleep = sleep
        self._limit_c = DEFAULT_EDGE_C
        self._cap_w: float | None = None
        self._kind = "absolute"
        if hardware is not None:
            self._limit_c = hardware.gate_edge_c or DEFAULT_EDGE_C
            self._cap_w = hardware.power_cap_w
            self._kind = hardware.gate
        self._shown = _Edges(clock)

    @property
    def edge_limit_c(self) -> float | None:
        """Edge temperature at or below which a measurement may begin; None for a relative gate."""
        return None if self._kind == "relative" else self._limit_c

    async def views(self) -> tuple[GateView, ...]:
        """Every gate as the API shows it, with a fresh reading."""
        _, views = await self._look(self._shown)
        return views

    async def measuring(self) -> GateResult:
        """Wait until a measurement may start, or until it is clear that it may not.

        A hot card is waited for, up to ``COOL_S``; an unknown temperature or a wrong cap
        does not become right by waiting.
        """
        began = self._clock.now()
        edges = _Edges(
            self._clock
        )  # its own: who asks for the status meanwhile must not shorten the hold
        while True:
            sample, (cooling, cap) = await self._look(edges)
            edge = sample.reading.edge_c
            result = gate.result(
                cap,  # first: no waiting makes it right, so it is what is to be said
                cooling,
                kind=self._kind,
                edge_c=edge.value if isinstance(edge, Value) else None,
            )
            waits = cooling.state == "failed" or len(edges.kept) < gate.HOLD
            hopeless = cap.state not in {"passed", "not_applicable"}
            if result.passed or hopeless or not waits:
                return result
            if self._clock.now() - began >= COOL_S:
                reason = f"gate: timeout after {COOL_S:g} s: {result.reason}"
                return replace(result, reason=reason, gate="timeout")
            await self._sleep(SAMPLE_S)

    async def refusal(self) -> str | None:
        """Why nothing can be measured whatever is started, or None while that may be.

        Asked before requests are drained and an engine is stopped for it. A cap that cannot
        be read now may be readable once the card is awake, so that is left to ``measuring``.
        """
        cap = await self._cap()
        return cap.reason if cap.state == "failed" else None

    async def _cap(self) -> GateView:
        limits = await self._sampler.power_cap()
        return gate.cap(limits, wanted_w=self._cap_w, held=self._sampler.cap_held())

    async def _look(self, edges: _Edges) -> tuple[Sample, tuple[GateView, GateView]]:
        sample = await self._sampler.fresh()
        edges.add(sample.at_s, sample.reading.edge_c)
        cap = await self._cap()
        return sample, (self._cooling(tuple(edges.kept)), cap)

    def _cooling(self, edges: Sequence[tuple[float, Reading[float]]]) -> GateView:
        if self._kind == "relative":
            return gate.relative(edges)
        return gate.cooling([edge for _, edge in edges], limit_c=self._limit_c)


class _Edges:
    """The latest edge temperatures of a machine that was awake between them.

    A card that slept is cool, and its first temperatures say nothing of how it rests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._slept = clock, clock.slept()
        self.kept: deque[tuple[float, Reading[float]]] = deque(maxlen=_KEPT)

    def add(self, at_s: float, edge_c: Reading[float]) -> None:
        """Take one more; after a suspend it is the first."""
        slept = self._clock.slept()
        if lasted_s(self._slept, slept):
            self._slept = slept
            self.kept.clear()
        self.kept.append((at_s, edge_c))
