"""The sums of device memory that an engine's log prints while it starts. Pure.

Covers collecting them from facts, and what they say about the next start of the same
model. Only a start whose layers all went to the device counts: with layers on the CPU the
compute buffers have other sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.engine.facts import (
    Buffer,
    ModelLoaded,
    ModelLoading,
    MtpContext,
    RecurrentState,
    SlotsReady,
    SpecParameters,
    WeightsLoading,
)
from tuner.memory import Printed, assumed, calibrated, predict

if TYPE_CHECKING:
    from mtpd.engine.facts import Fact
    from tuner.memory import Calibration, Geometry, LoadPlan

__all__ = ["PrintedSums", "StartSums", "calibration"]

_MIB = 2**20
_SAME_BYTES = 2 * _MIB
"""Rounding of the log, and what a build may round otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSums:
    """What one start printed of the device, MiB; None where a line is missing.

    Attributes:
        weights_mib: Model buffers.
        kv_mib: KV of the main context.
        recurrent_mib: Its recurrent rows.
        draft_kv_mib: KV of the MTP context.
        compute_mib: The last compute buffer of the main context.
        draft_compute_mib: The last one of the MTP context; it is printed twice.
        host_cache: Whether a part of the cache lies in host memory.
        slots: Parallel requests.
        context_per_slot: Tokens.
        depth: Draft depth; 0 where no speculation was set up.
    """

    weights_mib: float = 0.0
    kv_mib: float = 0.0
    recurrent_mib: float = 0.0
    draft_kv_mib: float = 0.0
    compute_mib: float | None = None
    draft_compute_mib: float | None = None
    host_cache: bool = False
    slots: int | None = None
    context_per_slot: int | None = None
    depth: int = 0

    @property
    def cache_mib(self) -> float:
        """Everything that grows with the context or the slots."""
        return self.kv_mib + self.recurrent_mib + self.draft_kv_mib


class PrintedSums:
    """Hears the facts of one engine slot; remembers the last start that came to its end."""

    def __init__(self) -> None:
        self._now = StartSums()
        self._drafting = False
        self.last: StartSums | None = None
        """The last complete start, or None."""

    def hear(self, fact: Fact) -> None:
        """Take one fact in; facts about requests cost next to nothing."""
        match fact:
            case ModelLoading() | WeightsLoading():
                self._now, self._drafting = StartSums(), False
            case Buffer():
                self._now = _added(self._now, fact, drafting=self._drafting)
            case MtpContext():
                self._drafting = True
            case RecurrentState() if not self._drafting:
                self._now = replace(self._now, depth=fact.rollback_rows or self._now.depth)
            case SlotsReady():
                self._now = replace(
                    self._now, slots=fact.slots, context_per_slot=fact.context_per_slot
                )
            case SpecParameters():
                self._now = replace(self._now, depth=fact.n_max)
            case ModelLoaded():
                self.last = self._now
            case _:
                pass


def calibration(
    geometry: Geometry, plan: LoadPlan, sums: StartSums, base: Calibration | None = None
) -> Calibration:
    """What a start of this model says about build and card; assumed where it says nothing.

    Args:
        geometry: The model.
        plan: How it is started now, at any depth.
        sums: What its last start printed. Sums that do not belong to this model
            and plan (another file, other slots or context, layers on the CPU) say nothing.
        base: What holds then; assumed by default.
    """
    base = base or assumed(geometry)
    if sums.compute_mib is None or sums.host_cache:
        return base
    if (sums.slots, sums.context_per_slot) not in {
        (plan.slots, plan.slot_cells),
        (plan.slots, -(-plan.context // plan.slots)),
    }:
        return base
    started = replace(plan, depth=sums.depth)
    expected = predict(geometry, started, base)
    exact = expected.weights.size + expected.kv.size
    exact += expected.recurrent.size + expected.draft_kv.size
    if abs((sums.weights_mib + sums.cache_mib) * _MIB - exact) > _SAME_BYTES:
        return base
    printed = Printed(
        compute=round(sums.compute_mib * _MIB),
        draft_compute=None
        if sums.draft_compute_mib is None
        else round(sums.draft_compute_mib * _MIB),
    )
    return calibrated(base, geometry, started, printed)


def _added(sums: StartSums, buffer: Buffer, *, drafting: bool) -> StartSums:
    cache = buffer.kind in {"KV", "RS"}
    if buffer.on_host:
        return replace(sums, host_cache=sums.host_cache or (cache and buffer.mib > 0))
    if cache:
        return _cached(sums, buffer, drafting=drafting)
    if buffer.kind == "model":
        return replace(sums, weights_mib=sums.weights_mib + buffer.mib)
    if buffer.kind != "compute":
        return sums
    if drafting:
        return replace(sums, draft_compute_mib=buffer.mib)
    return replace(sums, compute_mib=buffer.mib)


def _cached(sums: StartSums, buffer: Buffer, *, drafting: bool) -> StartSums:
    if drafting:
        return replace(sums, draft_kv_mib=sums.draft_kv_mib + buffer.mib)
    if buffer.kind == "RS":
        return replace(sums, recurrent_mib=sums.recurrent_mib + buffer.mib)
    return replace(sums, kv_mib=sums.kv_mib + buffer.mib)
