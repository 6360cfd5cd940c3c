"""What an engine's log says about the requests it has just finished.

Bounded memory, one short list per engine start: the third source of acceptance, needed
for builds whose ``/metrics`` lacks the counters by position.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

from mtpd.engine.facts import AcceptancePerPosition, DraftAcceptance, DraftVerified

if TYPE_CHECKING:
    from mtpd.engine.facts import Fact
    from mtpd.units import EngineId

__all__ = ["RequestFacts"]

KEEP = 64
"""Facts kept of the engine that was heard last; a request prints two."""

KEEP_STEPS = 65_536
"""Traced steps kept besides, one per step: the longest reply that a workload may ask for."""


class RequestFacts:
    """Hears every engine; remembers the one that spoke last."""

    def __init__(self) -> None:
        self._engine_id: str | None = None
        self._facts: deque[Fact] = deque(maxlen=KEEP)
        self._steps: deque[Fact] = deque(maxlen=KEEP_STEPS)
        self._news = anyio.Event()

    def hear(self, engine_id: EngineId, fact: Fact) -> None:
        """Take a fact in; all but those about a request's drafts are passed over."""
        if not isinstance(fact, DraftAcceptance | AcceptancePerPosition | DraftVerified):
            return
        if engine_id != self._engine_id:
            self._engine_id = engine_id
            self._forget()
        (self._steps if isinstance(fact, DraftVerified) else self._facts).append(fact)
        self._news.set()

    def clear(self) -> None:
        """Forget what was heard so far; called before a request."""
        self._forget()
        self._news = anyio.Event()

    async def of(self, engine_id: str, *, within_s: float) -> tuple[Fact, ...]:
        """What this engine said since ``clear``; waits a moment, as a log comes by a pipe.

        Args:
            engine_id: The engine start that was asked.
            within_s: Longest wait for a request's lines; they come with its reply.
        """
        with anyio.move_on_after(within_s):
            while not self._complete(engine_id):
                self._news = anyio.Event()
                await self._news.wait()
        return (*self._steps, *self._facts) if engine_id == self._engine_id else ()

    def _forget(self) -> None:
        self._facts.clear()
        self._steps.clear()

    def _complete(self, engine_id: str) -> bool:
        """Both lines, or the one of the builds that print all in one."""
        if engine_id != self._engine_id:
            return False
        rates = any(
            isinstance(f, AcceptancePerPosition)
            or (isinstance(f, DraftAcceptance) and f.per_position is not None)
            for f in self._facts
        )
        return rates and any(isinstance(f, DraftAcceptance) for f in self._facts)
