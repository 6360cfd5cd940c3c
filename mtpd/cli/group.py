"""How the programs list their commands: with the whole first sentence of each."""

from __future__ import annotations

import click

__all__ = ["Commands"]

_WHOLE = 1000
"""Characters of a sentence; click cuts it to the width of the window."""


class Commands(click.Group):
    """A group whose ``--help`` cuts no command's sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their sentences, wrapped."""
        shown = [
            (name, command.get_short_help_str(_WHOLE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        if shown:
            with formatter.section("Commands"):
                formatter.write_dl(shown)
