"""Tables fit 80 columns whatever is in them, and colour is for terminals alone.

Every command that prints one is run in a pipe, on a terminal of 80 columns, and with
``NO_COLOR``, against a daemon whose names are long and whose numbers are large.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import pty
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from mtpd.cli.failure import exit_code_of
from mtpd.cli.mtpctl import cli
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.terminals import COLOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.backend import Served

COLUMNS = 80
LONG = "qwen3.8-27b-uncensored-heretic-q4_k_m-imatrix-long-context-2026-11"
LONGER = f"{LONG}-with-a-drafter-of-its-own"
NAMES = {views.QWEN: LONG, views.TINY: LONGER}
UUID = "747b355a-4ac9-4e8c-8e68-ba1fa5167c9f"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TABLES = (
    ["status"],
    ["models"],
    ["models", "default"],
    ["gpu", "--sources"],
    ["measurements"],
    ["decisions"],
    ["explain"],
    ["config"],
    ["operations"],
    ["operations", "list"],
    ["operations", "show", "op-0001"],
    ["quarantine", "list"],
    ["ppl"],
    ["ppl", "default", "v"],
    ["bench"],
    ["bench", "default"],
    ["recipe", "b2", "default"],
    ["tune", "default"],
    ["sweep", "default"],
    ["probe", "default"],
    ["switch", "default"],
    ["unload"],
)
STRETCHED = {
    "status",
    "gpu",
    "models",
    "model",
    "measurements",
    "decisions",
    "decision",
    "explain",
    "config",
    "operations",
    "operation",
    "quarantine",
    "perplexities",
    "baselines",
    "comparison",
    "recipe_b2",
}


def stretched(value: Any) -> Any:
    """The same with long names and an id as the daemon makes them."""
    match value:
        case str():
            for name, long in NAMES.items():
                value = value.replace(name, long)
            return value
        case dict():
            return {stretched(key): stretched(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(stretched(item) for item in value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return dataclasses.replace(
                value, **{name: stretched(getattr(value, name)) for name in names}
            )
        case _:
            return value


class LongBackend(ScriptedBackend):
    """Answers as ``ScriptedBackend`` does, with long names."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in STRETCHED:
            return found

        @functools.wraps(found)
        def answer(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            if not inspect.isawaitable(made):
                return stretched(made)
            return _later(made)

        return answer

    async def operations(self, limit: int) -> Any:
        found = await super().operations(limit)
        return tuple(dataclasses.replace(one, id=UUID) for one in found)


async def _later(made: Any) -> Any:
    return stretched(await made)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("d")
    with served_in_thread(LongBackend(), folder / "s") as here:
        assert exit_code_of(cli, ("--socket", str(here.socket), "load", "default")) == 0
        yield here


class Terminal:
    """A terminal that standard output is while a command runs."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.out = os.fdopen(slave, "w", encoding="utf-8")
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # the last writer is gone
                return
            self._read.append(chunk)

    def text(self) -> str:
        """All that was written; it is closed."""
        self.out.close()
        self._reader.join(20)
        os.close(self._master)
        return b"".join(self._read).decode().replace("\r\n", "\n")


def widest(text: str) -> tuple[int, str]:
    return max((cell_len(line.rstrip()), line) for line in text.splitlines())


@pytest.mark.parametrize("args", TABLES, ids=" ".join)
def test_a_table_fits_into_a_pipe_without_a_colour(
    args: list[str],
    served: Served,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # only a terminal's width may count
    assert exit_code_of(cli, ("--socket", str(served.socket), *args)) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert widest(out)[0] <= COLUMNS, widest(out)


@pytest.mark.parametrize("no_color", [None, "1"])
@pytest.mark.parametrize("args", TABLES, ids=" ".join)
def test_a_table_fits_onto_a_terminal_and_no_color_is_honoured(
    args: list[str], no_color: str | None, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal.out)
    code = exit_code_of(cli, ("--socket", str(served.socket), *args))
    shown = terminal.text()
    assert code == 0
    assert shown.strip()
    assert widest(ESCAPES.sub("", shown))[0] <= COLUMNS
    if no_color:
        assert not COLOUR.search(shown)
    elif args in (["status"], ["models"], ["operations"]):
        assert COLOUR.search(shown), "a state has the colour of its meaning"


def test_an_id_of_which_a_list_has_the_beginning_can_be_copied_whole(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(cli, ("--socket", str(served.socket), "operations")) == 0
    assert capsys.readouterr().out.split()[0] == UUID[:8]
    assert exit_code_of(cli, ("--socket", str(served.socket), "operations", "--json")) == 0
    assert UUID in capsys.readouterr().out
