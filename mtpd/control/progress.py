"""How far a tuning is, over all its models and engine starts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.plan import Ask

if TYPE_CHECKING:
    from tuner.design import Design
    from tuner.plan import History, Stop

__all__ = ["OperationProgress", "StartCount"]


class OperationProgress(Protocol):
    """How far the whole operation is; ``mtpd.operations.Progress`` is the real one."""

    def report(self, done: int, total: int | None, note: str) -> None:
        """Say that ``done`` of ``total`` repetitions are measured."""

    def ending(self, note: str) -> None:
        """Say what comes of it where it ends early; what is measured stays as reported."""


@dataclass(slots=True, kw_only=True)
class StartCount:
    """A design that counts what it asks for, and the progress of the model it is for.

    A search does not know beforehand how many starts it needs. What is known is shown:
    which start this is and of how many at most, and the repetitions up to its end.

    Attributes:
        design: The strategy.
        shown: Where progress goes.
        before: Repetitions of the models before.
        total: Repetitions in all, where the strategy asks for all of them.
        at_most: Engine starts of this model at most.
    """

    design: Design
    shown: OperationProgress
    before: int
    total: int | None
    at_most: int
    _starts: int = 0
    _asked: int = field(default=0)

    def ask(self, history: History) -> Ask | Stop:
        """What the design asks."""
        answer = self.design.ask(history)
        if isinstance(answer, Ask):
            self._starts = len(history.starts) + 1
            self._asked = len(history.observations) + len(answer.cells)
        return answer

    def report(self, done: int, note: str) -> None:
        """Say that ``done`` repetitions of this model are measured, and what comes now."""
        total = self.before + self._asked if self.total is None else self.total
        start = f"start {self._starts} of at most {self.at_most}"
        self.shown.report(self.before + done, total, f"{start}: {note}")
