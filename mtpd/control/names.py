"""What model names mean at this moment, for the data plane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.proxy.route import Names

if TYPE_CHECKING:
    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from tuner.types import Arm

__all__ = ["names"]


def names(config: Configuration, choices: Choices, serving: Arm | None) -> Names:
    """Profiles with their aliases, pools with the profile chosen now, and who serves.

    Args:
        config: Profiles and their aliases.
        choices: What pools stand for.
        serving: What answers requests that name no model.
    """
    known = {name: name for name in config.profiles}
    known |= {alias: p.name for p in config.profiles.values() for alias in p.aliases}
    upstream = {p.name: p.upstream_model for p in config.profiles.values() if p.upstream_model}
    return Names(
        profiles=known,
        pools=choices.pools(),
        upstream=upstream,
        serving=None if serving is None else serving.profile,
        removed=config.removed,
    )
