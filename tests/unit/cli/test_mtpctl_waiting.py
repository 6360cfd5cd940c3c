"""Following an operation when its stream is late, lost or ended."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.cli import waiting
from mtpd.cli.client import Client, Reply, StreamEvent, UnixTarget
from mtpd.errors import UnreachableError
from mtpd.views import OperationView, ProgressView, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def operation(state: str, done: int, name: str = "op-1") -> OperationView:
    return OperationView(
        id=name,
        kind="tune",
        state=state,
        params={},
        progress=ProgressView(done=done, total=3, note=""),
        created_at="",
        started_at=None,
        ended_at=None,
        result=None,
        error=None,
    )


def change(view: OperationView) -> StreamEvent:
    return StreamEvent("operation.changed", None, "", {"event": {"operation": encode(view)}})


LOST = UnreachableError("lost")


class Scripted(Client):
    """Answers lookups and streams from a script; an exception ends its stream."""

    def __init__(
        self,
        answers: list[OperationView | UnreachableError],
        *streams: list[StreamEvent | UnreachableError],
    ) -> None:
        super().__init__(UnixTarget("nowhere"))
        self._answers = iter(answers)
        self._streams = iter(streams)

    def get(
        self, path: str, query: Mapping[str, str | int | Sequence[int] | None] | None = None
    ) -> Reply:
        answer = next(self._answers)
        if isinstance(answer, UnreachableError):
            raise answer
        return Reply(json.dumps(encode(answer)), encode(answer))

    @contextmanager
    def events(
        self, *, after: str | None = None, types: str | None = None
    ) -> Iterator[Iterator[StreamEvent]]:
        def play() -> Iterator[StreamEvent]:
            for item in next(self._streams):
                if isinstance(item, UnreachableError):
                    raise item
                yield item

        yield play()


def followed(client: Client) -> list[tuple[str, int]]:
    return [(o.state, o.progress.done) for _, o in waiting.follow(client, "op-1")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "RECONNECT_S", 0.0)


def test_what_happened_before_we_asked_is_passed_over() -> None:
    client = Scripted(
        [operation("running", 2), operation("done", 3)],
        [
            change(operation("queued", 0)),
            change(operation("running", 1)),
            change(operation("running", 3, name="op-2")),
            StreamEvent("stream.open", None, "", {"boot": "b", "seq": 1}),
            change(operation("running", 3)),
            change(operation("done", 3)),
        ],
        [],
    )
    assert followed(client) == [("running", 2), ("running", 3), ("done", 3)]


@pytest.mark.parametrize("end", [[], [LOST]])
def test_a_stream_that_ends_or_breaks_is_opened_again(end: list[UnreachableError]) -> None:
    client = Scripted(
        [operation("running", 1), operation("failed", 1)],
        [change(operation("running", 1)), *end],
        [],
    )
    assert followed(client) == [("running", 1), ("running", 1), ("failed", 1)]


def test_a_daemon_that_is_gone_ends_the_waiting() -> None:
    client = Scripted([operation("running", 1), LOST], [LOST], [])
    with pytest.raises(UnreachableError):
        followed(client)
