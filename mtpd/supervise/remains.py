"""Ends what a process leaves behind: all that went into a session of its own.

Its control group, where it has one, holds all of it. Whatever is elsewhere is known by the engine
id that it inherited: it carries exactly this one, so it was started by this process. Each is held
by a pidfd before its identity is read, so no signal reaches a stranger.

Reading about a process that the kernel does not let go of can take for ever. So it is done in a
thread that nobody waits for, and what is not gone after ``LIMIT_S`` is told and left: the account
of the card says what it holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import structlog

from mtpd.supervise.identity import MARKS, pids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mtpd.supervise.cgroups import Cgroup

__all__ = ["Remains", "kill_all"]

log = structlog.get_logger()

LIMIT_S = 2.0
AGAIN_S = 0.01
AT_ONCE = 64
"""Processes that are held at once: each takes a descriptor."""


def kill_all(engine_id: str) -> tuple[int, ...]:
    """Kill every process that carries an engine id; returns those that were found."""
    its, found = pids_of(engine_id), list[int]()
    for first in range(0, len(its), AT_ONCE):
        found += _kill(engine_id, its[first : first + AT_ONCE])
    return tuple(found)


def _kill(engine_id: str, pids: Iterable[int]) -> list[int]:
    with ExitStack() as stack:
        held = dict[int, int]()
        for pid in pids:
            with suppress(OSError):
                held[pid] = os.pidfd_open(pid)
                stack.callback(os.close, held[pid])
        found = [pid for pid, engine in MARKS.among(held).items() if engine == engine_id]
        for pid in found:
            with suppress(OSError):
                signal.pidfd_send_signal(held[pid], signal.SIGKILL)
        return found


class Remains:
    """What one process left behind.

    Args:
        engine_id: What it carried.
        group: Its control group, None where it had none.
        done: Called once, in the loop, when nothing is left or it takes too long.
        kill: Kills all that carries an engine id, and says which processes that were.
        limit_s: How long is too long.
    """

    def __init__(
        self,
        engine_id: str,
        *,
        group: Cgroup | None,
        done: Callable[[], None],
        kill: Callable[[str], tuple[int, ...]] = kill_all,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._engine_id, self._group, self._done, self._kill = engine_id, group, done, kill
        self._left: tuple[int, ...] = ()
        self._over = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="remains", daemon=True)
        self._guard = self._loop.call_later(limit_s, self._finish)

    def end(self) -> None:
        """Kill all of it until nothing is found any more."""
        self._thread.start()

    def _work(self) -> None:
        while self._found() and not self._over.wait(AGAIN_S):
            pass
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._worked)

    def _worked(self) -> None:
        self._thread.join()  # that was the last it did
        self._finish()

    def _found(self) -> bool:
        """Kill what there is; whether there was something."""
        if self._group is not None:
            self._group.kill()
        self._left = self._kill(self._engine_id)
        return bool(self._left) or (self._group is not None and self._group.lives())

    def _finish(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._guard.cancel()
        group = self._group
        if self._left or (group is not None and group.lives()):
            log.error("engine.left_behind", engine=self._engine_id, pids=self._left)
        elif group is not None:
            group.remove()
        self._done()
