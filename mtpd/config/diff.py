"""What a configuration that was read again changes, and what of it can be applied. Pure.

``diff`` says it, ``revised`` makes the configuration that is in force from then on. What
was captured when the daemon started (addresses, the engine binary, the card) stays as it
was until the daemon is started again, and is named. A key of a model that is not listed
here is the careful kind and needs another engine; a part of the configuration, a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from mtpd.config.locate import dotted
from mtpd.config.model import (
    BudgetConfig,
    Config,
    DrafterConfig,
    EngineConfig,
    Fit,
    Profile,
    ServerConfig,
)
from mtpd.config.origins import leaves
from mtpd.views import Json  # noqa: TC001  # the schema of a reload's result resolves it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.locate import Path

__all__ = ["Changes", "EngineSettings", "Value", "diff", "engine_settings", "revised"]

PartT = TypeVar("PartT", ServerConfig, EngineConfig, BudgetConfig)

_APPLIED = frozenset(
    {
        "tuning", "pools", "profiles", "workloads", "origins", "written", "sources", "remarks",
        "tokens",
    }
)  # fmt: skip
"""Parts that are read anew wherever they count."""

_CAPTURED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "server": frozenset({"listen_host", "listen_port", "control_socket"}),
        "engine": frozenset({"binary", "extra_env"}),
        "budget": frozenset({"hardware"}),
    }
)
"""Parts that are read anew but for what was looked at when the daemon started."""

_DESCRIPTIVE = (
    *("aliases", "tags", "quality", "concurrency_limit", "vram_mib"),
    *("title", "description", "unlisted", "upstream_model", "filters", "timeouts", "loading_state"),
    *("ttl_s", "ready_timeout_s", "stop_timeout_s", "stop_command"),
)
"""Of a model: what its engine never sees."""

_SECTIONS = frozenset({"pools", "models"})
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """All that the configuration says about how a model's engine runs, whatever its depth.

    Attributes:
        profile: The model, with the threads that it gets and without what describes it.
        headroom_mib: What the engine's own fit leaves free, where it is told.
    """

    profile: Profile
    headroom_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that is another one now.

    Attributes:
        key: As it is written in ``mtpd.toml``.
        old: Before, None where it was not set.
        new: Now, likewise.
        origin: Where it is written now.
    """

    key: str
    old: Json
    new: Json
    origin: str

    def __str__(self) -> str:
        """One line of evidence."""
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)} ({self.origin})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """From one configuration to another.

    Attributes:
        added: Models that are new.
        removed: Models that are gone.
        changed: Models whose engine would run otherwise.
        described: Models of which only names, tags, bounds or facts are others.
        pools: Pools that are new, gone, or others.
        workloads: Workloads that are new, gone, or others.
        settings: Keys outside models and pools that are applied.
        needs_restart: Keys that take effect after a restart of the daemon.
        values: Every value of a model, a pool or a setting that is applied.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()

    @property
    def applied(self) -> bool:
        """Whether anything changes while the daemon runs."""
        parts = (self.added, self.removed, self.changed, self.described)
        return any((*parts, self.pools, self.workloads, self.settings))

    @property
    def reason(self) -> str:
        """All of it in one sentence."""
        told = (
            ("new", self.added),
            ("gone", self.removed),
            ("other engine settings", self.changed),
            ("other names or facts", self.described),
            ("pools", self.pools),
            ("workloads", self.workloads),
            ("settings", self.settings),
            ("after a restart of the daemon", self.needs_restart),
        )
        named = "; ".join(f"{what}: {', '.join(names)}" for what, names in told if names)
        return f"the configuration was read again: {named or 'nothing is different'}"


def diff(old: Config, new: Config) -> Changes:
    """What changes where ``new`` follows ``old``."""
    restart = _needs_restart(old, new)
    both = [name for name in new.profiles if name in old.profiles]
    changed = tuple(n for n in both if engine_settings(old, n) != engine_settings(new, n))
    values = tuple(value for value in _values(old, new) if not _kept(value.key, restart))
    return Changes(
        added=tuple(name for name in new.profiles if name not in old.profiles),
        removed=tuple(name for name in old.profiles if name not in new.profiles),
        changed=changed,
        described=tuple(n for n in both if n not in changed and old.profiles[n] != new.profiles[n]),
        pools=_different(old.pools, new.pools),
        workloads=_different(old.workloads, new.workloads),
        settings=(
            *(v.key for v in values if v.key.partition(".")[0] not in _SECTIONS),
            *(() if old.tokens == new.tokens else ("apiKeys",)),  # told without their values
        ),
        needs_restart=restart,
        values=values,
    )


def revised(old: Config, new: Config) -> Config:
    """``new``, except for what takes effect after a restart of the daemon."""
    kept = {
        part.name: getattr(old, part.name)
        for part in fields(Config)
        if part.name not in _APPLIED and part.name not in _CAPTURED
    }
    config = replace(
        new,
        server=_joined(old.server, new.server, _CAPTURED["server"]),
        engine=_joined(old.engine, new.engine, _CAPTURED["engine"]),
        budget=_joined(old.budget, new.budget, _CAPTURED["budget"]),
        **kept,
    )
    restart = _needs_restart(old, new)
    origins = {k: v for k, v in new.origins.items() if not _kept(k, restart)}
    origins |= {k: v for k, v in old.origins.items() if _kept(k, restart)}
    return replace(config, origins=MappingProxyType(origins))


def engine_settings(config: Config, name: str) -> EngineSettings:
    """How the engine of a model runs; equal ones need no other engine."""
    profile = config.profiles[name]
    threads = profile.threads if profile.threads is not None else config.engine.threads
    # The engine's own fit is told the headroom only where it decides.
    told = profile.fit is Fit.AUTO and profile.n_gpu_layers is None
    none = Profile(name="", model="")
    return EngineSettings(
        profile=replace(
            profile,
            threads=threads,
            drafter=replace(profile.drafter, max_depth=DrafterConfig().max_depth),
            **{key: getattr(none, key) for key in _DESCRIPTIVE},
        ),
        headroom_mib=config.budget.headroom_mib if told else None,
    )


def _needs_restart(old: Config, new: Config) -> tuple[str, ...]:
    """Keys, and parts without keys, that were captured when the daemon started."""
    keys = [v.key for v in _values(old, new) if _captured(v.key)]
    sections = {key.partition(".")[0] for key in keys}
    for part in fields(Config):
        if part.name in _APPLIED or part.name in _CAPTURED or part.name in sections:
            continue
        if getattr(old, part.name) != getattr(new, part.name):
            keys.append(part.name)
    return tuple(keys)


def _captured(key: str) -> bool:
    section, _, name = key.partition(".")
    if section in _CAPTURED:
        return name == "listen" or name.partition(".")[0] in _CAPTURED[section]
    return section not in _APPLIED | _SECTIONS


def _kept(key: str, restart: tuple[str, ...]) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in restart)


def _joined(old: PartT, new: PartT, captured: frozenset[str]) -> PartT:
    return replace(new, **{name: getattr(old, name) for name in captured})


def _different(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in {**new, **old} if old.get(name) != new.get(name))


def _values(old: Config, new: Config) -> tuple[Value, ...]:
    """Every value that differs; of a model that is new or gone only its file."""
    before, after = dict(leaves(old)), dict(leaves(new))
    found = []
    for path in {**after, **before}:
        was, now = before.get(path, _NOTHING), after.get(path, _NOTHING)
        if was == now or (_NOTHING in (was, now) and not _stands_for_all(path)):
            continue
        key = dotted(path)
        where = new if path in after else old
        found.append(
            Value(
                key=key,
                old=before.get(path),
                new=after.get(path),
                origin=where.origins.get(key, "default"),
            )
        )
    return tuple(found)


def _stands_for_all(path: Path) -> bool:
    """Whether a value is told where its table is new or gone."""
    match path:
        case ("models", _, name):
            return name == "model"
        case ("pools", _, name):
            return name == "members"
        case _:
            return path[0] not in _SECTIONS


def _shown(value: Json) -> str:
    return "not set" if value is None else str(value)
