"""Every command of ``mtpd`` that ends by itself: all but ``serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.completion_command import completion_command
from mtpd.cli.config_commands import check, config
from mtpd.cli.demo_command import demo
from mtpd.cli.import_command import import_
from mtpd.cli.install_command import install_units
from mtpd.cli.man_command import man_command
from mtpd.cli.plan_command import plan
from mtpd.cli.powercap_commands import powercap
from mtpd.cli.prometheus_command import prometheus
from mtpd.cli.schema_command import schema_command
from mtpd.cli.schemas import mtpd_shapes
from mtpd.cli.token_commands import token

if TYPE_CHECKING:
    import click

__all__ = ["COMMANDS"]


def _programs() -> dict[str, click.Group]:
    """Both, for their manual."""
    from mtpd.cli.mtpctl import cli as mtpctl  # noqa: PLC0415  # only the manual needs them
    from mtpd.cli.mtpd import cli as mtpd  # noqa: PLC0415

    return {"mtpd": mtpd, "mtpctl": mtpctl}


COMMANDS: Final[tuple[click.Command, ...]] = (
    *(demo, check, config, plan, import_, powercap, token, install_units, prometheus),
    schema_command(mtpd_shapes),
    completion_command("mtpd"),
    man_command(_programs),
)
