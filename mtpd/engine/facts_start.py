"""Facts of start-up: devices, weights, buffers, speculation, fit.

See ``facts`` for the whole union; failures and requests are in ``facts_run``.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Breakdown",
    "BreakdownTable",
    "Buffer",
    "DeviceListed",
    "FitContextReduced",
    "FitFailed",
    "FitLayers",
    "FitOk",
    "FitProjected",
    "FitShort",
    "FitTrial",
    "FusedOpDisabled",
    "FusedOpMismatch",
    "GpuInitFailed",
    "LayersOffloaded",
    "Listening",
    "ModelLoaded",
    "ModelLoading",
    "MtpContext",
    "NoRollback",
    "RecurrentState",
    "RsSeq",
    "SlotsReady",
    "SpecImplementation",
    "SpecParameters",
    "SyntheticAcceptance",
    "UsingDevice",
    "Verbosity",
    "WeightsLoading",
    "is_host_memory",
]

_HOST_NAMES = ("CPU", "AMX", "BLAS", "ACCEL", "KLEIDIAI", "HBM")


def is_host_memory(name: str) -> bool:
    """Whether a buffer type or device name means host memory ("CPU_Mapped", "Vulkan_Host")."""
    upper = name.upper()
    return upper == "HOST" or upper.endswith("_HOST") or upper.startswith(_HOST_NAMES)


# --- start-up --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbosity:
    """How much the engine was told to log; below 4 no memory line is printed."""

    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceListed:
    """A device the engine sees, the CPU included."""

    name: str
    description: str
    total_mib: int
    free_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsingDevice:
    """A device the model is going to use.

    Attributes:
        name: As the engine numbers it, e.g. "ROCm0".
        description: The card's name.
        free_mib: What the driver says is free; ROCm leaves out what Vulkan clients hold.
        bus_id: PCI address as the engine prints it, None where it prints none or says
            that it does not know it.
    """

    name: str
    description: str
    free_mib: int
    bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInitFailed:
    """A GPU runtime found no device; the engine goes on with the processor alone."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoading:
    """The server begins to load its main model; all that was known of memory is void."""

    path: str


@dataclass(frozen=True, slots=True)
class WeightsLoading:
    """One set of tensors begins to load: main model, draft model, or a trial of fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersOffloaded:
    """``offloaded N/M layers to GPU``; N == M is printed on machines without a GPU, too.

    Attributes:
        count: N, counting the output layer and every NextN block, loaded or not.
        total: M, the file's block_count + 1.
    """

    count: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One allocation.

    Attributes:
        context: Function that printed it, e.g. "load_tensors" or "llama_kv_cache".
        device: Buffer type without an RPC address, e.g. "Vulkan0", "CPU_Mapped".
        kind: "model", "KV", "RS", "compute", "output", "LoRA" ...; "" where none is named.
        mib: Its size; 0.0 in the trial loads of fit.
    """

    context: str
    device: str
    kind: str
    mib: float

    @property
    def on_host(self) -> bool:
        """Whether it lies in host memory."""
        return is_host_memory(self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """Size of the recurrent state; rollback_rows is absent from the oldest builds."""

    mib: float
    cells: int
    layers: int
    sequences: int
    rollback_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RsSeq:
    """Rollback rows per sequence of a context that is being built (the depth, or 0)."""

    rows: int


@dataclass(frozen=True, slots=True)
class MtpContext:
    """The MTP draft context is being created against the main model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecImplementation:
    """A speculative implementation was added, e.g. "draft-mtp"."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecParameters:
    """Depth limits of the implementation that was just added."""

    n_max: int
    n_min: int
    p_min: float


@dataclass(frozen=True, slots=True)
class NoRollback:
    """The context cannot remove part of a sequence: speculation pays a full replay."""


@dataclass(frozen=True, slots=True)
class SyntheticAcceptance:
    """Acceptance is simulated (``--spec-synth-*``); the generated text is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOpMismatch:
    """A layer lies on another device than its fused operation (builds before b10705)."""

    layer: int
    layer_device: str
    op: str
    op_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOpDisabled:
    """A fused kernel was switched off."""

    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsReady:
    """Main and draft contexts exist; every memory line of this load has been printed."""

    slots: int
    context_per_slot: int


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The HTTP server accepts requests at this address."""

    url: str


# --- fit -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FitProjected:
    """What fit expects to need; ``where`` is "device" or "host"."""

    used_mib: int
    free_mib: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOk:
    """Fit changes nothing."""

    left_mib: int
    target_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitShort:
    """Fit misses its margin by this much and will take something away."""

    target_mib: int
    by_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitContextReduced:
    """Fit shortened the context."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTrial:
    """One distribution of layers that fit tried; the largest count is the model's total."""

    device_index: int
    layers: int
    mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLayers:
    """How many layers fit gives a device; overflowing ones leave tensors in host memory."""

    device: str
    layers: int
    overflowing: int
    used_mib: int
    free_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFailed:
    """Fit gave up; the load goes on with the parameters as given."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One row of the memory table (MiB); total and free are None for host rows."""

    device: str
    total_mib: int | None
    free_mib: int | None
    self_mib: int
    model_mib: int
    context_mib: int
    compute_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownTable:
    """All rows at once, as ``--log-jsonl`` prints them."""

    rows: tuple[Breakdown, ...]
