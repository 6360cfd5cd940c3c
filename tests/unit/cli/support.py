"""Running ``mtpctl`` against a scripted daemon."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli.failure import exit_code_of
from mtpd.cli.mtpctl import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


class Mtpctl:
    """Runs ``mtpctl`` in this process, as its ``main`` does."""

    def __init__(self, capsys: pytest.CaptureFixture[str], socket: Path) -> None:
        self._capsys = capsys
        self._socket = socket

    def __call__(self, *args: str) -> Ran:
        return self.bare("--socket", str(self._socket), *args)

    def bare(self, *args: str) -> Ran:
        self._capsys.readouterr()
        code = exit_code_of(cli, args)
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)


def commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Each command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield " ".join(words), command
        for name, below in command.commands.items():
            yield from commands(below, (*words, name))
    else:
        yield " ".join(words), command


def check_golden(name: str, text: str, *, wide: bool = False) -> None:
    """Compare with a golden file; ``MTPD_WRITE_GOLDEN=1`` writes it anew.

    ``wide`` is for what is to be copied, e.g. a command, and so is not wrapped.
    """
    shown = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("MTPD_WRITE_GOLDEN"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")
    assert wide or max(map(len, shown.splitlines())) <= 80
