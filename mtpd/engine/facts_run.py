"""Facts of running engines: requests, acceptance, and the ways they end.

See ``facts`` for the whole union; start-up and memory are in ``facts_start``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mtpd.engine.facts_start import is_host_memory

__all__ = [
    "Aborted",
    "AcceptancePerPosition",
    "BadArgument",
    "BindFailed",
    "CleaningUp",
    "DeviceLost",
    "DraftAcceptance",
    "DraftVerified",
    "EvalTime",
    "GpuError",
    "GpuHang",
    "LibraryMissing",
    "LoadFailed",
    "LogDialectUnknown",
    "NoMtpLayers",
    "OutOfMemory",
    "Phase",
    "Progress",
    "PromptReprocessed",
    "SecondInterrupt",
    "SlotReleased",
    "SpecStatistics",
    "TaskCancelled",
]

# --- requests --------------------------------------------------------------------------------


class Phase(enum.StrEnum):
    """Part of a request that a time belongs to."""

    PROMPT = "prompt"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTime:
    """Time of one phase of one request; the oldest builds do not say whose."""

    slot: int | None
    task: int | None
    phase: Phase
    ms: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Printed every three seconds while a request generates."""

    slot: int
    task: int
    tokens: int
    tps: float
    tps_3s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftAcceptance:
    """Acceptance of one finished request.

    Attributes:
        slot: None in the oldest builds, which do not say whose it is; task likewise.
        per_position: Unconditional rates (accepted at i / steps), only in the line of
            builds around b9702; later builds print ``AcceptancePerPosition``.
    """

    slot: int | None
    task: int | None
    rate: float
    accepted: int
    drafted: int
    mean_len: float | None = None
    per_position: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePerPosition:
    """Unconditional rates of one finished request: accepted at i / verification steps."""

    slot: int
    task: int
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerified:
    """One verification step, printed where the engine runs with ``LLAMA_TRACE=1``.

    Attributes:
        accepted: Draft tokens accepted in this step.
        drafted: Draft tokens verified in it; the only source of a single draft's length.
        restored: Whether the engine goes back to a checkpoint and verifies the accepted
            part once more, in the next such line of the slot.
    """

    slot: int
    task: int
    accepted: int
    drafted: int
    restored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecStatistics:
    """Totals of one implementation since the engine started (cumulative, not per request).

    Attributes:
        calls: Of begin, generate, accept; generate counts the verification steps.
        rates: Unconditional per position; trailing zeros are omitted by the engine.
        ms: Time in begin, generate, accept; the second is the whole cost of drafting.
    """

    kind: str
    calls: tuple[int, int, int]
    drafts: int
    drafts_accepted: int
    drafted: int
    accepted: int
    mean_len: float | None = None
    rates: tuple[float, ...] | None = None
    ms: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReleased:
    """A request has ended, completely or not; its slot keeps this much of it.

    Attributes:
        tokens: Of prompt and reply, which a request that begins alike is spared.
    """

    slot: int
    task: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PromptReprocessed:
    """The cache was of no use; the whole prompt is computed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCancelled:
    """A client left; the request prints no timings and no acceptance."""

    task: int


# --- ends ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """An allocation failed.

    Attributes:
        device: Buffer type, "device" where the line names none, "host" for the CPU.
        amount: What was asked for, as printed with its unit, or None.
    """

    device: str
    amount: str | None = None

    @property
    def on_host(self) -> bool:
        """Whether host memory ran out."""
        return is_host_memory(self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """A check inside the engine failed."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed:
    """The model could not be loaded; one failure prints several of these."""

    why: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class NoMtpLayers:
    """MTP was asked for and the file has no NextN block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFailed:
    """The address is taken; for a unix socket ``host`` is its path."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BadArgument:
    """The engine refused an argument, or (argument empty) to start at all."""

    argument: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMissing:
    """The program could not start for want of a library or Python module."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHang:
    """The driver reported a hang of the GPU."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLost:
    """The graphics API lost the device; the engine answers 500 until it is restarted."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuError:
    """Any other error of the GPU runtime (ROCm, CUDA)."""

    what: str


@dataclass(frozen=True, slots=True)
class CleaningUp:
    """The engine ends in an orderly way."""


@dataclass(frozen=True, slots=True)
class SecondInterrupt:
    """A second signal ended the engine at once (exit code 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDialectUnknown:
    """A line of a family that matters, in a form this version cannot read.

    Attributes:
        family: "offload", "buffer", "acceptance", "statistics" or "fit".
        text: The beginning of the line.
    """

    family: str
    text: str
