"""The daemon's command: ``mtpd serve|demo|check|config|plan|import|powercap|token|…``.

Tracebacks and exit codes are decided here, in ``main``, and nowhere else.
"""

from __future__ import annotations

import sys

import click

from mtpd import __version__
from mtpd.cli.completion_command import completion_command
from mtpd.cli.config_commands import check, config
from mtpd.cli.daemon_commands import demo, serve
from mtpd.cli.failure import exit_code_of
from mtpd.cli.group import Commands
from mtpd.cli.import_command import import_
from mtpd.cli.install_command import install_units
from mtpd.cli.man_command import man_command
from mtpd.cli.plan_command import plan
from mtpd.cli.powercap_commands import powercap
from mtpd.cli.prometheus_command import prometheus
from mtpd.cli.schema_command import schema_command
from mtpd.cli.schemas import mtpd_shapes
from mtpd.cli.token_commands import token

__all__ = ["cli", "main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mtpd")
def cli() -> None:
    """Make one GPU serve the fastest model it can really hold.

    mtpd supervises llama-server, proves from its log that every layer is resident,
    measures draft acceptance per position and throughput, and serves the model and
    depth that the measurements chose. Talk to a running daemon with mtpctl.
    """


for command in (
    *(serve, demo, check, config, plan, import_, powercap, token),
    *(install_units, prometheus),
):
    cli.add_command(command)
cli.add_command(schema_command(mtpd_shapes))
cli.add_command(completion_command("mtpd"))


def _programs() -> dict[str, click.Group]:
    """Both, for their manual."""
    from mtpd.cli.mtpctl import cli as mtpctl  # noqa: PLC0415  # only the manual needs it

    return {"mtpd": cli, "mtpctl": mtpctl}


cli.add_command(man_command(_programs))


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(exit_code_of(cli))


if __name__ == "__main__":
    main()
