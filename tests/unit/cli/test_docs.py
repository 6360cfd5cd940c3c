"""docs/cli.md has every command of both programs, with every option of its own."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd
from tests.unit.cli.support import commands

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SHARED = {"--socket", "--url", "--token-file", "--json", "--detach", "--help", "--version"}
"""Options that the page explains once for all commands."""

EVERY = [*commands(mtpd, ("mtpd",)), *commands(mtpctl, ())]


@pytest.mark.parametrize(("called", "command"), EVERY, ids=[called for called, _ in EVERY])
def test_every_command_is_documented_with_its_options(called: str, command: click.Command) -> None:
    call = re.compile(rf"`{re.escape(called)}[ `]")
    rows = [row for row in PAGE.splitlines() if row.startswith("|") and call.search(row)]
    assert len(rows) == 1, called
    options = {
        option
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {one for one in options - SHARED if one not in rows[0]} == set()


def test_the_commands_are_found() -> None:
    assert {"mtpd serve", "mtpd token add", "status", "operations cancel"} <= {c for c, _ in EVERY}
    assert all(option in PAGE for option in SHARED - {"--help", "--version"})
