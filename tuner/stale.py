"""What makes stored results worthless: whatever changed between two fingerprints, by name.

A fingerprint digests all that a result depends on; the digests say that something changed
and the named fields say what. Covers the comparison; where the fields come from is the
caller's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Field", "staleness"]

Field = str | int | float | bool | Unknown | None
"""One named fact; None if it does not apply, ``Unknown`` if it could not be read."""


def staleness(before: Mapping[str, Field], now: Mapping[str, Field]) -> tuple[str, ...]:
    """What changed since the results were measured, one clause per field, sorted by name.

    A power cap, a driver or a context alone is enough: step times depend on each. A field
    that cannot be read now is no change, because nothing says that it differs; a field that
    only one side has is one.

    Returns:
        For example ``("power_cap_w was 225 and is 150",)``; empty if the results still hold.
    """
    out: list[str] = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old == new or isinstance(old, Unknown) or isinstance(new, Unknown):
            continue
        if name not in now or new is None:
            out.append(f"{name} was {old} and is gone")
        elif name not in before or old is None:
            out.append(f"{name} is {new} and was not set")
        else:
            out.append(f"{name} was {old} and is {new}")
    return tuple(out)
