"""What a whole operation may spend, and what is left of it for the next model. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.types import Budget

if TYPE_CHECKING:
    from tuner.plan import History

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a tuning over all its models; None does not limit.

    Attributes:
        max_starts: Engine starts.
        max_cells: Arms times prompts.
        max_seconds: Wall time.
        max_joules: Energy; where it cannot be read, a limit ends the measurement.
    """

    max_starts: int | None = None
    max_cells: int | None = None
    max_seconds: float | None = None
    max_joules: float | None = None

    def budget(self, *, max_starts: int) -> Budget:
        """The budget of one model, which needs no more than ``max_starts`` starts."""
        limit = max_starts if self.max_starts is None else min(max_starts, self.max_starts)
        return Budget(
            max_restarts=limit,
            max_cells=self.max_cells,
            max_seconds=self.max_seconds,
            max_joules=self.max_joules,
        )

    def after(self, history: History) -> Limits:
        """What is left after a model; nothing of a limit that was overrun.

        Energy that could not be read leaves nothing of a limit in joules.
        """
        cells = {(o.arm, o.workload, o.prompt) for o in history.observations}
        starts = {s.start_id for s in history.starts}
        return replace(
            self,
            max_starts=None if self.max_starts is None else max(0, self.max_starts - len(starts)),
            max_cells=None if self.max_cells is None else max(0, self.max_cells - len(cells)),
            max_seconds=None
            if self.max_seconds is None
            else max(0.0, self.max_seconds - history.spent_s),
            max_joules=None
            if self.max_joules is None
            else max(0.0, self.max_joules - (history.spent_j or 0.0)),
        )
