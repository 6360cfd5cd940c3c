"""``mtpd man``: the manual pages of this installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["man_command"]


def man_command(programs: Callable[[], Mapping[str, click.Group]]) -> click.Command:
    """The command, with the programs that the pages are about."""

    @click.command("man")
    @click.argument("page", required=False)
    @click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Write every page to DIR/man1 and DIR/man5, e.g. ~/.local/share/man.",
    )
    def man(page: str | None, *, out: Path | None) -> None:
        """Print a manual PAGE, or write all of them.

        Without PAGE and --out: the names. Read one: mtpd man mtpctl-tune | man -l -

        The pages are also installed with mtpd, in share/man.
        """
        # It reads all commands, this one too.
        from mtpd.cli.manual import pages  # noqa: PLC0415

        made = pages(programs())
        if out is not None:
            _write(out, made)
        elif page is None:
            click.echo("\n".join(sorted(_name(path) for path in made)))
        else:
            text = next((text for path, text in made.items() if _name(path) == page), None)
            if text is None:
                message = f"there is no page {page!r}; mtpd man lists them"
                raise click.BadParameter(message, param_hint="PAGE")
            click.echo(text, nl=False)

    return man


def _name(path: str) -> str:
    """``man1/mtpd-check.1`` is called mtpd-check."""
    return Path(path).stem


def _write(out: Path, made: Mapping[str, str]) -> None:
    try:
        for path, text in made.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{error.filename} cannot be written: {error.strerror}"
        raise MtpdError(message, hint="name another directory with --out") from error
    click.echo(f"wrote {len(made)} pages to {out}")
