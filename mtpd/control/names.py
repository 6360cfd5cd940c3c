"""What model names mean at this moment, for the data plane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config.model import Purpose
from mtpd.config.tables import Filters
from mtpd.control.pooling import Field, meaning
from mtpd.proxy.route import AUTO, Names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.engine_views import EngineView
    from tuner.types import Arm

__all__ = ["names"]


def names(
    config: Configuration, choices: Choices, serving: Arm | None, engines: Iterable[EngineView] = ()
) -> Names:
    """Profiles with their aliases, pools with the profile that answers now, and who serves.

    Args:
        config: Profiles and their aliases.
        choices: What pools stand for.
        serving: What answers requests that name no model.
        engines: What runs: a pool's member that serves goes on serving.
    """
    removed, config = config.removed, config.now
    known = {name: name for name in config.profiles}
    known |= {alias: p.name for p in config.profiles.values() for alias in p.aliases}
    upstream = {p.name: p.upstream_model for p in config.profiles.values() if p.upstream_model}
    running = tuple(engines)
    pools = {
        name: meaning(Field.of(pool, config), choices, running)
        for name, pool in config.pools.items()
    }
    drafted = {name: pool for name, pool in config.pools.items() if pool.is_model}
    variants = frozenset(member for pool in drafted.values() for member in pool.members)
    left_out = variants - {choices.of_pool(pool).arm.profile for pool in drafted.values()}
    texts = tuple(
        p for p in config.profiles.values() if p.purpose is Purpose.TEXT and p.name not in left_out
    )
    return Names(
        profiles=known,
        pools={name: found for name, found in pools.items() if found is not None},
        drafted=frozenset(drafted),
        variants=variants,
        everything=meaning(Field(name=AUTO, members=texts), choices, running),
        why=lambda name: choices.of_profile(config.profiles[name]).reason,
        upstream=upstream,
        filters={p.name: p.filters for p in config.profiles.values() if p.filters != Filters()},
        serving=None if serving is None else serving.profile,
        removed=removed,
    )
