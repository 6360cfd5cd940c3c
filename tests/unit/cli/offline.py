"""Running the commands that need no daemon, in a home of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

if TYPE_CHECKING:
    from pathlib import Path

    import click

__all__ = ["POOL", "run", "write"]

POOL = '[pools.p]\nmembers = ["tiny-chained"]\n'
"""A shipped model takes part where the configuration refers to it."""


def run(command: click.Command, *args: str) -> Result:
    return CliRunner().invoke(command, args)


def write(folder: Path, text: str) -> str:
    path = folder / "mtpd.toml"
    path.write_text(text)
    return str(path)
