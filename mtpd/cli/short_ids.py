"""Ids of operations in short: their first characters, as long as they mean one only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from mtpd.cli.decode import decode_all
from mtpd.views import OperationView

if TYPE_CHECKING:
    from mtpd.cli.session import Session

__all__ = ["short_id", "whole_id"]

SHOWN: Final = 8
LEAST: Final = 4
_WHOLE: Final = 36
_MOST: Final = 1000


def short_id(name: str) -> str:
    """As lists show it; ``--json`` has all of it."""
    return name[:SHOWN]


def whole_id(session: Session, given: str) -> str:
    """The id that begins like this; what begins none is left to the daemon to refuse.

    Raises:
        click.UsageError: Several operations begin like this.
    """
    if not LEAST <= len(given) < _WHOLE:
        return given
    known = session.client.get("/operations", {"limit": _MOST}).data
    ids = [one.id for one in decode_all(OperationView, known, "operations")]
    found = [one for one in ids if one.startswith(given)]
    if given in ids or not found:
        return given
    if len(found) > 1:
        message = (
            f"{given} begins {len(found)} operations: {', '.join(found[:3])}; give more of it."
        )
        raise click.UsageError(message)
    return found[0]
