"""``mtpctl reload``: have the daemon read its configuration again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.text import Text

from mtpd.cli.session import Session, connected
from mtpd.cli.waiting import DETACH, order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mtpd.views import Json, OperationView

__all__ = ["reload", "reload_report"]

_BECAME = {
    "restarted": "restarted with its new settings",
    "unloaded": "unloaded",
    "waits": "runs with its old settings until its requests have ended",
}


@click.command()
@DETACH
@connected
def reload(session: Session, *, detach: bool) -> None:
    """Read the configuration again and apply what changed.

    Only models that it changes are drained and restarted; requests that run end first. A
    configuration with errors changes nothing: every error is printed as FILE:LINE: KEY:
    what is wrong, and the exit code is 78. What takes effect only after a restart of the
    daemon, such as its address, is named.
    """
    order(session, "/reload", {}, detach=detach, draw=reload_report)


def reload_report(operation: OperationView) -> RenderableType:
    """What is different, and what became of each engine that ran otherwise."""
    return Group(*(Text(one) for one in _lines(operation.result or {})))


def _lines(result: dict[str, Json]) -> Iterator[str]:
    yield str(result.get("reason"))
    changes = result.get("changes")
    for one in _tables(changes.get("values") if isinstance(changes, dict) else None):
        old, new = ("not set" if one.get(side) is None else one[side] for side in ("old", "new"))
        yield f"  {one.get('key')}: {old} -> {new} ({one.get('origin')})"
    for one in _tables(result.get("engines")):
        outcome = str(one.get("outcome"))
        yield f"{one.get('profile')}: {_BECAME.get(outcome, outcome)}"
    warnings = result.get("warnings")
    yield from (f"warning: {one}" for one in (warnings if isinstance(warnings, list) else ()))


def _tables(value: Json) -> list[dict[str, Json]]:
    """The objects of a list; an answer of another version may have none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
