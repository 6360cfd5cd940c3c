"""Following a stream of the daemon across its restarts, until Ctrl-C or until nobody reads it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from mtpd.errors import EXIT_FAILED, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mtpd.cli.client import StreamEvent
    from mtpd.cli.session import Session

__all__ = ["Pauses", "ending_with_the_reader", "follow"]

RECONNECT_S: Final = 2.0
FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
HELD_S: Final = 10.0
"""A stream that lasted so long did not end at once."""


@dataclass(slots=True)
class Pauses:
    """How long to wait before a stream is asked for again: longer where it ends at once."""

    next_s: float = FIRST_S
    said: bool = False

    def after(self, held_s: float) -> tuple[float, str | None]:
        """The pause behind a stream that lasted so long, and what to say of it, if anything."""
        if held_s >= HELD_S:
            self.next_s, self.said = FIRST_S, False
        pause = self.next_s
        self.next_s = min(LONGEST_S, 2 * pause)
        if pause == FIRST_S:
            return pause, "The stream ended; waiting for the daemon."
        if self.said:
            return pause, None
        self.said = True
        return pause, (
            "The stream ends at once, although the daemon answers; it is asked for ever more "
            f"rarely, in the end every {LONGEST_S:.0f} s."
        )


def follow(
    session: Session,
    connect: Callable[[str | None], AbstractContextManager[Iterator[StreamEvent]]],
    show: Callable[[StreamEvent], None],
    *,
    since: str | None = None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show every event; one that was seen is not asked for again after a lost connection.

    Args:
        session: The daemon, and where to say that it is gone.
        connect: Opens the stream behind the event with this id; None for its usual beginning.
        show: Prints an event.
        since: Where to begin.
        now: Seconds of a clock.
        sleep: Waits for so many of them.

    Raises:
        UnreachableError: No daemon answered at the first try.
    """
    place, reached, pauses = since, False, Pauses()
    with ending_with_the_reader(), contextlib.suppress(KeyboardInterrupt):
        while True:
            began = now()
            try:
                with connect(place) as stream:
                    reached = True
                    for event in stream:
                        place = event.id or place
                        show(event)
            except UnreachableError:
                if not reached:
                    raise
            pause_s, said = pauses.after(now() - began)
            if said is not None:
                session.err.print(said, soft_wrap=True)
            sleep(pause_s)
            _await_daemon(session, sleep)


def _await_daemon(session: Session, sleep: Callable[[float], None]) -> None:
    """Wait until the daemon answers again, however long that takes."""
    while True:
        try:
            session.client.get("/status")
        except UnreachableError:
            sleep(RECONNECT_S)
        else:
            return


@contextlib.contextmanager
def ending_with_the_reader() -> Iterator[None]:
    """End the program as soon as the reader of a pipe on its output is gone.

    A write would tell as much, but what follows a stream may have nothing to write for hours.
    """
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # it is not the system's
        yield
        return
    before = signal.signal(signal.SIGPIPE, _reader_left)
    reading, writing = os.pipe()
    watching = threading.Thread(target=_tell_reader_left, args=(output, reading), daemon=True)
    watching.start()
    try:
        yield
    finally:
        os.close(writing)
        watching.join()
        os.close(reading)
        signal.signal(signal.SIGPIPE, before)


def _tell_reader_left(output: int, enough: int) -> None:
    """Interrupt what the main thread waits for, unless the other pipe is closed first."""
    watched = select.poll()
    for one in (output, enough):
        watched.register(one, 0)  # an error and a hang-up are told unasked
    if enough not in dict(watched.poll()):
        os.kill(os.getpid(), signal.SIGPIPE)


def _reader_left(_number: int, _frame: object) -> NoReturn:
    """End quietly, as a failed write to the same reader does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(EXIT_FAILED)
