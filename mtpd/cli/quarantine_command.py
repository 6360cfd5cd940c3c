"""``mtpctl quarantine``: requests that are refused because engines died of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Group

from mtpd.cli import completing
from mtpd.cli.cells import cell, duration, grid, line
from mtpd.cli.client import segment
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.group import Commands
from mtpd.cli.session import Session, connected, connection_options
from mtpd.views import QuarantineView

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["quarantine"]


@click.group(cls=Commands)
@connection_options
def quarantine(**_connection: object) -> None:
    """Look at requests that brought engines down, or let them try again."""


@quarantine.command("list")
@connected
def list_(session: Session) -> None:
    """List the requests that are refused, with the deaths that they caused."""
    reply = session.client.get("/quarantine")
    session.show(reply, lambda: _listed(decode_all(QuarantineView, reply.data, "quarantine")))


@quarantine.command()
@click.argument("which", metavar="ID", shell_complete=completing.quarantined)
@connected
def clear(session: Session, which: str) -> None:
    """Let the request ID try again."""
    reply = session.client.delete(f"/quarantine/{segment(which)}")
    session.show(reply, lambda: cell(_cleared(decode(QuarantineView, reply.data))))


def _cleared(view: QuarantineView) -> str:
    return f"{view.id} may be asked of {view.profile} again"


def _listed(entries: Sequence[QuarantineView]) -> Group:
    made = grid()
    for one in entries:
        line(made, one.id, one.reason)
        line(made, "", f"{one.size_bytes} bytes to {one.path}, for {duration(one.left_s)} more")
        for death in one.deaths:
            line(made, "", death)
    return Group(made if entries else cell("no request is quarantined"))
