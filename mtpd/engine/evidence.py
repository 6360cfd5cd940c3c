"""From the facts of one engine start to a residency verdict with the lines that say so.

Covers what the log can show: resident, evicted, host, or unknown with the reason.
Does not cover spilling (allocations that the driver moved to host memory): the log does
not show it, so ``Spilled`` comes from the memory counters of the card
(``mtpd.engine.residency``, which weighs this verdict against them).

Rules (measured on b10434 and b11434):

- ``offloaded N/N`` proves nothing; it is printed on machines without a GPU, too.
- Resident: N == M, and weights and cache lie in device buffers, and no KV or RS buffer
  lies in host memory. A ``CPU_Mapped`` model buffer is the token embedding and normal.
- Evicted: N < M (M - N layers; the NextN block counts whether or not it is loaded), or
  a KV or RS buffer in host memory beside a device, or a layer on the CPU whose fused
  operation is not, or fewer layers by fit than it tried.
- Loads whose model buffers are all 0.00 MiB are trials of fit and prove nothing.
- Nothing is resident or host before the load is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.evidence_load import BufferSums, Load, Pair, sums
from mtpd.engine.facts import (
    Aborted,
    BadArgument,
    BindFailed,
    Buffer,
    DeviceListed,
    EvalTime,
    Fact,
    FitLayers,
    FitOk,
    FitTrial,
    FusedOpDisabled,
    FusedOpMismatch,
    GpuInitFailed,
    LayersOffloaded,
    LibraryMissing,
    Listening,
    LoadFailed,
    LogDialectUnknown,
    ModelLoaded,
    ModelLoading,
    MtpContext,
    NoMtpLayers,
    OutOfMemory,
    RsSeq,
    SlotsReady,
    UsingDevice,
    Verbosity,
    WeightsLoading,
    is_host_memory,
)
from mtpd.types import Evidence, Verdict
from tuner.types import Evicted, Host, Resident, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EvidenceCollector", "judge"]

_COMPLETE = (ModelLoaded, Listening, SlotsReady, EvalTime)
_FATAL = (Aborted, BadArgument, BindFailed, LibraryMissing, LoadFailed, NoMtpLayers, OutOfMemory)
_MEMORY_VERBOSITY = 4
_MAX_LOADS = 64
_MAX_EVIDENCE = 6


def judge(pairs: Iterable[tuple[str, Fact]], *, device_expected: bool = False) -> Verdict:
    """Decide where the model lies; total over any sequence of (line, fact).

    Args:
        pairs: Lines with their facts, in the order they were printed.
        device_expected: Whether the launch plan counts on a device: an engine that sees
            none then has everything evicted instead of being on the host by design.
    """
    collector = EvidenceCollector(device_expected=device_expected)
    for line, fact in pairs:
        collector.add(line, fact)
    return collector.verdict()


class EvidenceCollector:
    """Facts of one engine process, kept in bounded memory while its log grows.

    Once a load is complete only the announcement of another load changes the verdict,
    so that a text quoted by a request cannot. ``verdict`` may be asked at any time.
    """

    def __init__(self, *, device_expected: bool = False) -> None:
        self._device_expected = device_expected
        self._verbosity: Pair | None = None
        self._level: int | None = None
        self._listed: str | None = None
        self._used: Pair | None = None
        self._not_initialised: Pair | None = None
        self._begin()

    def _begin(self) -> None:
        """Forget what belongs to the load before."""
        self._loads: list[Load] = []
        self._fit_ok: Pair | None = None
        self._fit_total = 0
        self._fit_layers: dict[str, tuple[str, FitLayers]] = {}
        self._failure: Pair | None = None
        self._dialect: Pair | None = None
        self._fused_off: Pair | None = None
        self._complete = False

    @property
    def printed(self) -> BufferSums:
        """Sum of the buffer lines of the real loads so far."""
        return sums(load for load in self._loads if not load.trial)

    @property
    def fused_off(self) -> Evidence | None:
        """A fused kernel that was switched off: by itself no proof of an eviction."""
        pair = self._fused_off
        return None if pair is None else Evidence(pair[0], "a fused kernel was switched off")

    @property
    def not_initialised(self) -> Evidence | None:
        """The line that says that the runtime of the card failed, if one does."""
        pair = self._not_initialised
        return None if pair is None else Evidence(pair[0], "the GPU runtime found no device")

    def add(self, line: str, fact: Fact) -> None:
        """Take one fact in; facts about requests cost next to nothing."""
        if isinstance(fact, ModelLoading):
            self._begin()
        elif self._complete:
            return
        elif isinstance(fact, _COMPLETE):
            self._complete = True
        elif isinstance(fact, _FATAL):
            self._failure = self._failure or (line, fact)
        else:
            self._add_start(line, fact)

    def _add_start(self, line: str, fact: Fact) -> None:
        match fact:
            case Verbosity():
                self._verbosity, self._level = (line, fact), fact.level
            case DeviceListed() if not is_host_memory(fact.name):
                self._listed = self._listed or fact.name
            case UsingDevice():
                self._used = self._used or (line, fact)
            case WeightsLoading() | LayersOffloaded() | Buffer() | FusedOpMismatch():
                self._add_load(line, fact)
            case LogDialectUnknown():
                self._dialect = self._dialect or (line, fact)
            case GpuInitFailed():
                self._not_initialised = self._not_initialised or (line, fact)
            case _:
                self._add_context(line, fact)

    def _add_context(self, line: str, fact: Fact) -> None:
        match fact:
            case RsSeq() | MtpContext():
                # Both lines begin a context; a number that is skipped does no harm.
                if self._loads:
                    self._loads[-1].next_context()
            case FusedOpDisabled():
                self._fused_off = self._fused_off or (line, fact)
            case _:
                self._add_fit(line, fact)

    def _add_fit(self, line: str, fact: Fact) -> None:
        match fact:
            case FitOk():
                self._fit_ok = (line, fact)
            case FitTrial():
                self._fit_total = max(self._fit_total, fact.layers)
            case FitLayers() if len(self._fit_layers) < _MAX_LOADS:
                self._fit_layers[fact.device] = (line, fact)
            case _:
                pass

    def _add_load(
        self, line: str, fact: WeightsLoading | LayersOffloaded | Buffer | FusedOpMismatch
    ) -> None:
        if not self._loads or self._loads[-1].ends_before(fact):
            # Trial loads come by the dozen and prove nothing: keep the last real ones.
            self._loads = [load for load in self._loads if not load.trial][-_MAX_LOADS:]
            self._loads.append(Load())
        self._loads[-1].add(line, fact)

    def verdict(self) -> Verdict:
        """What the facts so far add up to."""
        loads = [load for load in self._loads if not load.trial]
        if not self._complete and self._failure is not None:
            return _unknown(
                "the engine failed before the model was loaded", (self._failure,), "first failure"
            )
        return (
            self._evicted(loads)
            or (None if self._complete else self._unfinished())
            or self._host(loads)
            or self._resident(loads)
            or self._undecided(loads)
        )

    def _evicted(self, loads: list[Load]) -> Verdict | None:
        device = self._used is not None or any(load.uses_device for load in loads)
        found = [e for load in loads if (e := load.evicted(device=device)) is not None]
        if not found:
            return self._overflowing() if loads else self._evicted_by_fit()
        counts = [layers for layers, _ in found]
        known = [layers for layers in counts if layers is not None]
        layers = sum(known) if len(known) == len(counts) else None
        evidence = tuple(e for _, part in found for e in part)
        return _evicted(layers, evidence)

    def _overflowing(self) -> Verdict | None:
        """Layers that fit counts as offloaded although some of their tensors are not."""
        over = [(line, f) for line, f in self._fit_layers.values() if f.overflowing]
        if not over:
            return None
        layers = sum(f.overflowing for _, f in over)
        says = f"fit left tensors of {layers} layers in host memory"
        return _evicted(layers, tuple(Evidence(line, says) for line, _ in over))

    def _evicted_by_fit(self) -> Verdict | None:
        placed = sum(f.layers for _, f in self._fit_layers.values())
        if not self._fit_layers or placed >= self._fit_total:
            return self._overflowing()
        says = f"fit gives the device {placed} of {self._fit_total} layers"
        evidence = tuple(Evidence(line, says) for line, _ in self._fit_layers.values())
        return _evicted(self._fit_total - placed, evidence)

    def _unfinished(self) -> Verdict:
        pairs = () if self._fit_ok is None else (self._fit_ok,)
        return _unknown("the log ends before the model was loaded", pairs, "a promise of fit")

    def _host(self, loads: list[Load]) -> Verdict | None:
        # A cache in host memory beside a device was found to be an eviction before this.
        evidence = tuple(e for load in loads for e in load.host_evidence())
        if not evidence:
            return None
        if self._device_expected:
            said = self.not_initialised
            evidence = evidence if said is None else (said, *evidence)
            return _evicted(None, evidence, reason="the engine was to use a device and uses none")
        idle = "" if self._listed is None else f" ({self._listed} exists and was left out)"
        reason = f"no device is used{idle}: everything is in host memory, by design"
        return Verdict(residency=Host(), evidence=evidence[:_MAX_EVIDENCE], reason=reason)

    def _resident(self, loads: list[Load]) -> Verdict | None:
        if not loads or not all(load.resident for load in loads):
            return None
        evidence = tuple(e for load in loads for e in load.device_evidence())
        reason = "all layers are offloaded, weights and cache lie in device memory"
        return Verdict(residency=Resident(), evidence=evidence[:_MAX_EVIDENCE], reason=reason)

    def _undecided(self, loads: list[Load]) -> Verdict:
        if self._verbosity is not None and (self._level or 0) < _MEMORY_VERBOSITY:
            reason = f"verbosity {self._level} prints no memory lines; start the engine with -lv 4"
            return _unknown(reason, (self._verbosity,), "hides the memory lines")
        if self._dialect is not None:
            reason = "this build words its memory lines in a way that mtpd cannot read"
            return _unknown(reason, (self._dialect,), "unreadable")
        if not loads:
            return _unknown("the log holds no memory lines; start the engine with -lv 4", (), "")
        return _unknown(next((load.missing for load in loads if load.missing), "no proof"), (), "")


def _evicted(
    layers: int | None, evidence: tuple[Evidence, ...], *, reason: str | None = None
) -> Verdict:
    if reason is None:
        some = "layers of the model run" if layers is None else _counted(layers)
        reason = f"{some} on the CPU"
    return Verdict(residency=Evicted(layers), evidence=evidence[:_MAX_EVIDENCE], reason=reason)


def _counted(layers: int) -> str:
    return "1 layer of the model runs" if layers == 1 else f"{layers} layers of the model run"


def _unknown(reason: str, pairs: tuple[Pair, ...], says: str) -> Verdict:
    evidence = tuple(Evidence(line, says) for line, _ in pairs)
    return Verdict(residency=Unknown(reason), evidence=evidence, reason=reason)
