"""Every command with its usage, what it does and its options, read from the click tree.

docs/commands.md and the manual pages are made of this.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CommandText", "commands"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandText:
    """What ``--help`` says of a command, in parts.

    Attributes:
        name: As it is typed, e.g. ``mtpctl operations cancel``.
        usage: The line with its options and arguments.
        summary: One line.
        paragraphs: What it does, one string each, without line breaks.
        options: Flags and meaning of each; those of the program itself stand there alone.
        is_group: Whether it only holds other commands.
    """

    name: str
    usage: str
    summary: str
    paragraphs: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    is_group: bool


def commands(program: click.Group, name: str) -> Iterator[CommandText]:
    """The program itself, then each of its commands in the order of the alphabet."""
    ctx = click.Context(program, info_name=name, **program.context_settings)
    yield from _walk(program, ctx, shared=frozenset())


def _walk(
    command: click.Command, ctx: click.Context, *, shared: frozenset[str]
) -> Iterator[CommandText]:
    parts = [
        " ".join(part.split())
        for part in inspect.cleandoc(command.help or "").split("\n\n")
        if part.strip()
    ]
    options = [
        (option, record)
        for option in command.get_params(ctx)
        if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None
    ]
    yield CommandText(
        name=ctx.command_path,
        usage=command.get_usage(ctx).removeprefix("Usage: ").replace("\n", " "),
        summary=command.get_short_help_str(limit=200),
        paragraphs=tuple(parts),
        options=tuple(record for option, record in options if option.opts[0] not in shared),
        is_group=isinstance(command, click.Group),
    )
    if isinstance(command, click.Group):
        known = shared | {option.opts[0] for option, _ in options} | {"-h"}
        for name in sorted(command.commands):
            inner = command.commands[name]
            below = click.Context(inner, info_name=name, parent=ctx)
            yield from _walk(inner, below, shared=known)
