"""The requests that are open now: who waits, who runs, and how fast an answer comes.

Written by ``mtpd.proxy.carry`` alone, read by the status and the history. How many may be
open is decided elsewhere (``mtpd.proxy.quotas``, ``mtpd.proxy.admission``).
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mtpd.views import QueueRowView, RequestView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.clock import Clock
    from mtpd.proxy.admission_types import Priority

__all__ = ["SHOWN", "OpenRequest", "OpenRequests"]

SHOWN: Final = 100
"""Requests that are shown one by one, the oldest first."""


@dataclass(slots=True, eq=False, kw_only=True)
class OpenRequest:
    """One request from its arrival to its end; moments are of the daemon's clock.

    Attributes:
        events: Asks how many events of its stream were passed on; None where it has none.
        depth: Draft depth of the engine that works on it.
        runs_since: When an engine began to work on it.
        answers_since: When the engine's answer began.
    """

    id: str
    profile: str
    path: str
    priority: Priority
    caller: str | None
    came: float
    events: Callable[[], int | None] = field(default=lambda: None)
    depth: int | None = None
    runs_since: float | None = None
    answers_since: float | None = None

    @contextmanager
    def runs(self, depth: int, now: float) -> Iterator[None]:
        """An engine works on it while the block runs; then it ends, or waits for another try."""
        self.depth, self.runs_since = depth, now
        try:
            yield
        finally:
            self.depth = self.runs_since = None


class OpenRequests:
    """Knows them all.

    Args:
        clock: Measures how old they are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, OpenRequest] = {}
        self._passed = 0

    @contextmanager
    def shown(self, one: OpenRequest) -> Iterator[None]:
        """Show a request while the block runs."""
        self._open[one.id] = one
        try:
            yield
        finally:
            del self._open[one.id]
            self._passed += one.events() or 0

    @property
    def passed(self) -> int:
        """Events of streams that were passed on since the daemon started."""
        return self._passed + sum(one.events() or 0 for one in self._open.values())

    @property
    def streams(self) -> int:
        """How many answers are being streamed."""
        return sum(one.events() is not None for one in self._open.values())

    def views(self) -> tuple[RequestView, ...]:
        """The oldest ones."""
        now = self._clock.now()
        return tuple(_view(one, now) for one in list(self._open.values())[:SHOWN])

    def rows(self) -> tuple[QueueRowView, ...]:
        """How many wait and how many run, by model and priority."""
        found: Counter[tuple[str, Priority, bool]] = Counter(
            (one.profile, one.priority, one.runs_since is not None) for one in self._open.values()
        )
        return tuple(
            QueueRowView(
                profile=profile,
                priority=priority.name.lower(),
                waiting=found[profile, priority, False],
                running=found[profile, priority, True],
            )
            for profile, priority in sorted({key[:2] for key in found})
        )


def _view(one: OpenRequest, now: float) -> RequestView:
    events, rate = one.events(), None
    if events is not None and one.answers_since is not None and now > one.answers_since:
        rate = round(events / (now - one.answers_since), 2)
    return RequestView(
        id=one.id,
        profile=one.profile,
        path=one.path,
        state="waiting" if one.runs_since is None else "running",
        priority=one.priority.name.lower(),
        caller=one.caller,
        depth=one.depth,
        age_s=round(now - one.came, 3),
        running_s=None if one.runs_since is None else round(now - one.runs_since, 3),
        events=events,
        events_per_s=rate,
    )
