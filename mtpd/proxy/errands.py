"""What an owner does for others: each piece of work in a task of its own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskGroup

__all__ = ["Errands"]


class Errands:
    """Work that is posted from anywhere and started by its owner's task."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._posted = anyio.Event()

    def post(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have it done; returns at once."""
        self._due.append(work)
        self._posted.set()

    async def run(self, tasks: TaskGroup) -> NoReturn:
        """Start what is posted, in its order, until cancelled."""
        while True:
            while self._due:
                tasks.start_soon(self._due.popleft())
            self._posted = anyio.Event()
            await self._posted.wait()

    async def answer(self) -> None:
        """Return once the owner has started what was posted before; not while it is stuck."""
        started = anyio.Event()

        async def say_so() -> None:
            started.set()

        self.post(say_so)
        await started.wait()
