"""What may be written in the TOML files: tables, keys, types, ranges, defaults.

Nothing here leaves ``mtpd.config``; the rest of the program sees
``mtpd.config.model``. Rules that concern several keys are in ``mtpd.config.checks``.
Every key is explained in docs/configuration.md.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BudgetTable",
    "CandidateTable",
    "DrafterTable",
    "EngineTable",
    "EngineTimeoutsTable",
    "FiltersTable",
    "GroupTable",
    "HardwareTable",
    "LaunchTable",
    "LimitsTable",
    "MessageTable",
    "ModelTable",
    "PoolTable",
    "PromptTable",
    "QualityTable",
    "RootTable",
    "ServerTable",
    "Table",
    "TimeoutsTable",
    "TuningTable",
    "WorkloadTable",
    "keys_at",
]

_DAY_S = 86_400.0

Text = Annotated[str, Field(min_length=1, max_length=1024)]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
OffloadWord = Literal["refuse", "accept"]
DrafterWord = Literal[
    "none",
    "mtp",
    "mtp-file",
    "draft-model",
    "eagle3",
    "ngram",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "adaptive",
]
LoadingWord = Literal["off", "comments", "reasoning"]
Limit = Annotated[float, Field(ge=0.0, le=_DAY_S)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Word = Annotated[str, Field(max_length=65_536)]
Ttl = Annotated[float, Field(ge=0.0, le=365 * _DAY_S)]
Patience = Annotated[float, Field(ge=1.0, le=_DAY_S)]
Batch = Annotated[int, Field(ge=32, le=65_536)]


class Table(BaseModel):
    """A TOML table: exact types, known keys only."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class EngineTimeoutsTable(Table):
    """``[models.NAME.timeouts]``: what is left out follows ``[server.timeouts]``."""

    connect_s: Limit | None = None
    first_byte_s: Limit | None = None
    idle_s: Limit | None = None
    total_s: Limit | None = None


class TimeoutsTable(Table):
    """``[server.timeouts]``; 0 is no limit."""

    head_s: Limit = 10.0
    body_idle_s: Limit = 30.0
    write_stall_s: Limit = 30.0
    keep_alive_s: Limit = 75.0
    connect_s: Limit = 2.0
    first_byte_s: Limit = 0.0
    idle_s: Limit = 0.0
    total_s: Limit = 0.0


class LimitsTable(Table):
    """``[server.limits]``."""

    body_mib: int = Field(default=64, ge=1, le=4096)
    form_mib: int = Field(default=0, ge=0, le=1_048_576)
    held_mib: int = Field(default=256, ge=1, le=1_048_576)
    max_tokens: int = Field(default=0, ge=0, le=16_777_216)
    max_choices: int = Field(default=16, ge=1, le=1024)
    remote_media: bool = False


class ServerTable(Table):
    """``[server]``."""

    listen: Text = "127.0.0.1:8080"
    control_socket: Text | None = None
    max_waiting: int = Field(default=64, ge=0, le=100_000)
    queue_timeout_s: float = Field(default=120.0, gt=0.0, le=_DAY_S)
    watch_config: bool = False
    ttl_s: Ttl = 0.0
    preload: list[Text] = Field(default_factory=list)
    list_aliases: bool = False
    batch_max_requests: int = Field(default=16, ge=0, le=100_000)
    batch_max_s: float = Field(default=30.0, ge=0.0, le=_DAY_S)
    priority_age_s: float = Field(default=30.0, ge=1.0, le=_DAY_S)
    hosts: list[Text] = Field(default_factory=list)
    cors_origins: list[Text] = Field(default_factory=list)
    max_in_flight_per_token: int = Field(default=0, ge=0, le=100_000)
    max_waiting_per_token: int = Field(default=0, ge=0, le=100_000)
    poison_after: int = Field(default=2, ge=0, le=100)
    poison_hold_s: float = Field(default=3600.0, gt=0.0, le=30 * _DAY_S)
    loading_state: LoadingWord = "off"
    timeouts: TimeoutsTable = Field(default_factory=TimeoutsTable)
    limits: LimitsTable = Field(default_factory=LimitsTable)


class EngineTable(Table):
    """``[engine]``."""

    binary: Text = "auto"
    tools_dir: Text | None = None
    threads: Threads | None = None
    extra_env: dict[str, str] = Field(default_factory=dict)
    load_stall_s: float = Field(default=120.0, ge=1.0, le=_DAY_S)
    ready_timeout_s: Patience | None = None
    stop_timeout_s: Patience = 4.0


class BudgetTable(Table):
    """``[budget]``."""

    hardware: Text | None = None
    headroom_mib: int = Field(default=256, ge=0, le=1_048_576)


class TuningTable(Table):
    """``[tuning]``."""

    mode: Literal["off", "observe", "idle"] = "observe"
    min_idle_s: float = Field(default=120.0, ge=0.0, le=_DAY_S)
    min_dwell_s: float = Field(default=1800.0, ge=0.0, le=30 * _DAY_S)
    max_restarts_per_day: int = Field(default=6, ge=0, le=10_000)


class PoolTable(Table):
    """``[pools.NAME]``."""

    members: list[Text] = Field(min_length=1)
    objective: Literal["balanced", "speed", "quality", "efficiency"] = "balanced"
    require_tags: list[Text] = Field(default_factory=list)
    offload: OffloadWord = "refuse"
    min_context: int | None = Field(default=None, ge=1, le=16_777_216)
    quality_bound: float | None = Field(default=None, ge=1.0, le=100.0)


class GroupTable(Table):
    """``[groups.NAME]``."""

    members: list[Text] = Field(min_length=1)
    swap: bool = True
    exclusive: bool = True
    persistent: bool = False


class QualityTable(Table):
    """``[quality]`` of a model profile."""

    perplexity: float = Field(gt=0.0)
    stderr: float | None = Field(default=None, ge=0.0)
    corpus: Text
    chunks: int = Field(ge=1)


class DrafterTable(Table):
    """``[drafter]`` of a model profile."""

    kind: DrafterWord = "none"
    max_depth: int = Field(default=0, ge=0, le=16)
    depth: int | None = Field(default=None, ge=0, le=16)
    p_min: float = Field(default=0.0, ge=0.0, lt=1.0)
    model: Text | None = None


class FiltersTable(Table):
    """``[models.NAME.filters]``."""

    strip: list[Text] = Field(default_factory=list)
    set: dict[str, object] = Field(default_factory=dict)
    set_by_name: dict[str, dict[str, object]] = Field(default_factory=dict)


class CandidateTable(DrafterTable):
    """``[[drafters]]`` of a model profile."""

    name: Text | None = None


class LaunchTable(Table):
    """How an engine is started; also ``[model_defaults]`` of a hardware profile."""

    context: int = Field(default=4096, ge=256, le=16_777_216)
    slots: int = Field(default=1, ge=1, le=64)
    kv_type: KvType = "f16"
    draft_kv_type: KvType | None = None
    offload: OffloadWord = "refuse"
    fit: Literal["auto", "off", "engine"] = "auto"
    n_gpu_layers: int | None = Field(default=None, ge=0, le=10_000)
    threads: Threads | None = None
    batch: Batch | None = None
    ubatch: Batch | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    purpose: Literal["text", "embedding", "rerank"] = "text"
    pooling: Literal["none", "mean", "cls", "last"] | None = None
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")] | None = None


class ModelTable(LaunchTable):
    """A model profile: ``profiles/models/NAME.toml`` and ``[models.NAME]``."""

    kind: Literal["llama-server", "opaque"] = "llama-server"
    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    command: list[Word] = Field(default_factory=list)
    proxy: Text | None = None
    check: Text = "/health"
    env: dict[str, str] = Field(default_factory=dict)
    vram_mib: int | None = Field(default=None, ge=0, le=16_777_216)
    aliases: list[Text] = Field(default_factory=list)
    served_as: Text | None = None
    concurrency_limit: int = Field(default=0, ge=0, le=100_000)
    title: Text | None = None
    description: Text | None = None
    unlisted: bool = False
    upstream_model: Text | None = None
    filters: FiltersTable = Field(default_factory=FiltersTable)
    ttl_s: Ttl | None = None
    ready_timeout_s: Patience | None = None
    stop_timeout_s: Patience | None = None
    stop_command: list[Word] = Field(default_factory=list)
    tags: list[Text] = Field(default_factory=list)
    seed: int | None = Field(default=None, ge=0, le=4_294_967_294)
    drafter: DrafterTable = Field(default_factory=DrafterTable)
    drafters: list[CandidateTable] = Field(default_factory=list)
    quality: QualityTable | None = None
    loading_state: LoadingWord | None = None
    timeouts: EngineTimeoutsTable = Field(default_factory=EngineTimeoutsTable)


class HardwareTable(Table):
    """``profiles/hardware/NAME.toml``."""

    description: Text
    isa: Text
    vram_mib: int = Field(ge=1, le=16_777_216)
    power_cap_w: float | None = Field(default=None, gt=0.0)
    gate_edge_c: float | None = Field(default=None, gt=0.0, lt=150.0)
    gate: Literal["absolute", "relative"] = "absolute"
    row_cost: float | None = Field(default=None, gt=0.0, lt=100.0)
    row_cost_sd: float = Field(default=0.1, gt=0.0, lt=100.0)
    row_cost_source: Text | None = None
    drafting_note: Text | None = None
    model_defaults: LaunchTable = Field(default_factory=LaunchTable)


class MessageTable(Table):
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(min_length=1)]


class PromptTable(Table):
    """``[[prompts]]`` of a workload."""

    path: Literal["/v1/chat/completions", "/completion"]
    messages: list[MessageTable] = Field(default_factory=list)
    prompt: Annotated[str, Field(min_length=1)] | None = None


class WorkloadTable(Table):
    """``profiles/workloads/NAME.toml``."""

    description: Text
    max_tokens: int = Field(ge=1, le=65_536)
    prompts: list[PromptTable] = Field(min_length=1)


class RootTable(Table):
    """``mtpd.toml``, with the model profiles mounted under ``models``."""

    server: ServerTable = Field(default_factory=ServerTable)
    engine: EngineTable = Field(default_factory=EngineTable)
    budget: BudgetTable = Field(default_factory=BudgetTable)
    tuning: TuningTable = Field(default_factory=TuningTable)
    pools: dict[str, PoolTable] = Field(default_factory=dict)
    groups: dict[str, GroupTable] = Field(default_factory=dict)
    models: dict[str, ModelTable] = Field(default_factory=dict)


def keys_at(table: type[Table], path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that may stand in the table at a path; empty where any key may."""
    current: Any = table
    for part in path:
        if isinstance(current, type) and issubclass(current, Table):
            field = current.model_fields.get(str(part))
            current = _inner(field.annotation) if field is not None else None
        elif get_origin(current) in {dict, list}:
            current = _inner(get_args(current)[-1])
        else:
            return ()
    if isinstance(current, type) and issubclass(current, Table):
        return tuple(current.model_fields)
    return ()


def _inner(annotation: Any) -> Any:
    """The annotation without ``| None`` and without ``Annotated``."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        options = [option for option in get_args(annotation) if option is not type(None)]
        return _inner(options[0])
    return annotation
