"""Service units for one installation: the shipped text with its program, file and address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Setup", "command_line", "filled"]

_COMMAND = re.compile(r"^ExecStart=\S+ (?P<does>.+) --config \S+$", re.MULTILINE)
_ADDRESS = re.compile(r"^ListenStream=[\d.]+:\d+$", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the units of one installation hold.

    Attributes:
        program: How mtpd is started: its path, and arguments that come first.
        config: Its configuration file.
        listen: Where clients are answered, as ``ADDRESS:PORT``.
    """

    program: tuple[str, ...]
    config: str
    listen: str


def filled(text: str, setup: Setup) -> str:
    """A shipped unit, drop-in or other file as it is for this installation."""

    def command(found: re.Match[str]) -> str:
        words = [*setup.program, *found["does"].split(), "--config", setup.config]
        return f"ExecStart={command_line(words)}"

    return _ADDRESS.sub(f"ListenStream={setup.listen}", _COMMAND.sub(command, text))


def command_line(words: Sequence[str]) -> str:
    """Words as systemd splits them again; nothing in them is a specifier or a variable.

    ``:`` turns variables off (systemd 244): the path of the program knows no ``$$`` for ``$``.
    """
    literal = ":" if any("$" in word for word in words) else ""
    return literal + " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped)
    return escaped if _PLAIN.fullmatch(word) else f'"{escaped}"'
