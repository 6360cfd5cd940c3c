"""Starting an operation and following it: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mtpd.cli import lists
from mtpd.cli.client import Client, Reply, StreamEvent, segment
from mtpd.cli.decode import decode
from mtpd.cli.render import progress_text
from mtpd.cli.short_ids import short_id
from mtpd.errors import EXIT_FAILED, MtpdError, UnreachableError
from mtpd.views import OperationView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import RenderableType

    from mtpd.cli.session import Session
    from mtpd.views import Json

__all__ = ["DETACH", "follow", "order", "wait"]

DETACH = click.option("--detach", is_flag=True, help="Return at once; see mtpctl operations.")
WAITS = "requests wait until this ends, each at most queue_timeout_s, then they get 503"

ENDED = frozenset({"done", "failed", "cancelled"})
RECONNECT_S = 0.5


def order(
    session: Session,
    path: str,
    body: Mapping[str, Json],
    *,
    detach: bool,
    draw: Callable[[OperationView], RenderableType],
    waits: bool = False,
) -> None:
    """Start an operation, follow it to its end and show what came of it.

    Args:
        session: The daemon, and where to print.
        path: Starts it.
        body: What is asked for.
        detach: Show the operation as it was accepted, and follow nothing.
        draw: What is shown of one that is done.
        waits: Whether requests wait meanwhile, which is said before.

    Raises:
        MtpdError: It was refused, failed or was cancelled.
    """
    accepted = session.client.post(path, body)
    if waits and not session.as_json:
        session.err.print(WAITS, soft_wrap=True)
    if detach:
        session.show(accepted, lambda: lists.operation_grid(decode(OperationView, accepted.data)))
        return
    reply, operation = wait(session, accepted)
    session.show(reply, lambda: draw(operation))


def wait(session: Session, accepted: Reply) -> tuple[Reply, OperationView]:
    """Follow an accepted operation to its end.

    Raises:
        MtpdError: It failed or was cancelled.
        click.exceptions.Exit: Ctrl-C; the operation goes on.
    """
    operation = decode(OperationView, accepted.data)
    states = follow(session.client, operation.id)
    try:
        if session.as_json:
            final = _last(states)
        elif session.err.is_terminal:
            final = _bar(session, states, operation)
        else:
            final = _plain(session, states, operation)
    except KeyboardInterrupt:
        short = short_id(operation.id)
        session.err.print(
            f"\nThe operation goes on. 'mtpctl operations show {short}' tells how far it "
            f"is, 'mtpctl operations cancel {short}' ends it."
        )
        raise click.exceptions.Exit(EXIT_FAILED) from None
    reply, ended = final
    if ended.state != "done":
        if session.as_json:
            click.echo(reply.text, nl=False)
        raise _failure(ended)
    return reply, ended


def follow(client: Client, operation_id: str) -> Iterator[tuple[Reply, OperationView]]:
    """Every state of an operation, the last one included; outlives a broken stream.

    Raises:
        UnreachableError: The daemon is gone.
    """
    while True:
        in_touch = False
        try:
            with client.events(types="operation") as events:
                # Asked after the stream is open, so that no change falls between the two.
                reply = client.get(f"/operations/{segment(operation_id)}")
                in_touch = True
                operation = decode(OperationView, reply.data)
                yield reply, operation
                if operation.state in ENDED:
                    return
                for event in events:
                    change = _change(event, operation_id)
                    if _ended(change):
                        break  # the last state is asked for, so that its text is the API's
                    if change is not None:
                        changed = decode(OperationView, change)
                        if _place(changed) >= _place(operation):
                            operation = changed
                            yield reply, operation
                else:
                    time.sleep(RECONNECT_S)
        except UnreachableError:
            if not in_touch:
                raise
            time.sleep(RECONNECT_S)


def _change(event: StreamEvent, operation_id: str) -> dict[str, Json] | None:
    match event.data:
        case {"event": {"operation": dict() as operation}} if operation.get("id") == operation_id:
            return operation
        case _:
            return None


def _place(operation: OperationView) -> tuple[bool, int]:
    """How far it is: what happened before we asked is still in the stream, and is passed over."""
    return operation.state != "queued", operation.progress.done


def _ended(operation: Json) -> bool:
    return isinstance(operation, dict) and operation.get("state") in ENDED


def _last(states: Iterator[tuple[Reply, OperationView]]) -> tuple[Reply, OperationView]:
    *_, last = states
    return last


def _plain(
    session: Session, states: Iterator[tuple[Reply, OperationView]], operation: OperationView
) -> tuple[Reply, OperationView]:
    said = ""
    while True:
        text = f"{operation.state} {progress_text(operation)}".rstrip()
        if text != said:
            session.err.print(text, soft_wrap=True)
            said = text
        reply, operation = next(states)
        if operation.state in ENDED:
            return reply, operation


def _bar(
    session: Session, states: Iterator[tuple[Reply, OperationView]], operation: OperationView
) -> tuple[Reply, OperationView]:
    columns = (
        TextColumn("{task.fields[kind]}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=session.err, transient=True) as progress:
        task = progress.add_task("", total=None, kind=operation.kind)
        while True:
            last = next(states)
            now = last[1].progress
            progress.update(task, completed=now.done, total=now.total, description=now.note)
            if last[1].state in ENDED:
                return last


def _failure(operation: OperationView) -> MtpdError:
    if operation.state == "cancelled":
        note = operation.progress.note
        said = f": {note}" if note else ""
        return MtpdError(f"The operation {short_id(operation.id)} was cancelled{said}.")
    error = operation.error or {}
    hint = error.get("hint")
    return MtpdError(
        str(error.get("detail") or f"The operation {operation.id} failed."),
        hint=None if hint is None else str(hint),
    )
