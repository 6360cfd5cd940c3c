"""Shows a profile with what was measured of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.control.rows import depth_rows, quality_view
from mtpd.proxy.replies import ModelCard
from mtpd.views import ModelView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.config.model import Config, Profile
    from mtpd.views import ChoiceView
    from tuner.summary import ArmSummary

__all__ = ["cards", "model_view"]


def model_view(
    profile: Profile,
    rows: Iterable[ArmSummary],
    *,
    choice: ChoiceView,
    state: str,
    sha256: str | None,
) -> ModelView:
    """A profile as the API shows it; its size is null where the file cannot be read."""
    return ModelView(
        id=profile.name,
        aliases=profile.aliases,
        tags=profile.tags,
        model=profile.model,
        size_bytes=_size(profile.model),
        sha256=sha256,
        context=profile.context,
        slots=profile.slots,
        kv_type=profile.kv_type,
        drafter=profile.drafter.kind.value,
        max_depth=profile.drafter.max_depth,
        offload=profile.offload.value,
        quality=quality_view(profile.quality),
        choice=choice,
        depths=depth_rows(rows),
        state=state,
    )


def cards(config: Config, pools: Mapping[str, str]) -> tuple[ModelCard, ...]:
    """Every model and pool as OpenAI clients list them, so that they can be picked.

    Args:
        config: Profiles; one request gets one slot's share of the context.
        pools: Pool name to the profile that it stands for now.
    """
    models = {
        p.name: ModelCard(
            id=p.name,
            created=_created(p.model),
            context=p.context // p.slots,
            aliases=p.aliases,
        )
        for p in config.profiles.values()
    }
    named = tuple(
        replace(models[profile], id=pool, aliases=(), profile=profile)
        for pool, profile in pools.items()
    )
    return (*named, *models.values())


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
