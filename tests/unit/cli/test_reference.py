"""The reference of the commands says what ``--help`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd
from mtpd.cli.reference import commands

if TYPE_CHECKING:
    from mtpd.cli.reference import CommandText

PROGRAMS = {"mtpd": mtpd, "mtpctl": mtpctl}
ALL = [text for name, program in PROGRAMS.items() for text in commands(program, name)]


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_a_command_is_told_as_its_help_tells_it(command: CommandText) -> None:
    program, *words = command.name.split()
    shown = CliRunner().invoke(PROGRAMS[program], [*words, "--help"], prog_name=program).output
    for part in (f"Usage: {command.usage}", *command.paragraphs):
        assert squeezed(part) in squeezed(shown)
    for flags, meaning in command.options:
        assert squeezed(flags + meaning) in squeezed(shown)


def test_no_command_is_left_out() -> None:
    told = {command.name for command in ALL}
    for name, program in PROGRAMS.items():
        assert {f"{name} {word}" for word in program.commands} <= told
    assert {"mtpd config show", "mtpctl operations cancel", "mtpctl recipe b2"} <= told


def test_options_of_the_program_stand_there_alone() -> None:
    with_json = [c.name for c in ALL if any(flags == "--json" for flags, _ in c.options)]
    assert [name for name in with_json if name.startswith("mtpctl")] == ["mtpctl"]
