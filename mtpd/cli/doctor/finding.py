"""Findings and checks under construction. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.cli.doctor.facts import Facts

__all__ = ["ERROR", "WARNING", "Check", "Found", "Seen", "edit", "quoted"]

ERROR: Final = "error"
WARNING: Final = "warning"

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)")


@dataclass(frozen=True, slots=True)
class Found:
    """One finding of a check: how bad, what and why, and the command that mends it."""

    severity: str
    says: str
    fix: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check says where it finds nothing.

    Attributes:
        says: One clause.
        state: ok, unknown or not_applicable.
    """

    says: str
    state: str = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its name, what it finds, and what it says else."""

    name: str
    find: Callable[[Facts], Iterator[Found]]
    see: Callable[[Facts], Seen]


def quoted(*words: str) -> str:
    """Words as a shell takes them."""
    return shlex.join(words)


def edit(place: str, path: str | None, *, then: str = "") -> str:
    """The command that opens a place of the configuration.

    Args:
        place: Begins with ``FILE:LINE``, or is "default" or "command line".
        path: The configuration file, or None.
        then: What to change there.
    """
    note = f"    # {then}" if then else ""
    found = _PLACE.match(place)
    if found is None:
        return f"${{EDITOR:-vi}} {quoted(path or '/etc/mtpd/mtpd.toml')}{note}"
    return f"${{EDITOR:-vi}} +{found['line']} {quoted(found['file'])}{note}"
