"""Device memory of a load, predicted from the model's shape before anything is started.

Covers weights, KV cache, recurrent rows, MTP context and compute buffers, each with where
its figure comes from and how far off it may be, and the calibration by what an engine
printed. Does not decide what fits (``tuner.memory``).

The exact terms follow the engine's own arithmetic and met 102 printed sums of the 27B
model within 0.9 MiB. The compute buffers have no closed form here: their figures are upper
bounds, so that a prediction errs on the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuner.geometry import Geometry, LoadPlan

__all__ = [
    "VULKAN_OVERHEAD_BYTES",
    "Calibration",
    "Predicted",
    "Printed",
    "Term",
    "assumed",
    "calibrated",
    "predict",
]

_MIB = 2**20

VULKAN_OVERHEAD_BYTES: Final = 54 * _MIB
"""What the driver takes beside the printed buffers: constant over six depths on one card
with the Vulkan backend. Another backend has another one."""

_OUTPUT_ROW = 3145728 / 248320
"""Bytes per output row and vocabulary entry, beside the batch: 27B, 24 printed sums."""
_OUTPUT_SAVING = 12
"""Bytes per batch token and embedding entry that are free while the output rows are there."""
_PER_EMBEDDING: Final = 7.4
"""Activations per embedding entry that build b11434 keeps; b10434 keeps 5.4."""
_PER_EMBEDDING_DRAFT = 5.4
_COMPUTE_SLACK = 24 / 512
_DRAFT_SLACK = 56 / 512
"""MiB per batch token by which the upper bounds may be too high (long contexts reuse buffers)."""
_PRINTED_ERROR = 2 * _MIB
"""Bytes by which a compute buffer was larger than its figure at most."""
_OVERHEAD_ERROR = 16 * _MIB
"""Bytes by which a measured overhead may move between starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a prediction.

    Attributes:
        size: Bytes.
        slack: Bytes by which the true size may be lower; 0 for an exact term.
        excess: Bytes by which it may be higher.
        source: What the figure rests on.
    """

    size: int
    slack: int = 0
    excess: int = 0
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What differs between builds, backends and cards.

    Attributes:
        token_bytes: Compute buffer of the main context per token of the physical batch,
            the attention mask not counted.
        draft_token_bytes: The same for the MTP context.
        overhead_bytes: What the driver takes beside all printed buffers.
        overhead_error_bytes: How far off that may be, to either side.
        source: Where the figures come from.
    """

    token_bytes: float
    draft_token_bytes: float
    overhead_bytes: int
    overhead_error_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Sums that one engine start printed, bytes of device buffers.

    Attributes:
        compute: The last compute buffer line of the main context.
        draft_compute: The last one of the MTP context, or None at depth 0. The engine
            reserves it twice and prints both: adding them up counts it double.
        measured: Device memory that the start really took, or None.
    """

    compute: int
    draft_compute: int | None = None
    measured: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Predicted device memory by part."""

    weights: Term
    kv: Term
    recurrent: Term
    compute: Term
    draft_kv: Term
    draft_compute: Term
    overhead: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """All parts."""
        return (
            self.weights,
            self.kv,
            self.recurrent,
            self.compute,
            self.draft_kv,
            self.draft_compute,
            self.overhead,
        )

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(term.size for term in self.terms)

    @property
    def printed(self) -> int:
        """Bytes that the engine itself will account for: all but the driver's overhead."""
        return self.total - self.overhead.size

    @property
    def low(self) -> int:
        """Least bytes, every term at the lower end of its error."""
        return self.total - sum(term.slack for term in self.terms)

    @property
    def high(self) -> int:
        """Most bytes, every term at the upper end of its error."""
        return self.total + sum(term.excess for term in self.terms)


def assumed(
    geometry: Geometry,
    draft: Geometry | None = None,
    *,
    per_embedding: float = _PER_EMBEDDING,
    overhead_error_bytes: int = 128 * _MIB,
) -> Calibration:
    """Calibration for a card on which nothing was started yet; of a draft model, too."""
    wide = 2 * geometry.feed_forward
    second = wide + _PER_EMBEDDING_DRAFT * geometry.embedding
    if draft is not None:
        second = 2 * draft.feed_forward + per_embedding * draft.embedding
    return Calibration(
        token_bytes=4 * (wide + per_embedding * geometry.embedding),
        draft_token_bytes=4 * second,
        overhead_bytes=VULKAN_OVERHEAD_BYTES,
        overhead_error_bytes=overhead_error_bytes,
        source="assumed from other cards",
    )


def calibrated(
    base: Calibration, geometry: Geometry, plan: LoadPlan, printed: Printed
) -> Calibration:
    """Calibration after one start of ``plan``; what was not printed stays as in ``base``."""
    batch = (printed.compute - _mask(plan)) / plan.ubatch
    beside = (printed.compute - _mask(plan) - _output_rows(geometry, plan)) / plan.ubatch
    draft = base.draft_token_bytes
    if printed.draft_compute is not None:
        draft = (printed.draft_compute - _mask(plan)) / plan.ubatch
    made = replace(
        base,
        token_bytes=min(batch, beside + _OUTPUT_SAVING * geometry.embedding),
        draft_token_bytes=draft,
        source="calibrated by a start",
    )
    if printed.measured is None:
        return made
    beyond = printed.measured - predict(geometry, plan, made).printed
    return replace(made, overhead_bytes=beyond, overhead_error_bytes=_OVERHEAD_ERROR)


def predict(geometry: Geometry, plan: LoadPlan, calibration: Calibration) -> Predicted:
    """Device memory of a load with every layer on the device."""
    none = Term(size=0, source="no drafting")
    drafting = plan.own_head or (plan.depth > 0 and plan.draft is not None)
    return Predicted(
        weights=_weights(geometry, plan),
        kv=Term(
            size=geometry.attention_layers
            * plan.cells
            * geometry.kv_row_bytes(plan.kv_type_k, plan.kv_type_v),
            source="attention layers x cells x KV row",
        ),
        recurrent=_recurrent(geometry, plan),
        compute=_compute(geometry, plan, calibration),
        draft_kv=_draft_cache(geometry, plan) if drafting else none,
        draft_compute=Term(
            size=round(plan.ubatch * calibration.draft_token_bytes) + _mask(plan),
            slack=round(_DRAFT_SLACK * plan.ubatch * _MIB),
            excess=_PRINTED_ERROR,
            source=f"upper bound, {calibration.source}",
        )
        if drafting
        else none,
        overhead=Term(
            size=calibration.overhead_bytes,
            slack=calibration.overhead_error_bytes,
            excess=calibration.overhead_error_bytes,
            source=f"driver, {calibration.source}",
        ),
    )


def _weights(geometry: Geometry, plan: LoadPlan) -> Term:
    size, source = _body_bytes(geometry), "tensors but token embedding"
    if plan.own_head:
        return Term(size=size + geometry.nextn_bytes, source=source)
    source += " and MTP block"
    if plan.depth and plan.draft is not None:
        return Term(size=size + _body_bytes(plan.draft), source=f"{source}, of both models")
    return Term(size=size, source=source)


def _body_bytes(geometry: Geometry) -> int:
    """Tensors of a model that go to the device where no head of it drafts."""
    output = geometry.token_embd_bytes if geometry.tied else geometry.output_bytes
    return geometry.trunk_bytes + output


def _draft_cache(geometry: Geometry, plan: LoadPlan) -> Term:
    """What the context of the head keeps, or that of a draft model, which is as long."""
    types = plan.draft_kv_type_k, plan.draft_kv_type_v
    if plan.draft is None:
        return Term(
            size=geometry.nextn_layers * plan.cells * geometry.kv_row_bytes(*types),
            source="MTP layers x cells x draft KV row; the same at every depth",
        )
    kept = plan.draft.recurrent
    return Term(
        size=plan.draft.attention_layers * plan.cells * plan.draft.kv_row_bytes(*types)
        + (plan.slots * kept.row_bytes if kept is not None else 0),
        source="the draft model's attention layers x cells x draft KV row, and a state row a slot",
    )


def _recurrent(geometry: Geometry, plan: LoadPlan) -> Term:
    if geometry.recurrent is None:
        return Term(size=0, source="no recurrent layers")
    back = geometry.rollback and plan.own_head
    rows = plan.slots * (1 + plan.depth if back else 1)
    source = "slots x (1 + depth) rows of 32 bits" if back else "a row of 32 bits a slot"
    return Term(size=rows * geometry.recurrent.row_bytes, source=source)


def _compute(geometry: Geometry, plan: LoadPlan, calibration: Calibration) -> Term:
    """The larger of two moments: the whole batch, or most of it beside the output rows."""
    batch = plan.ubatch * calibration.token_bytes
    beside = plan.ubatch * (calibration.token_bytes - _OUTPUT_SAVING * geometry.embedding)
    size = max(batch, beside + _output_rows(geometry, plan)) + _mask(plan)
    return Term(
        size=round(size),
        slack=round(_COMPUTE_SLACK * plan.ubatch * _MIB),
        excess=_PRINTED_ERROR,
        source=f"batch, attention mask and output rows, {calibration.source}",
    )


def _mask(plan: LoadPlan) -> int:
    """Bytes of the attention mask: 16 bits per batch token and visible cell."""
    return 2 * plan.ubatch * plan.slot_cells


def _output_rows(geometry: Geometry, plan: LoadPlan) -> float:
    return plan.slots * (1 + plan.depth) * _OUTPUT_ROW * geometry.vocab
