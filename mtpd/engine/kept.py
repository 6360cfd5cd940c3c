"""How many tokens of prompts an engine keeps, and how many go with it when it is stopped.

From the engine's own log: each slot keeps the last request that it worked on. What the
engine keeps besides, in host memory (``--cache-ram``), is in no line and not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.facts import Fact, SlotReleased
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["PromptCaches", "lost_sentence"]


KEEP = 64
"""Starts that are remembered; a change asks about those that have just ended."""


class PromptCaches:
    """Hears every engine. The few tokens of the request that proves a start count, too."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, int]] = {}

    def hear(self, engine_id: str, fact: Fact) -> None:
        """Take a fact in; all but the ends of requests are passed over."""
        if not isinstance(fact, SlotReleased):
            return
        if engine_id not in self._kept:
            self._kept[engine_id] = {}
            while len(self._kept) > KEEP:
                del self._kept[next(iter(self._kept))]
        self._kept[engine_id][fact.slot] = fact.tokens

    def of(self, engine_ids: Collection[str]) -> int | Absent:
        """Tokens that these starts keep together; what one of them has not told is unknown."""
        heard = [self._kept.get(engine_id) for engine_id in engine_ids]
        total = 0
        for slots in heard:
            if slots is None:
                return Absent("the engine's log does not say what its slots keep")
            total += sum(slots.values())
        return total


def lost_sentence(lost: int | Absent) -> str:
    """What a change of engine has thrown away, in words."""
    if isinstance(lost, Absent):
        return f"prompt cache lost: unknown, {lost.reason}"
    return f"prompt cache lost: {lost} tokens"
