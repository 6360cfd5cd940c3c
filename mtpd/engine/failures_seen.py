"""What was seen of the end of one engine: status, facts of its last lines, its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mtpd.engine.facts import Fact, LoadFailed, ModelLoading
from mtpd.engine.logs import fact

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SIGNALS", "Seen"]

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


class Seen:
    """What is known of the end of one process."""

    def __init__(
        self, exit_code: int | None, signal: int | None, *, ready: bool, lines: Sequence[str]
    ) -> None:
        self.exit_code, self.signal = _status(exit_code, signal)
        self.ready = ready
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
