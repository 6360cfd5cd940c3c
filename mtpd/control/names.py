"""What model names mean at this moment, for the data plane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.proxy.route import Names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.views import EngineView

__all__ = ["names"]


def names(config: Configuration, choices: Choices, engines: Iterable[EngineView]) -> Names:
    """Profiles with their aliases, pools with the profile chosen now, and who serves."""
    known = {name: name for name in config.profiles}
    known |= {alias: p.name for p in config.profiles.values() for alias in p.aliases}
    upstream = {p.name: p.upstream_model for p in config.profiles.values() if p.upstream_model}
    serving = next((e.profile for e in engines if e.state == "ready"), None)
    return Names(
        profiles=known,
        pools=choices.pools(),
        upstream=upstream,
        serving=serving,
        removed=config.removed,
    )
