"""Shows a profile with what was measured of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.config.files import unreadable
from mtpd.control.memory_rows import depth_memory, memory_view, need_view, printed_memory, speed_of
from mtpd.control.names import names
from mtpd.control.rows import depth_rows, quality_view
from mtpd.errors import MtpdError
from mtpd.proxy.replies import ModelCard
from mtpd.proxy.route import AUTO
from mtpd.store.samples import MeasurementFilter
from mtpd.views import ArmMemoryView, ModelView
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.account import MemoryAccount
    from mtpd.control.choices import Choices
    from mtpd.control.hashing import ModelHashes
    from mtpd.control.shapes import MemoryPlanner
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.memory_views import MemoryView, NeedView
    from mtpd.quality_views import BaselineView, PerplexityView
    from mtpd.store.samples import Measurements
    from mtpd.views import ArmView, ChoiceView, EngineView, MeasurementView
    from tuner.summary import ArmSummary
    from tuner.types import Observation

__all__ = ["ModelReports", "cards", "model_view", "unusable"]


class ModelReports:
    """Reports about the configured models; keeps the latest summary of each.

    Args:
        config: The models.
        planner: Makes their fingerprints.
        measurements: What was measured.
        choices: What is served.
        hashes: Of the models' files.
        memory: Forecasts device memory.
        account: What engines need beside others, and hold.
        engines: What runs.
        quality: The newest perplexity and baseline of a model's file.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        planner: LaunchPlanner,
        measurements: Measurements,
        choices: Choices,
        hashes: ModelHashes,
        memory: MemoryPlanner,
        account: MemoryAccount,
        engines: Callable[[], Iterable[EngineView]],
        quality: Callable[[Profile], Awaitable[tuple[PerplexityView | None, BaselineView | None]]],
    ) -> None:
        self._config = config
        self._planner = planner
        self._measurements = measurements
        self._choices = choices
        self._hashes = hashes
        self._memory, self._account = memory, account
        self._engines = engines
        self._quality = quality
        self._summed: dict[str, tuple[str, int, tuple[ArmSummary, ...]]] = {}

    async def of(self, profile: Profile) -> ModelView:
        """A profile with what was measured of it as it is today."""
        rows: tuple[ArmSummary, ...] = ()
        state, digest = "unavailable", self._digest(profile)
        if digest is not None:
            rows = await self._summary(profile.name, digest)
            state = next((e.state for e in self._engines() if e.profile == profile.name), "stopped")
        forecast = await self._memory.forecast(profile)
        perplexity, baseline = await self._quality(profile)
        choice = self._choices.of_profile(profile)
        shown = model_view(
            profile,
            rows,
            choice=self._choices.view(profile.name, choice),
            state=state,
            sha256=await self._hashes.sha256(profile.model),
            memory=memory_view(forecast, speed=speed_of(rows, self._config.hardware)),
            need=need_view(await self._account.need_of(choice.arm, digest or "")),
        )
        return replace(shown, perplexity=perplexity, baseline=baseline)

    async def measured(
        self, profile: Profile
    ) -> tuple[tuple[MeasurementView, ...], tuple[Observation, ...]]:
        """The repetitions of a profile as it is today, as the API shows and the tuner takes them.

        Empty where its file cannot be used.
        """
        digest = self._digest(profile)
        if digest is None:
            return (), ()
        where = MeasurementFilter(profile=profile.name, fingerprint=digest)
        return (
            await self._measurements.list(where),
            await self._measurements.observations(where),
        )

    async def memory(self, engine: EngineView, arm: ArmView) -> ArmMemoryView | None:
        """The memory of an engine's arm: as predicted, and what it holds while it is there.

        None where the configuration does not make the arm any more: an engine that a reload
        has taken away serves until its requests have ended.
        """
        profile = self._config.profiles.get(arm.profile)
        if profile is None or not profile.allows(arm.arm()):
            return None
        forecast = await self._memory.forecast(profile)
        memory = depth_memory(forecast.at(arm.depth))
        if engine.pid is None:
            return ArmMemoryView(arm=arm, memory=memory)
        held = self._account.held_by(arm.arm(), self._digest(profile) or "")
        return ArmMemoryView(
            arm=arm,
            memory=memory,
            held=need_view(held),
            printed=printed_memory(self._memory.printed(arm.arm())),
        )

    async def _summary(self, profile: str, digest: str) -> tuple[ArmSummary, ...]:
        """What was measured under a fingerprint; rows are only ever added."""
        where = MeasurementFilter(profile=profile, fingerprint=digest)
        newest = await self._measurements.list(replace(where, limit=1))
        number = newest[-1].id if newest else 0
        known = self._summed.get(profile)
        if known is None or known[:2] != (digest, number):
            found = await self._measurements.observations(where)
            rows = await to_thread.run_sync(summarise, found)
            known = self._summed[profile] = digest, number, rows
        return known[2]

    def _digest(self, profile: Profile) -> str | None:
        """The fingerprint of a profile; None where its file cannot be read."""
        try:
            return self._planner.digest(profile)
        except MtpdError:
            return None


def model_view(
    profile: Profile,
    rows: Iterable[ArmSummary],
    *,
    choice: ChoiceView,
    state: str,
    sha256: str | None,
    memory: MemoryView,
    need: NeedView | None = None,
) -> ModelView:
    """A profile as the API shows it; its size is null where the file cannot be read."""
    return ModelView(
        id=profile.name,
        aliases=profile.aliases,
        tags=profile.tags,
        kind="llama-server" if profile.opaque is None else "opaque",
        model=profile.model if profile.opaque is None else profile.opaque.command[0],
        size_bytes=None if profile.opaque is not None else _size(profile.model),
        sha256=sha256,
        context=None if profile.opaque is not None else profile.context,
        slots=profile.slots,
        kv_type=profile.kv_type,
        drafter=profile.drafter.word,
        max_depth=profile.drafter.max_depth,
        offload=profile.offload.value,
        quality=quality_view(profile.quality),
        choice=choice,
        depths=depth_rows(rows),
        state=state,
        memory=memory,
        need=need,
    )


def unusable(config: Configuration) -> tuple[str, ...]:
    """Models whose file is missing or no GGUF, each with why."""
    told = ((p.name, p.model) for p in config.profiles.values() if p.opaque is None)
    return tuple(f"{name}: {path} {why}" for name, path in told if (why := unreadable(path)))


def cards(
    config: Configuration, choices: Choices, engines: Iterable[EngineView] = ()
) -> tuple[ModelCard, ...]:
    """Every model and pool as OpenAI clients list them, so that they can be picked.

    ``auto`` leads the list where there are pools, which it chooses from.

    Args:
        config: Profiles; one request gets one slot's share of the context.
        choices: What pools stand for.
        engines: What runs.
    """
    config = config.now
    models = {
        p.name: ModelCard(
            id=p.shown_name,
            created=_created(p.model) if p.opaque is None else 0,
            context=p.context // p.slots if p.opaque is None else None,
            slots=p.slots,
            aliases=tuple(one for one in (*p.aliases, p.name) if one != p.shown_name),
            profile=None if p.shown_name == p.name else p.name,
            title=p.title,
            description=p.description,
            tags=p.tags,
        )
        for p in config.profiles.values()
    }
    running = tuple(engines)
    known = names(config, choices, lambda: None, lambda: running)
    pools = {name: found() for name, found in known.pools.items()}
    if known.default_pool is not None:
        pools = {AUTO: pools[known.default_pool], **pools}
    named = tuple(
        replace(
            models[pool.now.profile],
            id=name,
            aliases=(),
            profile=pool.now.profile,
            title=None,
            tags=pool.tags,
        )
        for name, pool in pools.items()
    )
    listed = [p for p in config.profiles.values() if not p.unlisted]
    others = tuple(
        replace(models[p.name], id=alias, aliases=(), profile=p.name)
        for p in listed
        for alias in p.aliases
        if config.server.list_aliases and alias != p.shown_name
    )
    return (*named, *(models[p.name] for p in listed), *others)


def _created(path: str) -> int:
    """The field is required; a file that cannot be read has no better value than the epoch."""
    try:
        return int(Path(path).stat().st_mtime)
    except OSError:
        return 0


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except OSError:
        return None
