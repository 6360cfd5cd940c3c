"""What ``mtpd plan`` says of a program that is no llama-server."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from mtpd.cli.configured import print_json
from mtpd.cli.json_views import OpaquePlanView
from mtpd.config.opaque import PORT
from mtpd.engine.opaque import foreign_env, plan_opaque
from mtpd.types import NOT_OURS, EngineKey
from mtpd.units import HOST

if TYPE_CHECKING:
    from mtpd.config.model import Config, Opaque, Profile

__all__ = ["show_opaque"]

_PORT = 8081
"""Stands for the free port of a real start."""


def show_opaque(config: Config, profile: Profile, opaque: Opaque, *, as_json: bool) -> None:
    """Print the command that would start it, and how it is seen to serve.

    Raises:
        EngineError: Its program is not found.
    """
    planned = plan_opaque(
        config,
        profile,
        opaque,
        key=EngineKey(HOST, profile.name),
        port=_PORT,
        env=foreign_env(os.environ.get("PATH", os.defpath), os.environ),
    )
    url, check = (
        opaque.proxy.replace(PORT, str(_PORT)),
        opaque.check or "none: it counts as ready once it runs",
    )
    if as_json:
        told = OpaquePlanView(
            model=profile.name,
            kind="opaque",
            endpoint=url,
            check=opaque.check,
            argv=tuple(planned.command.argv),
            env=tuple(sorted(planned.command.env)),
            stop_command=tuple(profile.stop_command),
            vram_mib=profile.vram_mib,
            residency=NOT_OURS,
        )
        print_json(told)
        return
    said_mib = profile.vram_mib
    memory = "measured once it runs" if said_mib is None else f"{said_mib} MiB, said"
    for name, value in (
        ("model", f"{profile.name}, no llama-server"),
        ("endpoint", url),
        ("check", check),
        ("memory", memory),
        ("variables", ", ".join(sorted(planned.command.env))),
        ("stop", shlex.join(profile.stop_command) or "SIGTERM"),
    ):
        click.echo(f"{name:<9} {value}")
    click.echo()
    click.echo(shlex.join(planned.command.argv))
