"""What one load of weights printed, and what that says about residency.

A start has one load for the main model, one more for a separate draft model, and at
high verbosity several trial loads of fit before them.
"""

from __future__ import annotations

from mtpd.engine.facts import (
    Buffer,
    Fact,
    FusedOpMismatch,
    LayersOffloaded,
    WeightsLoading,
    is_host_memory,
)
from mtpd.types import Evidence

__all__ = ["Load", "Pair"]

Pair = tuple[str, Fact]
"""A line and its fact."""

_CACHE = ("KV", "RS")
_MAX_BUFFERS = 256


class Load:
    """The memory lines of one load, bounded in number."""

    def __init__(self) -> None:
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
        """Keep what decides; compute and output buffers do not."""
        match fact:
            case LayersOffloaded():
                self._offloaded = (line, fact)
            case Buffer(kind="model" | "KV" | "RS") if len(self._buffers) < _MAX_BUFFERS:
                self._buffers.append((line, fact))
            case FusedOpMismatch() if is_host_memory(fact.layer_device):
                self._mismatch = self._mismatch or (line, fact)
            case _:
                pass

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
