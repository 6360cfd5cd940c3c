"""The configuration in force: read by everybody, replaced by a reload and by nothing else.

What a part of the daemon holds is a ``Configuration``: a frozen ``Config``, or the one
``LiveConfig`` of the daemon. Each attribute is read anew, so none may be kept; whoever
reads several that must belong together, or awaits in between, takes ``now`` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.model import (
        BudgetConfig,
        Config,
        EngineConfig,
        Group,
        HardwareProfile,
        Pool,
        Profile,
        ServerConfig,
        TuningConfig,
        Workload,
    )

__all__ = ["Configuration", "LiveConfig"]


class Configuration(Protocol):
    """What is configured; see ``Config`` for each attribute."""

    @property
    def now(self) -> Config:
        """All of it as it is at this moment."""

    @property
    def server(self) -> ServerConfig:
        """Where clients are answered."""

    @property
    def engine(self) -> EngineConfig:
        """Which llama-server is started."""

    @property
    def budget(self) -> BudgetConfig:
        """What the machine may be used up to."""

    @property
    def tuning(self) -> TuningConfig:
        """When the daemon may act by itself."""

    @property
    def pools(self) -> Mapping[str, Pool]:
        """By name."""

    @property
    def groups(self) -> Mapping[str, Group]:
        """By name."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """By name."""

    @property
    def hardware(self) -> HardwareProfile | None:
        """The selected hardware profile, or None."""

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """By name."""

    @property
    def removed(self) -> frozenset[str]:
        """Names of models and pools that a reload took away."""

    def profile_for(self, name: str) -> Profile | None:
        """The profile with this name or alias, or None."""


class LiveConfig:
    """The daemon's configuration, whichever it is now."""

    def __init__(self, config: Config) -> None:
        self._now = config
        self._removed: frozenset[str] = frozenset()

    def replace(self, config: Config) -> None:
        """Put another one in its place; for the reload."""
        self._removed = (self._removed | _names(self._now)) - _names(config)
        self._now = config

    @property
    def now(self) -> Config:
        """All of it as it is at this moment."""
        return self._now

    @property
    def server(self) -> ServerConfig:
        """Where clients are answered."""
        return self._now.server

    @property
    def engine(self) -> EngineConfig:
        """Which llama-server is started."""
        return self._now.engine

    @property
    def budget(self) -> BudgetConfig:
        """What the machine may be used up to."""
        return self._now.budget

    @property
    def tuning(self) -> TuningConfig:
        """When the daemon may act by itself."""
        return self._now.tuning

    @property
    def pools(self) -> Mapping[str, Pool]:
        """By name."""
        return self._now.pools

    @property
    def groups(self) -> Mapping[str, Group]:
        """By name."""
        return self._now.groups

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """By name."""
        return self._now.profiles

    @property
    def hardware(self) -> HardwareProfile | None:
        """The selected hardware profile, or None."""
        return self._now.hardware

    @property
    def workloads(self) -> Mapping[str, Workload]:
        """By name."""
        return self._now.workloads

    @property
    def removed(self) -> frozenset[str]:
        """Names of models and pools that a reload took away."""
        return self._removed

    def profile_for(self, name: str) -> Profile | None:
        """The profile with this name or alias, or None."""
        return self._now.profile_for(name)


def _names(config: Config) -> frozenset[str]:
    aliases = (alias for profile in config.profiles.values() for alias in profile.aliases)
    return frozenset((*config.profiles, *config.pools, *aliases))
