"""What model names mean at this moment, for the data plane. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mtpd.config.model import Purpose
from mtpd.control.pooling import Field, meaning
from mtpd.proxy.route import AUTO, NO_FILTERS, Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool
    from mtpd.control.choices import Choices
    from mtpd.engine_views import EngineView
    from mtpd.proxy.route import PoolMeaning
    from tuner.types import Arm

__all__ = ["names"]


def names(
    config: Configuration,
    choices: Choices,
    serving: Callable[[], Arm | None],
    engines: Callable[[], Iterable[EngineView]],
) -> Names:
    """Profiles with their aliases, pools with the profile that answers now, and who serves.

    Args:
        config: Profiles and their aliases.
        choices: What pools stand for.
        serving: Asks what answers requests that name no model.
        engines: Asks what runs: a pool's member that serves goes on serving.
    """
    removed, config = config.removed, config.now
    profiles = config.profiles.values()
    known = {name: name for name in config.profiles}
    known |= {alias: p.name for p in profiles for alias in p.aliases}
    drafted = {name: pool for name, pool in config.pools.items() if pool.is_model}
    variants = frozenset(member for pool in drafted.values() for member in pool.members)

    def of_pool(pool: Pool) -> PoolMeaning:
        return meaning(Field.of(pool, config), choices, engines())

    def everything() -> PoolMeaning | None:
        left_out = variants - {choices.of_pool(pool).arm.profile for pool in drafted.values()}
        texts = tuple(p for p in profiles if p.purpose is Purpose.TEXT and p.name not in left_out)
        return meaning(Field(name=AUTO, members=texts), choices, engines()) if texts else None

    def served() -> str | None:
        arm = serving()
        return None if arm is None else arm.profile

    return Names(
        profiles=known,
        pools={name: partial(of_pool, pool) for name, pool in config.pools.items()},
        drafted=frozenset(drafted),
        variants=variants,
        everything=everything,
        why=lambda name: choices.of_profile(config.profiles[name]).reason,
        upstream={p.name: p.upstream_model for p in profiles if p.upstream_model},
        filters={p.name: p.filters for p in profiles if p.filters != NO_FILTERS},
        serving=served,
        removed=removed,
    )
