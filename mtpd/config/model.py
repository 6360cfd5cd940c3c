"""The configuration as the rest of the program sees it: frozen, checked, complete.

Made by ``mtpd.config.load`` and by nothing else. Covers values only: no file is
read here, and no default is decided here except those that tests lean on (the
defaults a user meets are in ``mtpd.config.schema``). Paths are absolute strings.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.config.engine_env import ENGINE_ENV_RULE, may_set_for_engine
from mtpd.config.serving import (
    BodyLimits,
    EngineTimeouts,
    LoadingState,
    ServerConfig,
    ServerTimeouts,
)
from mtpd.config.tables import (
    SIMPLE,
    DrafterConfig,
    Filters,
    Group,
    HardwareProfile,
    Message,
    Opaque,
    Workload,
    WorkloadPrompt,
)
from tuner.types import Arm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.access import Token
    from mtpd.compat.remarks import Remark

__all__ = [
    "ENGINE_ENV_RULE",
    "SIMPLE",
    "BodyLimits",
    "BudgetConfig",
    "Config",
    "DrafterConfig",
    "EngineConfig",
    "EngineTimeouts",
    "Filters",
    "Fit",
    "Group",
    "HardwareProfile",
    "LoadingState",
    "Message",
    "Objective",
    "Offload",
    "Opaque",
    "Pool",
    "Profile",
    "Purpose",
    "Quality",
    "ServerConfig",
    "ServerTimeouts",
    "TuningConfig",
    "TuningMode",
    "Workload",
    "WorkloadPrompt",
    "may_set_for_engine",
]


class TuningMode(enum.StrEnum):
    """How much the daemon may do by itself."""

    OFF = "off"
    OBSERVE = "observe"
    IDLE = "idle"


class Objective(enum.StrEnum):
    """What a pool prefers among the models that qualify."""

    BALANCED = "balanced"
    SPEED = "speed"
    QUALITY = "quality"
    EFFICIENCY = "efficiency"


class Purpose(enum.StrEnum):
    """What a model's engine answers."""

    TEXT = "text"
    EMBEDDING = "embedding"
    RERANK = "rerank"


class Offload(enum.StrEnum):
    """Whether a model may be served with layers outside device memory."""

    REFUSE = "refuse"
    ACCEPT = "accept"


class Fit(enum.StrEnum):
    """Who decides how many layers go to the device."""

    AUTO = "auto"
    OFF = "off"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Which llama-server is started.

    Attributes:
        binary: "auto", "embedded" or a path.
        tools_dir: Folder of llama-perplexity, llama-bench and llama-quantize; None looks
            beside the binary and on the PATH.
        threads: Threads of an engine whose profile names none; None leaves it to the engine.
        extra_env: Device variables set for engines and for the probe of the binary.
        load_stall_s: Seconds without any log line after which a load counts as stuck.
        ready_timeout_s: Seconds that a load may take; None for 1800, and 120 for programs
            that are no llama-server, whose progress is not known.
        stop_timeout_s: Seconds between the first request to end and SIGKILL.
    """

    binary: str = "auto"
    tools_dir: str | None = None
    threads: int | None = None
    extra_env: tuple[tuple[str, str], ...] = ()
    load_stall_s: float = 120.0
    ready_timeout_s: float | None = None
    stop_timeout_s: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """What the machine may be used up to.

    Attributes:
        hardware: Name of the hardware profile, or None.
        headroom_mib: Device memory that stays free beside an engine.
    """

    hardware: str | None = None
    headroom_mib: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConfig:
    """When the daemon may measure and switch by itself.

    Attributes:
        mode: off, observe (forecast and advise only) or idle (measure when idle).
        min_idle_s: Seconds without a request before a measurement may start.
        min_dwell_s: Seconds that a chosen arm stays at least.
        max_restarts_per_day: Engine starts that tuning may cost in 24 hours.
    """

    mode: TuningMode = TuningMode.OBSERVE
    min_idle_s: float = 120.0
    min_dwell_s: float = 1800.0
    max_restarts_per_day: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A named set of profiles among which mtpd may choose.

    Attributes:
        name: What clients ask for.
        members: Profile names, in the order of preference among ties.
        objective: What to prefer.
        require_tags: A member qualifies only with all of these tags.
        offload: Whether an evicted or spilled member still qualifies.
        min_context: Tokens that one request must be able to hold; None asks for none.
        quality_bound: Largest perplexity as a multiple of the lowest comparable one, at
            least 1; None for no bound.
        is_model: Whether it is one model, its members being the drafters of that.
    """

    name: str
    members: tuple[str, ...]
    objective: Objective = Objective.BALANCED
    require_tags: tuple[str, ...] = ()
    offload: Offload = Offload.REFUSE
    min_context: int | None = None
    quality_bound: float | None = None
    is_model: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A perplexity as somebody measured it; comparable only with equal corpus and chunks."""

    perplexity: float
    stderr: float | None = None
    corpus: str
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One launchable model.

    Attributes:
        name: What clients ask for.
        model: Path of the GGUF; its existence is checked at start, not at load. "" exactly
            where ``opaque`` is set, and ``hf:...`` of a repository that is not downloaded.
        opaque: What is started in place of llama-server, or None.
        aliases: Other names for it, ``served_as`` among them.
        tags: Facts a pool may require, e.g. "uncensored".
        context: Tokens of context over all slots.
        slots: Requests served at once; each multiplies the recurrent state.
        kv_type: Type of the key and value cache.
        draft_kv_type: The same for the draft context; None follows ``kv_type``, although
            the engine's own default would be f16.
        offload: Whether layers outside device memory are acceptable.
        fit: Who decides how many layers go to the device.
        n_gpu_layers: Layers for the device; None means all.
        threads: Engine threads; None follows ``[engine] threads``.
        batch: Logical batch, or None for the engine's default.
        ubatch: Physical batch, or None for the engine's default.
        flash_attention: auto, on or off; changes the text, so it is part of the fingerprint.
        purpose: What its engine answers; one for embeddings or ranking generates no text.
        pooling: How the tokens of a text become one embedding; None leaves it to the model.
        device: The engine's name for the device, e.g. "ROCm0"; None leaves it to the engine.
        seed: Seed of sampling where a request names none; None is random.
        drafter: What proposes tokens.
        quality: Perplexity, or None where nobody measured it.
        vram_mib: Memory that it takes, as far as somebody has said: what counts where it was
            neither measured nor can be predicted.
        served_as: Its name in ``/v1/models`` and in replies; None for ``name``.
        concurrency_limit: Requests for it that may be open at once; 0 for no limit.
        title: What programs with a user interface call it; None for its name.
        description: A sentence about it for ``/v1/models``, or None.
        unlisted: Whether ``/v1/models`` leaves it out; it can be asked for all the same.
        upstream_model: The name that requests to its engine carry in place of the client's;
            None leaves them as they came.
        filters: What else is changed in requests to its engine.
        ttl_s: As ``[server] ttl_s`` for this model; None follows that.
        ready_timeout_s: As ``[engine] ready_timeout_s`` likewise.
        stop_timeout_s: As ``[engine] stop_timeout_s`` likewise.
        stop_command: What asks its engine to end in place of SIGTERM; empty for SIGTERM.
        loading_state: What a client is told while it is not ready; None follows the server's.
        timeouts: How long its engine may take.
    """

    name: str
    model: str
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    context: int = 4096
    slots: int = 1
    kv_type: str = "f16"
    draft_kv_type: str | None = None
    offload: Offload = Offload.REFUSE
    fit: Fit = Fit.AUTO
    n_gpu_layers: int | None = None
    threads: int | None = None
    batch: int | None = None
    ubatch: int | None = None
    flash_attention: str = "auto"
    purpose: Purpose = Purpose.TEXT
    pooling: str | None = None
    device: str | None = None
    seed: int | None = None
    drafter: DrafterConfig = field(default_factory=DrafterConfig)
    quality: Quality | None = None
    vram_mib: int | None = None
    served_as: str | None = None
    concurrency_limit: int = 0
    title: str | None = None
    description: str | None = None
    unlisted: bool = False
    upstream_model: str | None = None
    filters: Filters = field(default_factory=Filters)
    ttl_s: float | None = None
    ready_timeout_s: float | None = None
    stop_timeout_s: float | None = None
    stop_command: tuple[str, ...] = ()
    opaque: Opaque | None = None
    loading_state: LoadingState | None = None
    timeouts: EngineTimeouts = field(default_factory=EngineTimeouts)

    @property
    def shown_name(self) -> str:
        """What clients see it called."""
        return self.served_as or self.name

    def arm(self, depth: int) -> Arm:
        """The arm of this profile at a depth.

        Raises:
            ValueError: The depth is negative or above ``drafter.max_depth``.
        """
        if not 0 <= depth <= self.drafter.max_depth:
            msg = f"{self.name} allows depths 0 to {self.drafter.max_depth}, not {depth}"
            raise ValueError(msg)
        if depth == 0:
            return Arm(profile=self.name)
        return Arm(
            profile=self.name, drafter=self.drafter.kind, depth=depth, p_min=self.drafter.p_min
        )

    def allows(self, arm: Arm) -> bool:
        """Whether this profile makes exactly this arm."""
        return arm.depth <= self.drafter.max_depth and arm == self.arm(arm.depth)

    def initial_arm(self) -> Arm:
        """The arm to start while nothing is measured: the configured depth, else depth 0."""
        return self.arm(self.drafter.depth or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that was configured, with the origin of each value.

    Attributes:
        server: Where clients are answered.
        engine: Which llama-server is started.
        budget: What the machine may be used up to.
        tuning: When the daemon may act by itself.
        pools: By name.
        groups: By name.
        profiles: By name.
        hardware: The selected hardware profile, or None.
        workloads: By name.
        origins: Dotted key path to "default", "FILE:LINE" or "command line".
        written: Dotted key path to the key that holds it in a file of another program.
        sources: Files that were read, in the order of the layers.
        remarks: What of a file of another program is not taken word for word.
        tokens: Access tokens that stand in a file of another program; no part of what is shown.
    """

    server: ServerConfig = field(default_factory=ServerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    hardware: HardwareProfile | None = None
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    tokens: tuple[Token, ...] = ()

    @property
    def now(self) -> Config:
        """Itself: what is frozen is the same at any moment (see ``mtpd.config.live``)."""
        return self

    @property
    def removed(self) -> frozenset[str]:
        """Nothing: only a reload takes names away."""
        return frozenset()

    def ttl_s(self, profile: str) -> float:
        """Seconds without a request after which a profile is unloaded; 0 means never."""
        own = self.profiles[profile].ttl_s if profile in self.profiles else None
        return self.server.ttl_s if own is None else own

    def place(self, key: str) -> str:
        """``FILE:LINE: KEY`` of a key, in the terms of the file that holds it."""
        return f"{self.origins.get(key, 'default')}: {self.written.get(key, key)}"

    def shown(self, profile: str) -> str:
        """What clients see a profile called; itself if it is not configured any more."""
        found = self.profiles.get(profile)
        return profile if found is None else found.shown_name

    def profile_for(self, name: str) -> Profile | None:
        """The profile with this name or alias, or None."""
        direct = self.profiles.get(name)
        if direct is not None:
            return direct
        return next((p for p in self.profiles.values() if name in p.aliases), None)
