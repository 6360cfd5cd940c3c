"""An asyncio loop whose time only passes when nobody has anything left to do.

Everything that runs on it, the daemon's own code included, sees the same virtual time.
Between two turns of the loop ``on_turn`` is called, before time jumps ``on_quiet``.
Nothing on it may use sockets or threads, so that the same seed makes the same world.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from anyio._backends._asyncio import CancelScope

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = ["StrandedError", "VirtualLoop", "run"]

T = TypeVar("T")

BUSY_TURNS = 20_000
"""So many turns without a moment passing are a loop that will never rest."""
FOREVER_S = 86400.0
"""A timer so far away is anyio's way to wait without end; asyncio looks no further ahead."""


class StrandedError(AssertionError):
    """Somebody waits, and nothing will ever happen any more; or something never ends."""


class _Selector(selectors.SelectSelector):
    """Lets time jump where a real one would sleep."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.loop.turned(timeout)
        return []


class _Task(asyncio.Task[T]):
    """Sets of tasks are iterated in the same order in every world of a seed."""

    def __init__(self, coro: Coroutine[Any, Any, T], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module.

    Attributes:
        turns: How often it went round.
        on_turn: Called after every turn.
        on_quiet: Called before time jumps.
    """

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self._now = 1000.0
        self.turns = self._busy = 0
        self.on_turn: Callable[[], None] = lambda: None
        self.on_quiet: Callable[[], None] = lambda: None
        self._failed: BaseException | None = None
        self.set_exception_handler(lambda _, context: self._fail(context))
        numbers = itertools.count()
        self.set_task_factory(
            lambda loop, coro, **more: _Task(coro, number=next(numbers), loop=loop, **more)
        )

    def time(self) -> float:
        return self._now

    def _fail(self, context: dict[str, Any]) -> None:
        """A callback, or a task that nobody waits for, has failed."""
        error = context.get("exception") or StrandedError(context["message"])
        self._failed = self._failed or error

    def turned(self, timeout: float | None) -> None:
        """All that was ready has run; ``timeout`` is until the next timer, if there is one."""
        self.turns += 1
        if self._failed is not None:
            raise self._failed
        self._busy = self._busy + 1 if timeout == 0 else 0
        if self._busy > BUSY_TURNS:
            raise StrandedError("something goes round and round, and no time passes")
        self.on_turn()
        if timeout is None or timeout >= FOREVER_S:
            raise StrandedError("everybody waits, and nothing will ever happen any more")
        if timeout > 0:
            self.on_quiet()
            self._now += timeout


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a program in virtual time."""
    loop = VirtualLoop()
    with _ordered_scopes():
        try:
            return loop.run_until_complete(main(loop))
        finally:
            _abandon(loop)
            loop.close()


@contextmanager
def _ordered_scopes() -> Iterator[None]:
    """Have nested scopes cancelled in the same order in every world of a seed.

    anyio keeps them in sets, whose order would follow from addresses. A scope is in a set
    only while it has a host task, which has a number.
    """
    scope: Any = CancelScope
    before = scope.__hash__
    scope.__hash__ = lambda self: hash(self._host_task)
    try:
        yield
    finally:
        scope.__hash__ = before


def _abandon(loop: VirtualLoop) -> None:
    """End what a world that broke a rule left; nothing of it is looked at any more."""
    loop.on_turn = loop.on_quiet = lambda: None
    loop._failed = None
    loop.set_exception_handler(lambda _loop, _context: None)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    for _ in range(100):
        if all(task.done() for task in left):
            break
        loop.call_soon(loop.stop)
        loop.run_forever()
    for task in left:
        if task.done() and not task.cancelled():
            task.exception()  # asyncio complains of errors that nobody has looked at
