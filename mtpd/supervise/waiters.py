"""Lets others wait for what an engine's state becomes, without missing a state.

A waiter is served the view of the moment at which its condition held, also when the
state has moved on before the waiter runs again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.views import EngineView

__all__ = ["Waiters"]


@dataclass(slots=True, eq=False)
class _Waiter:
    after: int
    event: anyio.Event = field(default_factory=anyio.Event)
    view: EngineView | None = None


class Waiters:
    """Everyone who waits for one engine.

    Attributes:
        revision: Grows with every change of the state's name.
    """

    def __init__(self) -> None:
        self._settling: list[_Waiter] = []
        self._changing: anyio.Event | None = None
        self.revision = 0

    async def settled(self, *, after: int) -> EngineView:
        """Wait for a settled state once event number ``after`` has been processed."""
        waiter = _Waiter(after)
        self._settling.append(waiter)
        try:
            while waiter.view is None:
                await waiter.event.wait()
        finally:
            self._settling.remove(waiter)
        return waiter.view

    async def changed(self, *, since: int) -> int:
        """Wait until the revision is above ``since``, and return it."""
        while self.revision <= since:
            if self._changing is None:
                self._changing = anyio.Event()
            await self._changing.wait()
        return self.revision

    def wake_settled(self, *, processed: int, view: Callable[[], EngineView]) -> None:
        """Serve those whose events have all been processed."""
        due = [w for w in self._settling if w.view is None and w.after <= processed]
        if due:
            seen = view()
            for waiter in due:
                waiter.view = seen
                waiter.event.set()

    def wake_changed(self) -> None:
        """Count a change and wake those who wait for one."""
        self.revision += 1
        if self._changing is not None:
            self._changing.set()
            self._changing = None
