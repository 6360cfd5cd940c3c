"""An operation while it lives, and what it tells about itself.

``mtpd.operations`` owns them; everybody else has only a ``Progress``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from mtpd.units import OperationId
from mtpd.views import OperationView, ProgressView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.units import Seq
    from mtpd.views import Json

    Run = Callable[["Progress"], Awaitable[dict[str, Json]]]

__all__ = ["ENDED", "Live", "Progress"]

ENDED = frozenset({"done", "failed", "cancelled"})
"""The states in which an operation stays."""


@dataclass(slots=True, kw_only=True, eq=False)
class Live:
    """An operation of this daemon's life.

    Attributes:
        stopped: Why it was asked to end; None where nobody did.
    """

    view: OperationView
    run: Run
    key: str | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    stopped: str | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    stale: anyio.Event = field(default_factory=anyio.Event)
    cause: Seq | None = None

    def stop(self, why: str) -> None:
        """Ask it to end; the first who does has given the reason."""
        self.stopped = self.stopped or why
        self.scope.cancel()


class Progress:
    """What a running operation tells about itself."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def operation_id(self) -> OperationId:
        """The operation, for the rows and events that belong to it."""
        return OperationId(self._live.view.id)

    @property
    def cause(self) -> Seq | None:
        """The operation's newest event, as the cause of what it brings about."""
        return self._live.cause

    @property
    def stopped(self) -> str | None:
        """Why it was asked to end; None where nobody did, so that only the daemon can."""
        return self._live.stopped

    def report(self, done: int, total: int | None, note: str) -> None:
        """Say how far it is; published now or, if that was just done, a moment later."""
        view = self._live.view
        if view.state in ENDED:
            return
        self._live.view = replace(view, progress=ProgressView(done=done, total=total, note=note))
        self._live.stale.set()

    def ending(self, note: str) -> None:
        """Say what comes of it where it ends early; how far it was stays as it is."""
        now = self._live.view.progress
        self.report(now.done, now.total, note)
