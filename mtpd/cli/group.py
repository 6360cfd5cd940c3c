"""How the programs list their commands, with the whole first sentence of each, and load them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Commands", "Later"]

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


class Later(MutableMapping[str, click.Command]):
    """Commands by name, of which some are loaded only when the others do not suffice.

    A daemon runs for weeks: what other commands load would stay in its memory.

    Args:
        now: Those that are there.
        rest: Loads the others.
    """

    def __init__(
        self, now: Sequence[click.Command], rest: Callable[[], Sequence[click.Command]]
    ) -> None:
        self._known = _by_name(now)
        self._rest: Callable[[], Sequence[click.Command]] | None = rest

    def __getitem__(self, name: str) -> click.Command:
        return self._known[name] if name in self._known else self._all()[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._all()[name] = command

    def __delitem__(self, name: str) -> None:
        del self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, click.Command]:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._known |= _by_name(rest())
        return self._known


def _by_name(commands: Sequence[click.Command]) -> dict[str, click.Command]:
    return {command.name: command for command in commands if command.name is not None}
