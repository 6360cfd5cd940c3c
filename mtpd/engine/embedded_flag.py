"""One row of the table of what the embedded engine takes, and what it assigns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.engine import embedded_values as v

__all__ = ["Flag", "Setting", "switch", "value"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One assignment to the wheel's parameters; the field is a dotted path."""

    field: str
    value: v.SettingValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One row of the table.

    Attributes:
        names: Spellings that give the value, or that turn a switch on.
        off: Spellings that turn a switch off.
        hint: What the help writes for the value; empty for a switch.
        fields: Dotted paths below the wheel's CommonParams that receive the value;
            none where the build makes the flag meaningless.
        read: Reader of the value; None for a switch.
        help: Its text in the help.
        env: Environment variable that sets it when the flag is absent, or None.
    """

    names: tuple[str, ...]
    off: tuple[str, ...] = ()
    hint: str = ""
    fields: tuple[str, ...] = ()
    read: v.Read | None = None
    help: str
    env: str | None = None


def value(
    names: str, hint: str, fields: str, read: v.Read, about: str, *, env: str | None = None
) -> Flag:
    """A row for a flag with a value; names and fields are separated by spaces."""
    return Flag(
        names=tuple(names.split()),
        hint=hint,
        fields=tuple(fields.split()),
        read=read,
        help=about,
        env=env,
    )


def switch(names: str, off: str, fields: str, about: str) -> Flag:
    """A row for a flag without a value."""
    return Flag(
        names=tuple(names.split()), off=tuple(off.split()), fields=tuple(fields.split()), help=about
    )
