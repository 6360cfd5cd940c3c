"""From checked tables to the frozen objects of ``mtpd.config.model``."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mtpd.compat.hub import SCHEME
from mtpd.config.checks import Listen, parse_host, parse_listen, parse_origin
from mtpd.config.data import bundled_model
from mtpd.config.drafters import variant_names, variants, with_variants
from mtpd.config.filters import build_filters
from mtpd.config.model import (
    SIMPLE,
    BodyLimits,
    BudgetConfig,
    Config,
    DrafterConfig,
    EngineConfig,
    EngineTimeouts,
    Fit,
    Group,
    HardwareProfile,
    LoadingState,
    Message,
    Objective,
    Offload,
    Pool,
    Profile,
    Purpose,
    Quality,
    ServerConfig,
    ServerTimeouts,
    TuningConfig,
    TuningMode,
    Workload,
    WorkloadPrompt,
)
from mtpd.config.opaque import SLOTS, build_opaque
from tuner.types import Drafter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mtpd.config.layers import Origins
    from mtpd.config.locate import Path as KeyPath
    from mtpd.config.schema import (
        DrafterTable,
        GroupTable,
        HardwareTable,
        ModelTable,
        PoolTable,
        RootTable,
        ServerTable,
        WorkloadTable,
    )

__all__ = ["absolute", "build", "build_hardware", "build_workload"]

_BUNDLED = "bundled:"


def build(
    root: RootTable,
    *,
    origins: Origins,
    hardware: HardwareProfile | None,
    workloads: Mapping[str, Workload],
    sources: tuple[str, ...],
) -> Config:
    """Make the configuration; the tables have passed every check."""
    variants_of = {
        name: tuple(variant for _, variant in variant_names(name, model))
        for name, model in root.models.items()
        if model.drafters
    }
    profiles = {
        one.name: one
        for name, model in root.models.items()
        for one in _profiles(name, model, origins)
    }
    pools, groups = with_variants(
        {name: _pool(name, pool) for name, pool in root.pools.items()},
        {name: _group(name, table) for name, table in root.groups.items()},
        profiles,
        variants_of,
    )
    return Config(
        server=_server(root.server, origins),
        engine=EngineConfig(
            binary=_binary(root.engine.binary, origins),
            tools_dir=None
            if root.engine.tools_dir is None
            else absolute(root.engine.tools_dir, ("engine", "tools_dir"), origins),
            threads=root.engine.threads,
            extra_env=tuple(sorted(root.engine.extra_env.items())),
            load_stall_s=root.engine.load_stall_s,
            ready_timeout_s=root.engine.ready_timeout_s,
            stop_timeout_s=root.engine.stop_timeout_s,
        ),
        budget=BudgetConfig(hardware=root.budget.hardware, headroom_mib=root.budget.headroom_mib),
        tuning=TuningConfig(
            mode=TuningMode(root.tuning.mode),
            min_idle_s=root.tuning.min_idle_s,
            min_dwell_s=root.tuning.min_dwell_s,
            max_restarts_per_day=root.tuning.max_restarts_per_day,
        ),
        pools=MappingProxyType(pools),
        groups=MappingProxyType(groups),
        profiles=MappingProxyType(profiles),
        hardware=hardware,
        workloads=MappingProxyType(dict(workloads)),
        sources=sources,
    )


def _server(table: ServerTable, origins: Origins) -> ServerConfig:
    listen = parse_listen(table.listen)
    if not isinstance(listen, Listen):
        raise TypeError(listen)
    socket = table.control_socket
    return ServerConfig(
        listen_host=listen.host,
        listen_port=listen.port,
        control_socket=None
        if socket is None
        else absolute(socket, ("server", "control_socket"), origins),
        max_waiting=table.max_waiting,
        queue_timeout_s=table.queue_timeout_s,
        watch_config=table.watch_config,
        ttl_s=table.ttl_s,
        preload=tuple(dict.fromkeys(table.preload)),
        list_aliases=table.list_aliases,
        batch_max_requests=table.batch_max_requests,
        batch_max_s=table.batch_max_s,
        priority_age_s=table.priority_age_s,
        loading_state=LoadingState(table.loading_state),
        timeouts=ServerTimeouts(**dict(table.timeouts)),
        limits=BodyLimits(**dict(table.limits)),
        hosts=tuple(filter(None, map(parse_host, table.hosts))),
        cors_origins=tuple(filter(None, map(parse_origin, table.cors_origins))),
        max_in_flight_per_token=table.max_in_flight_per_token,
        max_waiting_per_token=table.max_waiting_per_token,
        poison_after=table.poison_after,
        poison_hold_s=table.poison_hold_s,
    )


def _binary(text: str, origins: Origins) -> str:
    """A bare word is looked up later; anything with a slash is a path."""
    return absolute(text, ("engine", "binary"), origins) if "/" in text else text


def absolute(text: str, key: KeyPath, origins: Origins) -> str:
    """A path relative to the file that names it; a bundled model's own path; or as it is."""
    if text.startswith(SCHEME):
        return text  # of a repository, and not there
    if text.startswith(_BUNDLED):
        return str(bundled_model(text.removeprefix(_BUNDLED)))
    origin = origins.find(key)
    return str(Path(origin.folder) / text) if origin is not None else str(Path(text).absolute())


def _pool(name: str, table: PoolTable) -> Pool:
    return Pool(
        name=name,
        members=tuple(table.members),
        objective=Objective(table.objective),
        require_tags=tuple(table.require_tags),
        offload=Offload(table.offload),
        min_context=table.min_context,
        quality_bound=table.quality_bound,
    )


def _group(name: str, table: GroupTable) -> Group:
    return Group(
        name=name,
        members=tuple(table.members),
        swap=table.swap,
        exclusive=table.exclusive,
        persistent=table.persistent,
    )


def _profiles(name: str, table: ModelTable, origins: Origins) -> tuple[Profile, ...]:
    """A model's profile, or one per drafter where several are listed."""
    profile = _profile(name, table, origins)
    if not table.drafters:
        return (profile,)
    named = zip(variant_names(name, table), table.drafters, strict=True)
    return variants(
        profile, {variant: _drafter(drafter, at, origins) for (at, variant), drafter in named}
    )


def _profile(name: str, table: ModelTable, origins: Origins) -> Profile:
    at = ("models", name)
    return Profile(
        name=name,
        model="" if table.model is None else absolute(table.model, (*at, "model"), origins),
        opaque=build_opaque(table, _program(table.command, (*at, "command"), origins)),
        aliases=_aliases(name, table),
        served_as=table.served_as,
        concurrency_limit=table.concurrency_limit,
        title=table.title,
        description=table.description,
        unlisted=table.unlisted,
        upstream_model=table.upstream_model,
        filters=build_filters(table.filters),
        ttl_s=table.ttl_s,
        ready_timeout_s=table.ready_timeout_s,
        stop_timeout_s=table.stop_timeout_s,
        stop_command=_command(table.stop_command, (*at, "stop_command"), origins),
        tags=tuple(table.tags),
        context=table.context,
        slots=_slots(table),
        kv_type=table.kv_type,
        draft_kv_type=table.draft_kv_type,
        offload=Offload(table.offload),
        fit=Fit(table.fit),
        n_gpu_layers=table.n_gpu_layers,
        threads=table.threads,
        batch=table.batch,
        ubatch=table.ubatch,
        flash_attention=table.flash_attention,
        purpose=Purpose(table.purpose),
        pooling=table.pooling,
        device=table.device,
        seed=table.seed,
        drafter=_drafter(table.drafter, (*at, "drafter"), origins),
        quality=_quality(table),
        vram_mib=table.vram_mib,
        loading_state=None if table.loading_state is None else LoadingState(table.loading_state),
        timeouts=EngineTimeouts(**dict(table.timeouts)),
    )


def _slots(table: ModelTable) -> int:
    """How many an opaque program takes at once is its own business, within reason."""
    said = table.kind != "opaque" or "slots" in table.model_fields_set
    return table.slots if said else SLOTS


def _command(words: Sequence[str], at: KeyPath, origins: Origins) -> tuple[str, ...]:
    return (_program(words, at, origins), *words[1:]) if words else ()


def _program(words: Sequence[str], at: KeyPath, origins: Origins) -> str:
    """The first word of a command: looked up later, or a path beside the file that names it."""
    if not words or "/" not in words[0]:
        return words[0] if words else ""
    return absolute(words[0], at, origins)


def _drafter(table: DrafterTable, at: KeyPath, origins: Origins) -> DrafterConfig:
    kind, _, ngram = table.kind.partition("ngram-")
    return DrafterConfig(
        kind=Drafter(kind or Drafter.NGRAM),
        ngram=ngram or SIMPLE,
        max_depth=table.max_depth,
        depth=table.depth,
        p_min=table.p_min,
        model=None if table.model is None else absolute(table.model, (*at, "model"), origins),
        several_slots=table.several_slots,
    )


def _quality(table: ModelTable) -> Quality | None:
    if table.quality is None:
        return None
    return Quality(
        perplexity=table.quality.perplexity,
        stderr=table.quality.stderr,
        corpus=table.quality.corpus,
        chunks=table.quality.chunks,
    )


def build_hardware(name: str, table: HardwareTable) -> HardwareProfile:
    """The facts of a card; its model defaults were merged into the profiles."""
    return HardwareProfile(
        name=name,
        description=table.description,
        isa=table.isa,
        vram_mib=table.vram_mib,
        power_cap_w=table.power_cap_w,
        gate_edge_c=table.gate_edge_c,
        gate=table.gate,
        row_cost=table.row_cost,
        row_cost_sd=table.row_cost_sd,
        row_cost_source=table.row_cost_source,
        drafting_note=table.drafting_note,
    )


def build_workload(name: str, table: WorkloadTable) -> Workload:
    """A prompt set under its name."""
    return Workload(
        name=name,
        description=table.description,
        max_tokens=table.max_tokens,
        prompts=tuple(
            WorkloadPrompt(
                path=prompt.path,
                messages=tuple(
                    Message(role=message.role, content=message.content)
                    for message in prompt.messages
                ),
                prompt=prompt.prompt,
            )
            for prompt in table.prompts
        ),
    )


def _aliases(name: str, table: ModelTable) -> tuple[str, ...]:
    shown = () if table.served_as in {None, name} else (table.served_as,)
    return tuple(dict.fromkeys((*shown, *table.aliases)))
