"""What was seen of the end of one engine: status, facts of its last lines, its model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from mtpd.engine.facts import Fact, LoadFailed, ModelLoading
from mtpd.engine.logs import fact

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NOTHING_ASKED", "SIGNALS", "Asked", "Seen", "asked"]

F = TypeVar("F", bound=Fact)

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}
"""Signals that end engines, by number as Linux counts them."""

_SHELL_BASE = 128


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a command line decides the device memory beside the model file.

    Attributes:
        slots: Requests at once, or None where it does not say.
        context: Tokens of all slots together, likewise.
        depth: Draft depth; 0 where nothing is drafted.
    """

    slots: int | None = None
    context: int | None = None
    depth: int = 0


NOTHING_ASKED = Asked()
"""Of a command line that is not known."""

_SLOTS, _CONTEXT = ("--parallel", "-np"), ("--ctx-size", "-c")
_DEPTH = ("--spec-draft-n-max", "--draft-max", "--draft", "--draft-n")


def asked(argv: Sequence[str]) -> Asked:
    """Read it off an engine's arguments; option and value are words of their own."""
    return Asked(
        slots=_number(argv, _SLOTS),
        context=_number(argv, _CONTEXT),
        depth=_number(argv, _DEPTH) or 0,
    )


def _number(argv: Sequence[str], names: tuple[str, ...]) -> int | None:
    words = [value for name, value in pairwise(argv) if name in names]
    return int(words[-1]) if words and words[-1].isdecimal() else None


class Seen:
    """What is known of the end of one process."""

    def __init__(
        self,
        exit_code: int | None,
        signal: int | None,
        *,
        ready: bool,
        lines: Sequence[str],
        asked: Asked = NOTHING_ASKED,
    ) -> None:
        self.exit_code, self.signal = _status(exit_code, signal)
        self.ready = ready
        self.asked = asked
        self.lines = lines
        self.pairs = [(line, f) for line in lines if (f := fact(line)) is not None]

    def first(self, kind: type[F]) -> tuple[str, F] | None:
        """The first line of one kind: later ones repeat it in vaguer words."""
        return next(((line, f) for line, f in self.pairs if isinstance(f, kind)), None)

    @property
    def model(self) -> str:
        """The model's path, as the engine was given it."""
        for _, f in self.pairs:
            if isinstance(f, LoadFailed) and f.path is not None:
                return f.path
        for _, f in reversed(self.pairs):
            if isinstance(f, ModelLoading):
                return f.path
        return "the model"


def _status(exit_code: int | None, signal: int | None) -> tuple[int | None, int | None]:
    if signal is not None:
        return None, abs(signal)
    if exit_code is not None and exit_code < 0:
        return None, -exit_code
    if exit_code is not None and exit_code - _SHELL_BASE in SIGNALS:
        return None, exit_code - _SHELL_BASE
    return exit_code, None
