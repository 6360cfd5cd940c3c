"""What the latest choice by measurements took: engine starts and seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine_views import SpentView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mtpd.store.journal import Journal
    from mtpd.views import ChoiceView

__all__ = ["Spent", "spent_on"]


class Spent:
    """Answers from the journal; what a decision took is read once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: tuple[int, SpentView | None] | None = None

    async def on(self, choices: Sequence[ChoiceView]) -> SpentView | None:
        """What the newest of these choices took; None where none was measured."""
        numbers = [one.decision_id for one in choices if one.measured and one.decision_id]
        if not numbers:
            return None
        newest = max(numbers)
        if self._known is None or self._known[0] != newest:
            self._known = newest, await self._read(newest)
        return self._known[1]

    async def _read(self, number: int) -> SpentView | None:
        decision, recorded = await self._journal.get(number), await self._journal.inputs(number)
        if decision is None or recorded is None:
            return None
        found = spent_on(recorded[1])
        if found is None:
            return None
        starts, seconds = found
        return SpentView(
            decision_id=number,
            subject=decision.subject,
            at=decision.at,
            starts=starts,
            seconds=seconds,
        )


def spent_on(inputs: Mapping[str, Any]) -> tuple[int, float] | None:
    """Engine starts and seconds that the inputs of a decision tell of; None where they do not.

    A pool's are those of its members; none were taken for one that compares what is stored.
    """
    if inputs.get("method") == "stored":
        return 0, 0.0
    told = [one.get("history") for one in inputs.get("members") or [inputs]]
    known = [one for one in told if isinstance(one, dict)]
    if not known or len(known) != len(told):
        return None
    return sum(len(one["starts"]) for one in known), sum(float(one["spent_s"]) for one in known)
