"""Following a stream of the daemon across its restarts, until Ctrl-C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mtpd.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mtpd.cli.client import StreamEvent
    from mtpd.cli.session import Session

__all__ = ["follow"]

RECONNECT_S = 2.0


def follow(
    session: Session,
    connect: Callable[[str | None], AbstractContextManager[Iterator[StreamEvent]]],
    show: Callable[[StreamEvent], None],
    *,
    since: str | None = None,
) -> None:
    """Show every event; one that was seen is not asked for again after a lost connection.

    Args:
        session: The daemon, and where to say that it is gone.
        connect: Opens the stream behind the event with this id; None for its usual beginning.
        show: Prints an event.
        since: Where to begin.

    Raises:
        UnreachableError: No daemon answered at the first try.
    """
    place = since
    while True:
        in_touch = False
        try:
            with connect(place) as stream:
                in_touch = True
                for event in stream:
                    place = event.id or place
                    show(event)
        except UnreachableError:
            if not in_touch:
                raise
        except KeyboardInterrupt:
            return
        try:
            _await_daemon(session)
        except KeyboardInterrupt:
            return


def _await_daemon(session: Session) -> None:
    """Wait until the daemon answers again, however long that takes."""
    session.err.print("The stream ended; waiting for the daemon.")
    while True:
        try:
            session.client.get("/status")
        except UnreachableError:
            time.sleep(RECONNECT_S)
        else:
            return
