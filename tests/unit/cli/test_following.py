"""Streams that end at once: they are asked for again, ever more rarely, and that is said once."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from mtpd.cli.client import Client, Reply, StreamEvent, UnixTarget
from mtpd.cli.following import HELD_S, LONGEST_S, follow
from mtpd.cli.session import Session
from mtpd.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Answers(Client):
    """A daemon that tells its status."""

    def __init__(self) -> None:
        super().__init__(UnixTarget("/nowhere"))

    def get(
        self, path: str, query: Mapping[str, str | int | Sequence[int] | None] | None = None
    ) -> Reply:
        return Reply("{}", {"asked": path, "query": str(query)})


class Streams:
    """Streams that last for so many seconds each; then somebody presses Ctrl-C."""

    def __init__(self, *held_s: float | None) -> None:
        self.held_s = list(held_s)
        self.clock_s = 0.0
        self.pauses: list[float] = []
        self.said = io.StringIO()
        self.asked_after: list[str | None] = []

    @contextmanager
    def connect(self, place: str | None) -> Iterator[Iterator[StreamEvent]]:
        if not self.held_s:
            raise KeyboardInterrupt
        self.asked_after.append(place)
        held = self.held_s.pop(0)
        if held is None:
            message = "No daemon answers."
            raise UnreachableError(message)
        self.clock_s += held
        yield iter([StreamEvent("x", f"b-{len(self.asked_after)}", "{}", {})])

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.clock_s += pause_s

    def run(self) -> None:
        console = Console(file=self.said, width=200)
        session = Session(client=Answers(), as_json=False, out=console, err=console)
        follow(
            session,
            self.connect,
            lambda _event: None,
            now=lambda: self.clock_s,
            sleep=self.sleep,
        )


def test_a_stream_that_ends_at_once_is_asked_for_ever_more_rarely() -> None:
    streams = Streams(*[0.0] * 10)
    streams.run()
    assert streams.pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S, LONGEST_S]


def test_that_it_ends_at_once_is_said_once() -> None:
    streams = Streams(*[0.0] * 10)
    streams.run()
    first, second = streams.said.getvalue().splitlines()
    assert first == "The stream ended; waiting for the daemon."
    assert second.startswith("The stream ends at once, although the daemon answers")


def test_a_stream_that_held_is_asked_for_soon_and_its_end_is_said_again() -> None:
    streams = Streams(HELD_S, HELD_S, 0.0, HELD_S)
    streams.run()
    assert streams.pauses == [0.5, 0.5, 1.0, 0.5]
    assert streams.said.getvalue().count("waiting for the daemon") == 3


def test_a_daemon_that_goes_between_two_looks_is_waited_for() -> None:
    streams = Streams(0.0, None, 0.0)
    streams.run()
    assert streams.asked_after == [None, "b-1", "b-1"]


def test_a_daemon_that_was_never_there_is_not() -> None:
    with pytest.raises(UnreachableError):
        Streams(None).run()
