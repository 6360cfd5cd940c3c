"""Every command of both programs, for docs/commands.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd
from mtpd.cli.reference import commands

if TYPE_CHECKING:
    import click

    from mtpd.cli.reference import CommandText

__all__ = ["BLOCKS"]

_FLAG = re.compile(r"(?<![\w`-])(--?[a-z][\w-]*(?: [A-Z]+)?|\$[A-Z_]+(?:/[\w./-]+)?|~/[\w./-]+)")


def prose(text: str) -> str:
    """A paragraph of help with its flags, variables and paths as code, safe for a table."""
    return _FLAG.sub(r"`\1`", text).replace("|", "\\|").replace("<", "\\<")


def _section(command: CommandText) -> str:
    level = "##" if " " not in command.name else "###"
    lines = [f"{level} {command.name}", "", "```text", command.usage, "```"]
    for paragraph in command.paragraphs:
        lines += ["", prose(paragraph)]
    if command.options:
        lines += ["", "| option | meaning |", "|---|---|"]
        lines += [
            f"| `{flags.replace('|', chr(92) + '|')}` | {prose(meaning)} |"
            for flags, meaning in command.options
        ]
    return "\n".join(lines)


def listed(program: click.Group, name: str) -> str:
    """A program and each of its commands."""
    return "\n\n".join(_section(command) for command in commands(program, name))


BLOCKS = {"commands mtpd": listed(mtpd, "mtpd"), "commands mtpctl": listed(mtpctl, "mtpctl")}
