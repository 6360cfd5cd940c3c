"""Options that mean nothing without another one are refused instead of being passed over."""

from __future__ import annotations

import click
from click.core import ParameterSource

__all__ = ["only_with"]


def only_with(needed: str, *names: str) -> None:
    """Refuse the options of this command with these names that somebody gave.

    Args:
        needed: What was not given, and is what they are about.
        names: Of their parameters.

    Raises:
        click.UsageError: One was given.
    """
    context = click.get_current_context()
    for one in context.command.params:
        given = one.name and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
        if given and one.name in names:
            message = f"{one.opts[0]} needs {needed}."
            raise click.UsageError(message)
