"""The daemon's command: ``mtpd serve|demo|check|config|plan|import|powercap|token|…``.

Tracebacks and exit codes are decided here, in ``main``, and nowhere else.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mtpd import __version__
from mtpd.cli.daemon_commands import serve
from mtpd.cli.failure import exit_code_of
from mtpd.cli.group import Commands, Later

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["cli", "main"]


def _others() -> Sequence[click.Command]:
    from mtpd.cli.short_commands import COMMANDS  # noqa: PLC0415  # a daemon does without them

    return COMMANDS


@click.group(
    cls=Commands,
    commands=Later([serve], _others),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mtpd")
def cli() -> None:
    """Make one GPU serve the fastest model it can really hold.

    mtpd supervises llama-server, proves from its log that every layer is resident,
    measures draft acceptance per position and throughput, and serves the model and
    depth that the measurements chose. Talk to a running daemon with mtpctl.
    """


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(exit_code_of(cli))


if __name__ == "__main__":
    main()
