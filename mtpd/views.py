"""What the control API shows: plain values, made by control, serialised by api.

``mtpctl --json`` prints exactly these. Unknown is null with a sentence beside it, never 0.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from mtpd.encoding import encode
from mtpd.engine_views import (
    ArmView,
    EngineView,
    EvidenceView,
    FailureView,
    GateView,
    IntervalView,
    Json,
    QuarantineView,
    QueueRowView,
    QueueView,
    RequestView,
    ResidencyView,
    SpentView,
)
from mtpd.live_views import LiveProfileView  # noqa: TC001  # decoders resolve it
from mtpd.memory_views import (  # noqa: TC001  # decoders resolve it
    DepthMemoryView,
    MemoryView,
    NeedView,
    PrintedMemoryView,
)
from mtpd.quality_views import BaselineView, PerplexityView  # noqa: TC001  # decoders resolve it

__all__ = [
    "AcceptanceView",
    "ArmMemoryView",
    "ArmView",
    "ChoiceView",
    "ConfigFileView",
    "ConfigValueView",
    "DecisionView",
    "DepthRowView",
    "EngineView",
    "EvidenceView",
    "FailureView",
    "GateView",
    "HealthView",
    "IntervalView",
    "Json",
    "MeasurementView",
    "ModelView",
    "OperationView",
    "ProgressView",
    "QualityView",
    "QuarantineView",
    "QueueRowView",
    "QueueView",
    "ReadinessView",
    "RequestView",
    "ResidencyView",
    "SpentView",
    "StatusView",
    "encode",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceView:
    """The arm at which a model or a pool is served, and why.

    Attributes:
        measured: Whether measurements chose it.
        pinned: Whether an operator set it.
        measured_arm: What measurements chose and still holds, served or not; None: nothing.
    """

    subject: str
    arm: ArmView
    reason: str
    decision_id: int | None
    measured: bool
    pinned: bool = False
    measured_arm: ArmView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceView:
    """Conditional acceptance of one draft position, from pooled cells."""

    position: int
    alpha: IntervalView
    accepted: int
    offered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRowView:
    """One row of the depth table: an arm over its workloads.

    Attributes:
        tokens_per_joule: Tokens per joule of all that the card drew while it decoded; None
            where that is not known.
        energy_note: Why it is not known; empty where it is.
    """

    arm: ArmView
    workloads: dict[str, float]
    decode_tps: float | None
    tps_interval: IntervalView | None
    tokens_per_step: float | None
    acceptance: tuple[AcceptanceView, ...]
    residency: str
    same_text: bool | None
    repetitions: int
    excluded: int
    outliers: int
    note: str
    tokens_per_joule: float | None = None
    energy_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityView:
    """Perplexity with what it depends on."""

    perplexity: float
    stderr: float | None
    corpus: str
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A profile with what was measured of it.

    Attributes:
        kind: llama-server, or opaque for a program that is only started and stopped.
        model: The model file, or the opaque program.
        size_bytes: Of the model file; None where it cannot be read, or there is none.
        sha256: Of the whole model file as it lies there now; None until it was read.
        context: Tokens over all slots; None where nobody knows.
        quality: The perplexity that the configuration declares.
        memory: Predicted device memory of every depth, and whether it fits.
        perplexity: The newest that was measured of the file as it lies there now, or None.
        baseline: The newest speed of the model body alone, likewise.
        need: What the arm that is served takes beside other engines.
        variants: Its like, where a model with several drafters was asked for: this one is served.
    """

    id: str
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    model: str
    size_bytes: int | None
    sha256: str | None
    context: int | None
    slots: int
    kv_type: str
    drafter: str
    max_depth: int
    offload: str
    quality: QualityView | None
    choice: ChoiceView | None
    depths: tuple[DepthRowView, ...]
    state: str
    memory: MemoryView
    kind: str = "llama-server"
    perplexity: PerplexityView | None = None
    baseline: BaselineView | None = None
    need: NeedView | None = None
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementView:
    """One stored repetition of a cell.

    Attributes:
        power_mean_w: What the card drew meanwhile; None where it was not measured.
        joules_per_token: Energy of the decoding per generated token, likewise.
        net_joules_per_token: The same beyond what the idle card would have drawn; None
            also where that is not known.
    """

    id: int
    at: str
    operation_id: str | None
    start_id: str
    fingerprint: str
    arm: ArmView
    workload: str
    prompt: int
    repetition: int
    tokens: int
    decode_s: float
    decode_tps: float
    steps: int | None
    drafted: int | None
    accepted: int | None
    accepted_per_position: tuple[int, ...] | None
    acceptance_source: str
    digest: str
    residency: str
    excluded: str | None
    power_mean_w: float | None = None
    joules_per_token: float | None = None
    net_joules_per_token: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """One journalled decision.

    Attributes:
        actor: Who asked for the operation that it belongs to; None where the daemon decided
            by itself, or where it is not known.
    """

    id: int
    at: str
    act: str
    subject: str
    arm: ArmView | None
    previous: ArmView | None
    predicted: IntervalView | None
    reason: str
    evidence: tuple[str, ...]
    measurement_ids: tuple[int, ...]
    operation_id: str | None
    outcome: str | None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """How far an operation is."""

    done: int
    total: int | None
    note: str

    def cancelled(self, why: str | None) -> ProgressView:
        """How far it was when it was cancelled, why if not by the end, and what it said last."""
        who = "the daemon stopped" if why is None else why
        return dataclasses.replace(self, note=f"{who}; {self.note}" if self.note else who)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """A long-running operation.

    Attributes:
        kind: switch, load, unload, tune, probe, sweep, perplexity, bench, recipe or reload.
        state: queued, running, done, failed or cancelled.
        params: What was asked for.
        result: Kind-specific, once done.
        error: RFC 9457 problem, once failed.
        actor: Who asked for it, e.g. ``token ops``; None where that is not known.
    """

    id: str
    kind: str
    state: str
    params: dict[str, Json]
    progress: ProgressView
    created_at: str
    started_at: str | None
    ended_at: str | None
    result: dict[str, Json] | None
    error: dict[str, Json] | None
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValueView:
    """One configuration value and where it comes from."""

    key: str
    value: Json
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFileView:
    """The configuration on the disk beside the one in force.

    Attributes:
        path: The file that was named.
        read_at: When what is in force was read.
        watched: Whether it is read again by itself when it was saved.
        invalid_since: When it was first seen to have errors; None where it had none when it
            was last read.
        problems: The errors, as ``FILE:LINE: KEY: what is wrong``.
        needs_restart: Keys that take effect after a restart of the daemon.
    """

    path: str
    read_at: str
    watched: bool
    invalid_since: str | None
    problems: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmMemoryView:
    """Memory of an arm that an engine runs.

    Attributes:
        memory: Predicted device memory.
        held: What its engine holds now; null while there is no process.
        printed: What its log lists by part; null without a process, and without a device.
    """

    arm: ArmView
    memory: DepthMemoryView
    held: NeedView | None = None
    printed: PrintedMemoryView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """The daemon on one screen.

    Attributes:
        memory: Of the arms of ``engines``, in their order; one that is not configured has none.
        unusable: Models whose file cannot be served, each with why.
        degraded: ``state: WHY`` while what is decided and measured is not kept.
        quarantine: Requests that are refused because engines died of them.
        live: Live traffic of every model that had any, and what would be done about it.
        config: The configuration file; None where there is none, as in the demo.
        queue_rows: Open requests by model and priority.
        requests: The oldest open requests, at most 100.
        spent: What the latest choice took; null where none was measured.
        state_dir: Where the daemon keeps its files; None where one of an older version answers.
    """

    version: str
    pid: int
    started_at: str
    uptime_s: float
    listen: str
    control_socket: str
    mode: str
    engine_binary: str
    hardware: str | None
    engines: tuple[EngineView, ...]
    memory: tuple[ArmMemoryView, ...]
    queue: QueueView
    gates: tuple[GateView, ...]
    choices: tuple[ChoiceView, ...]
    last_decision: DecisionView | None
    operation: OperationView | None
    unusable: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    live: tuple[LiveProfileView, ...] = ()
    config: ConfigFileView | None = None
    quarantine: tuple[QuarantineView, ...] = ()
    queue_rows: tuple[QueueRowView, ...] = ()
    requests: tuple[RequestView, ...] = ()
    state_dir: str | None = None
    spent: SpentView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """That the daemon runs.

    Attributes:
        status: Always ok.
    """

    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """Whether a request would be served now, or would start an engine.

    Attributes:
        ready: True also where no engine is meant to run.
        engines: The state of every engine, by its id.
    """

    ready: bool
    engines: dict[str, str]
