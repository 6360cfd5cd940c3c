"""The one place that turns an error into a sentence, a hint and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from mtpd.errors import EXIT_FAILED, MtpdError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["exit_code_of"]


def exit_code_of(
    command: click.Command, args: Sequence[str] | None = None, *, name: str = "mtpd"
) -> int:
    """Run a click command; print what went wrong on stderr; return the exit code.

    Set ``MTPD_TRACEBACK=1`` to see the traceback of an unexpected error.
    """
    try:
        result = command.main(args=args, standalone_mode=False)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:  # noqa: BLE001  # the end
        return _report(error, name)
    return result if isinstance(result, int) else 0


def _report(error: BaseException, name: str) -> int:
    match error:
        case click.ClickException():
            error.show()
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            click.echo("interrupted", err=True)
        case MtpdError():
            _show(str(error), error.hint, name)
            return error.exit_code
        case BrokenPipeError():  # the reader of our output left: nothing more to say to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        case SystemExit():  # what prints has ended the program already, e.g. for such a reader
            return error.code if isinstance(error.code, int) else EXIT_FAILED * bool(error.code)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = f" for {error.filename}" if error.filename else ""
            _show(f"there is no space left{where}: {error.strerror}", "free disk space", name)
        case BaseExceptionGroup() if (inner := _told(error)) is not None:
            return _report(inner, name)
        case _:
            _show(
                f"unexpected {type(error).__name__}: {error}",
                "this is a fault of mtpd; run again with MTPD_TRACEBACK=1 and report the traceback",
                name,
            )
            if os.environ.get("MTPD_TRACEBACK"):
                traceback.print_exception(error)
    return EXIT_FAILED


def _told(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """What a task group wraps and a user understands; a sentence before an interrupt."""
    for kind in ((MtpdError, click.ClickException), (OSError, SystemExit), KeyboardInterrupt):
        if (expected := group.subgroup(kind)) is not None:
            return expected.exceptions[0]
    return None


def _show(message: str, hint: str | None, name: str) -> None:
    for line in message.splitlines() or [""]:
        click.echo(f"{name}: {line}", err=True)
    if hint:
        click.echo(f"{' ' * len(name)}  ({hint})", err=True)
