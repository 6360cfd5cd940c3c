"""What one load of weights printed, and what that says about residency.

A start has one load for the main model, one more for a separate draft model, and at
high verbosity several trial loads of fit before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.engine.facts import (
    Buffer,
    Fact,
    FusedOpMismatch,
    LayersOffloaded,
    WeightsLoading,
    is_host_memory,
)
from mtpd.types import Evidence
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BufferSums", "Load", "Pair", "sums"]

Pair = tuple[str, Fact]
"""A line and its fact."""

_CACHE = ("KV", "RS")
_MAX_BUFFERS = 256


@dataclass(frozen=True, slots=True)
class BufferSums:
    """What the buffer lines of all loads add up to.

    Attributes:
        device_bytes: In device memory.
        pinned_bytes: In host memory that a device has mapped ("Vulkan_Host").
    """

    device_bytes: int
    pinned_bytes: int


def sums(loads: Iterable[Load]) -> BufferSums:
    """Add up the loads of one engine; the driver's own overhead is not in any line."""
    buffers = [buffer for load in loads for buffer in load.buffers()]
    pinned = sum(b.mib for b in buffers if b.device.upper().endswith("_HOST"))
    device = sum(b.mib for b in buffers if not b.on_host)
    return BufferSums(device_bytes=round(device * MIB), pinned_bytes=round(pinned * MIB))


class Load:
    """The memory lines of one load, bounded in number.

    A load has a context or two (main, MTP draft). Weights and cache may take several
    buffers of a context; work buffers are reserved more than once, and the last line per
    context counts (facts/real_gpu_27b.md point 3: adding both up is 134 MiB too much).
    """

    def __init__(self) -> None:
        self._context = 0
        self._work: dict[tuple[int, str, str], Buffer] = {}
        self._offloaded: tuple[str, LayersOffloaded] | None = None
        self._buffers: list[tuple[str, Buffer]] = []
        self._mismatch: tuple[str, FusedOpMismatch] | None = None

    def ends_before(
        self, fact: WeightsLoading | LayersOffloaded | Buffer | FusedOpMismatch
    ) -> bool:
        """Whether this fact can only belong to the next load."""
        match fact:
            case WeightsLoading():
                return True
            case LayersOffloaded():
                return self._offloaded is not None or bool(self._buffers)
            case _:
                return False

    def add(
        self, line: str, fact: WeightsLoading | LayersOffloaded | Buffer | FusedOpMismatch
    ) -> None:
        """Keep what decides, and the sizes of the rest."""
        match fact:
            case LayersOffloaded():
                self._offloaded = (line, fact)
            case Buffer(kind="model" | "KV" | "RS") if len(self._buffers) < _MAX_BUFFERS:
                self._buffers.append((line, fact))
            case Buffer() if len(self._work) < _MAX_BUFFERS:
                self._work[self._context, fact.device, fact.kind] = fact
            case FusedOpMismatch() if is_host_memory(fact.layer_device):
                self._mismatch = self._mismatch or (line, fact)
            case _:
                pass

    def next_context(self) -> None:
        """Another context begins; its work buffers are its own."""
        self._context += 1

    def buffers(self) -> list[Buffer]:
        """Every buffer that exists, once."""
        return [*(b for _, b in self._buffers), *self._work.values()]

    @property
    def trial(self) -> bool:
        """Whether fit only tried: all its model buffers are empty."""
        sizes = [b.mib for _, b in self._buffers if b.kind == "model"]
        return bool(sizes) and not any(size > 0 for size in sizes)

    @property
    def uses_device(self) -> bool:
        """Whether weights or cache lie on a device, or a layer shares one with the CPU."""
        return self._mismatch is not None or any(not b.on_host for _, b in self._buffers)

    def _select(self, *kinds: str, on_host: bool) -> list[tuple[str, Buffer]]:
        return [
            (line, b)
            for line, b in self._buffers
            if b.kind in kinds and b.on_host is on_host and b.mib > 0
        ]

    def evicted(self, *, device: bool) -> tuple[int | None, list[Evidence]] | None:
        """The layers that are not on the device (None: not counted) with the proof."""
        evidence: list[Evidence] = []
        layers: int | None = None
        if self._offloaded is not None and device and self._proven:
            line, f = self._offloaded
            if f.count < f.total:
                layers = f.total - f.count
                evidence.append(Evidence(line, f"{layers} of {f.total} layers are on the CPU"))
        if device:
            for line, b in self._select(*_CACHE, on_host=True):
                evidence.append(Evidence(line, f"{b.kind} of evicted layers in host memory"))
        if self._mismatch is not None:
            line, m = self._mismatch
            evidence.append(Evidence(line, f"layer {m.layer} is on the CPU"))
        return (layers, evidence) if evidence else None

    @property
    def _proven(self) -> bool:
        """Whether a weight buffer shows that this load was not a trial."""
        return bool(self._select("model", on_host=True) or self._select("model", on_host=False))

    @property
    def resident(self) -> bool:
        """N == M, weights and cache on a device, no cache in host memory."""
        return not self.missing

    @property
    def missing(self) -> str:
        """What keeps this load from being proven resident; empty if nothing does."""
        if self._offloaded is None:
            return "no line says how many layers were offloaded"
        if self._offloaded[1].count < self._offloaded[1].total:
            return "not all layers were offloaded"
        if self._select(*_CACHE, on_host=True):
            return "part of the cache is in host memory"
        if not self._select("model", on_host=False):
            return "no line shows model weights in a device buffer"
        if not self._select(*_CACHE, on_host=False):
            return "no line shows the cache in a device buffer"
        return ""

    def device_evidence(self) -> list[Evidence]:
        """Weights first, then cache, then the count of layers."""
        found = [Evidence(line, "weights on the device") for line, _ in self._on_device("model")]
        found += [Evidence(line, "cache on the device") for line, _ in self._on_device(*_CACHE)]
        counted = filter(None, [self._offloaded])
        return found + [
            Evidence(x, f"all {f.total} layers, by itself no proof") for x, f in counted
        ]

    def _on_device(self, *kinds: str) -> list[tuple[str, Buffer]]:
        return self._select(*kinds, on_host=False)

    def host_evidence(self) -> list[Evidence]:
        """Weights and cache in host memory; empty unless both are shown."""
        weights = self._select("model", on_host=True)
        cache = self._select(*_CACHE, on_host=True)
        if not weights or not cache:
            return []
        found = [Evidence(line, "weights in host memory") for line, _ in weights]
        return found + [Evidence(line, "cache in host memory") for line, _ in cache]
