"""``mtpctl doctor``: what is wrong with this installation, and the commands that mend it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from mtpd.cli.client import Client
from mtpd.cli.doctor.report import show
from mtpd.cli.session import Session, connected
from mtpd.clock import SystemClock
from mtpd.errors import EXIT_FAILED
from mtpd.views import encode

__all__ = ["doctor"]

ROOT = Path("/")
"""Where ``sys``, ``proc``, ``dev`` and ``etc`` lie."""
PATIENCE_S = 10.0
"""A daemon that takes longer for its status hangs."""
PATHS = click.Path(path_type=Path)


@click.command()
@click.option(
    "--config",
    "path",
    type=PATHS,
    metavar="FILE",
    help="The configuration [default: the running daemon's, else the one mtpd would find].",
)
@click.option(
    "--state-dir", type=PATHS, metavar="DIR", help="The daemon's, if it was started with one."
)
@connected
def doctor(session: Session, *, path: Path | None, state_dir: Path | None) -> None:
    """Find what is wrong here, and name the command that mends it; changes nothing.

    Looks at the configuration, the engine and its options, the card with its rights, cap
    and sensor, ports, sockets, disk, model files, limits, tokens, units and the daemon,
    whether one runs or not. Run it with sudo to look at what only the service may see.
    Exit codes: 0 all is well, 1 something was found.
    """
    # What it looks with takes longer to load than all the other commands together.
    from mtpd.cli.doctor.look import Wanted, collect  # noqa: PLC0415
    from mtpd.cli.doctor.machine import Machine  # noqa: PLC0415
    from mtpd.cli.doctor.planner import examine  # noqa: PLC0415
    from mtpd.cli.loglines import logs_to_stderr  # noqa: PLC0415

    logs_to_stderr()
    machine = Machine(root=ROOT, environment=os.environ, clock=SystemClock())
    client = Client(session.client.target, answer_s=PATIENCE_S)
    view = examine(collect(client, machine, Wanted(config=path, state=state_dir)))
    if session.as_json:
        click.echo(json.dumps(encode(view), indent=2, ensure_ascii=False))
    else:
        show(session.out, view)
    if not view.ok:
        raise click.exceptions.Exit(EXIT_FAILED)
