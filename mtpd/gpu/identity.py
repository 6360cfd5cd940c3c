"""Whether the card that an engine names is the one that it was to use. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.units import DeviceKey

__all__ = ["same_card"]

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII
).fullmatch


def same_card(said: str, key: DeviceKey) -> bool | None:
    """Whether two PCI addresses name one card; None where one of them is none.

    Args:
        said: As the engine prints it: upper or lower case, with a domain of four or eight
            digits or without one, which means domain 0.
        key: The configured device.
    """
    ours, theirs = _ADDRESS(key.lower()), _ADDRESS(said.strip().lower())
    if ours is None or theirs is None:
        return None
    domains = [int(match["domain"] or "0", 16) for match in (ours, theirs)]
    return ours["rest"] == theirs["rest"] and domains[0] == domains[1]
