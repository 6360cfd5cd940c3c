"""``mtpd completion`` and ``mtpctl completion``: what a shell reads to complete the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

__all__ = ["completion_command"]

_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


def completion_command(program: str) -> click.Command:
    """The command of a program that is called so."""

    @click.command("completion")
    @click.argument("shell", type=click.Choice(tuple(_SHELLS)), metavar="bash|zsh|fish")
    @click.pass_context
    def completion(ctx: click.Context, shell: str) -> None:
        """Print what a shell needs to complete the words of this program.

        For this shell only: source <(PROGRAM completion bash). For good: write it to
        ~/.local/share/bash-completion/completions/PROGRAM, to a file _PROGRAM in a folder of
        zsh's $fpath, or to ~/.config/fish/completions/PROGRAM.fish.
        """
        # Not source(): click would start bash to ask for its version.
        made = _SHELLS[shell](ctx.find_root().command, {}, program, f"_{program.upper()}_COMPLETE")
        click.echo(made.source_template % made.source_vars())

    return completion
