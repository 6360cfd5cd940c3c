"""What one line of llama-server's log can say, one type per kind of statement.

Covers start-up, memory, speculation, requests and failures, of the builds b9094 to
b11434 and the embedded engine. What the statements add up to (residency, a failure
class) is decided in ``evidence`` and ``failures``, never here.
"""

from __future__ import annotations

from mtpd.engine.facts_run import (
    Aborted,
    AcceptancePerPosition,
    BadArgument,
    BindFailed,
    CleaningUp,
    DeviceLost,
    DraftAcceptance,
    DraftVerified,
    EvalTime,
    GpuError,
    GpuHang,
    LibraryMissing,
    LoadFailed,
    LogDialectUnknown,
    NoMtpLayers,
    OutOfMemory,
    Phase,
    Progress,
    PromptReprocessed,
    SecondInterrupt,
    SlotReleased,
    SpecStatistics,
    TaskCancelled,
)
from mtpd.engine.facts_start import (
    Breakdown,
    BreakdownTable,
    Buffer,
    DeviceListed,
    FitContextReduced,
    FitFailed,
    FitLayers,
    FitOk,
    FitProjected,
    FitShort,
    FitTrial,
    FusedOpDisabled,
    FusedOpMismatch,
    GpuInitFailed,
    LayersOffloaded,
    Listening,
    ModelLoaded,
    ModelLoading,
    MtpContext,
    NoRollback,
    RecurrentState,
    RsSeq,
    SlotsReady,
    SpecImplementation,
    SpecParameters,
    SyntheticAcceptance,
    UsingDevice,
    Verbosity,
    WeightsLoading,
    is_host_memory,
)

__all__ = [
    "Aborted",
    "AcceptancePerPosition",
    "BadArgument",
    "BindFailed",
    "Breakdown",
    "BreakdownTable",
    "Buffer",
    "CleaningUp",
    "DeviceListed",
    "DeviceLost",
    "DraftAcceptance",
    "DraftVerified",
    "EvalTime",
    "Fact",
    "FitContextReduced",
    "FitFailed",
    "FitLayers",
    "FitOk",
    "FitProjected",
    "FitShort",
    "FitTrial",
    "FusedOpDisabled",
    "FusedOpMismatch",
    "GpuError",
    "GpuHang",
    "GpuInitFailed",
    "LayersOffloaded",
    "LibraryMissing",
    "Listening",
    "LoadFailed",
    "LogDialectUnknown",
    "ModelLoaded",
    "ModelLoading",
    "MtpContext",
    "NoMtpLayers",
    "NoRollback",
    "OutOfMemory",
    "Phase",
    "Progress",
    "PromptReprocessed",
    "RecurrentState",
    "RsSeq",
    "SecondInterrupt",
    "SlotReleased",
    "SlotsReady",
    "SpecImplementation",
    "SpecParameters",
    "SpecStatistics",
    "SyntheticAcceptance",
    "TaskCancelled",
    "UsingDevice",
    "Verbosity",
    "WeightsLoading",
    "is_host_memory",
]

Fact = (
    Verbosity
    | DeviceListed
    | UsingDevice
    | GpuInitFailed
    | ModelLoading
    | WeightsLoading
    | LayersOffloaded
    | Buffer
    | RecurrentState
    | RsSeq
    | MtpContext
    | SpecImplementation
    | SpecParameters
    | NoRollback
    | SyntheticAcceptance
    | FusedOpMismatch
    | FusedOpDisabled
    | SlotsReady
    | ModelLoaded
    | Listening
    | FitProjected
    | FitOk
    | FitShort
    | FitContextReduced
    | FitTrial
    | FitLayers
    | FitFailed
    | Breakdown
    | BreakdownTable
    | EvalTime
    | Progress
    | DraftAcceptance
    | AcceptancePerPosition
    | DraftVerified
    | SpecStatistics
    | PromptReprocessed
    | TaskCancelled
    | OutOfMemory
    | Aborted
    | LoadFailed
    | NoMtpLayers
    | BindFailed
    | BadArgument
    | LibraryMissing
    | GpuHang
    | DeviceLost
    | GpuError
    | CleaningUp
    | SecondInterrupt
    | SlotReleased
    | LogDialectUnknown
)
