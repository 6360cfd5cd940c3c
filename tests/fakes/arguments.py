"""The fake engine's command line: every flag of llama-server b11434, read off its own help."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["HELP", "Arguments", "BadArgumentsError", "read"]

HELP = (Path(__file__).parent / "help_b11434.txt").read_text()
LEFT_COLUMN = 40
GAP = 3
"""The help texts start at this column, or on the next line when less than the gap is left."""
USAGE = "\n\nusage:\n{name} N\n\n\nto show complete usage, run with -h"


class BadArgumentsError(Exception):
    """What llama-server prints before it exits with 1."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values by the flag's first long spelling; a switch that was given has the value ""."""

    given: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """The value, or the default."""
        return self.given.get(name, default)

    def number(self, name: str, default: int) -> int:
        """The value as a number; words ('auto') are the default."""
        value = self.given.get(name, "")
        return int(value) if re.fullmatch(r"-?\d+", value) else default

    def __contains__(self, name: str) -> bool:
        """Whether the flag was given."""
        return name in self.given


def read(argv: Sequence[str]) -> Arguments:
    """Read the arguments; raises BadArgumentsError."""
    given: dict[str, str] = {}
    arguments = iter(argv)
    for argument in arguments:
        name = argument.replace("_", "-") if argument.startswith("--") else argument
        if name not in _FLAGS:
            msg = f"error: invalid argument: {name}"
            raise BadArgumentsError(msg)
        canonical, takes_value = _FLAGS[name]
        value = next(arguments, None) if takes_value else ""
        if value is None:
            raise BadArgumentsError(_complaint(name, "expected value for argument"))
        _check(name, canonical, value)
        given[canonical] = value
    return Arguments(given)


def _check(name: str, canonical: str, value: str) -> None:
    numeric = {"--ctx-size", "--parallel", "--port", "--spec-draft-n-max", "--verbosity"}
    if canonical in numeric and not re.match(r"-?\d", value):
        raise BadArgumentsError(_complaint(name, "stoi"))
    known = re.search(r"^--spec-type (\S+)", HELP, re.MULTILINE)
    if (
        canonical == "--spec-type"
        and known
        and not set(value.split(",")) <= set(known.group(1).split(","))
    ):
        raise BadArgumentsError(_complaint(name, f"unknown speculative type: {value}"))


def _complaint(name: str, why: str) -> str:
    return f'error while handling argument "{name}": {why}' + USAGE.format(name=name)


def _rows() -> Iterator[tuple[str, list[str], bool]]:
    """First long spelling, all spellings, whether a value follows; a negative stands alone."""
    for line in HELP.splitlines():
        if not line.startswith("-") or line.startswith("-----"):
            continue
        left = line[:LEFT_COLUMN] if line[LEFT_COLUMN - GAP : LEFT_COLUMN].isspace() else line
        words = left.split()
        names = [word.rstrip(",") for word in words if word.startswith("-")]
        takes_value = not words[-1].startswith("-")
        positive = next((name for name in names if name.startswith("--")), names[0])
        yield positive, names, takes_value


def _flags() -> dict[str, tuple[str, bool]]:
    flags: dict[str, tuple[str, bool]] = {}
    for positive, names, takes_value in _rows():
        for name in names:
            negative = name.startswith("--no-") and not positive.startswith("--no-")
            flags[name] = (name if negative else positive, takes_value)
    return flags


_FLAGS = _flags()
