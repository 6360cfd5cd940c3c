"""``mtpctl schema`` and ``mtpd schema``: what a command prints with ``--json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mtpd.api.json_schema import document_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.api.json_schema import Shape

__all__ = ["schema_command"]


def schema_command(shapes: Callable[[], Mapping[str, tuple[Shape, ...]]]) -> click.Command:
    """The command of a program whose commands print these shapes."""

    @click.command("schema")
    @click.argument("words", nargs=-1, metavar="[COMMAND...]")
    def schema(words: tuple[str, ...]) -> None:
        """Print the JSON Schema of what COMMAND prints with --json.

        Without COMMAND: the commands that have one. A daemon's own description of its API is
        GET /mtpd/v1/openapi.json.
        """
        known, name = shapes(), " ".join(words)
        if not words:
            click.echo("\n".join(known))
        elif name in known:
            click.echo(json.dumps(document_of(*known[name]), indent=2))
        else:
            from mtpd.config.checks import did_you_mean  # noqa: PLC0415  # takes long to load

            message = f"{name!r} prints no JSON{did_you_mean(name, known)}"
            raise click.BadParameter(message, param_hint="COMMAND")

    return schema
