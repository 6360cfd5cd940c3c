"""What the control API shows of a model's device memory: plain values. Pure.

Unknown is null with a sentence beside it, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AdviceView",
    "DepthMemoryView",
    "JointView",
    "MemoryPartsView",
    "MemoryView",
    "NeedView",
    "OptionView",
    "PrintedMemoryView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPartsView:
    """Predicted device memory by part, bytes.

    Attributes:
        draft_bytes: KV and compute buffer of the draft head's own context.
        overhead_bytes: What the driver takes beside the engine's buffers.
        low_bytes: The sum with every part at the lower end of its error.
        high_bytes: The same at the upper end.
    """

    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    draft_bytes: int
    compute_bytes: int
    overhead_bytes: int
    total_bytes: int
    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedMemoryView:
    """Device memory by part, bytes, as the engine's own log lists it.

    Attributes:
        weights_bytes: Model buffers.
        kv_bytes: KV cache of the main context.
        recurrent_bytes: Its recurrent state.
        draft_bytes: KV cache and compute buffer of the draft head's own context.
        compute_bytes: Compute buffer; null where the log has no such line.
    """

    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    draft_bytes: int
    compute_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedView:
    """What an engine takes, as it counts beside other engines.

    Attributes:
        count_bytes: On a card of its memory; without one its own pages and the model file
            that it maps. Null where nobody knows.
        source: measured, forecast, bound, declared, misfit or unknown, the best there is.
        reason: One clause: what the figure rests on, or why there is none.
    """

    count_bytes: int | None
    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthMemoryView:
    """One depth against the memory of the device.

    Attributes:
        predicted: Its device memory; null where it is not predicted.
        verdict: fits, evicts, unknown or not_applicable, as mtpd would start it.
        reason: One clause: what is left or lacking, or why it is not known.
        left_bytes: What remains of the memory that may be used where no other engine of mtpd
            runs, negative by how much is lacking; null where the verdict is neither fits nor
            evicts.
        engine_fit: The same four, by the engine's own fit with its default margin.
    """

    depth: int
    predicted: MemoryPartsView | None
    verdict: str
    reason: str
    left_bytes: int | None
    engine_fit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionView:
    """One change that would make a load smaller.

    Attributes:
        lever: What is changed, e.g. "slots".
        setting: The changed setting, e.g. "1 slot".
        gained_bytes: Device memory that becomes usable.
        enough: Whether the depth then fits for sure.
        tps_ratio: Predicted tok/s over those of the wanted depth if it were resident; null
            where nothing measured says.
        cost: What it costs in quality or capability.
    """

    lever: str
    setting: str
    gained_bytes: int
    enough: bool
    tps_ratio: float | None
    cost: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceView:
    """What would make a depth fit.

    Attributes:
        depth: The depth that is wanted.
        reason: One sentence.
        options: Single changes, the cheapest first.
        together: Settings that are enough, alone or together; empty if nothing is.
    """

    depth: int
    reason: str
    options: tuple[OptionView, ...]
    together: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointView:
    """Slots, context and depth that fit together; nothing larger in every way fits."""

    context: int
    slots: int
    depth: int
    left_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """Every depth of a model against the memory of one device.

    Attributes:
        free_bytes: Free before a start, with no engine of mtpd on the device; null where it is
            not known or there is no device.
        headroom_bytes: What stays free; null without a device.
        margin_bytes: What the engine's fit keeps free as mtpd starts it; null without fit.
        source: Who says how much is free, or why nothing has to fit.
        forecast: Whether the device is only described, not asked.
        calibration: Where the sizes of the compute buffers come from; null without a shape.
        depths: Shallow to deep.
        advice: For each depth that was asked about and does not stay on the device.
        joint: The largest loads that fit, slots, context and depth chosen together.
        best: The fastest of what fits by the measured acceptance, and what fewer slots or
            less context would buy; null where nothing was measured.
    """

    free_bytes: int | None
    headroom_bytes: int | None
    margin_bytes: int | None
    source: str
    forecast: bool
    calibration: str | None
    depths: tuple[DepthMemoryView, ...]
    advice: tuple[AdviceView, ...]
    joint: tuple[JointView, ...]
    best: str | None
