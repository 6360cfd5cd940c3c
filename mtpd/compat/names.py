"""Names of a foreign file as names of profiles, each name once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from mtpd.compat.remarks import Import, Path

__all__ = ["is_alias", "profile_name"]

_REFUSED = re.compile(r"[^A-Za-z0-9._+:-]+")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:/@-]{0,199}")
_LONGEST = 90


def is_alias(name: str) -> bool:
    """Whether a profile may have this alias."""
    return _ALIAS.fullmatch(name) is not None


def profile_name(name: str, aliases: list[str], into: Import, *, line: int, key: Path) -> str:
    """The profile's name for a model; a name that needs ``/`` or ``@`` is what it is served as.

    Args:
        name: As the file has it.
        aliases: Of the model; the name is added where it is not the profile's.
        into: Takes the remark, and knows which names are taken.
        line: Where the name is written.
        key: Its key in the file.
    """
    made = _REFUSED.sub("-", name).strip("._+:-")[:_LONGEST] or "model"
    taken = set(into.names.values())
    base, count = made, 1
    while made in taken:
        count += 1
        made = f"{base}-{count}"
    into.names[name] = made
    if made == name:
        return made
    if is_alias(name):
        aliases.insert(0, name)
        into.put(("models", made, "served_as"), name, line=line, key=key)
        message = f"is the profile {made!r} here, and is served as {name!r}"
        into.remark(Kind.CHANGED, line, key, message)
    else:
        message = f"no client can ask for {name!r} here; its name is {made!r}"
        into.remark(Kind.NOT_HONOURED, line, key, message)
    return made
