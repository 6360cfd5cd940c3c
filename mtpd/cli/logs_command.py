"""``mtpctl logs``: log lines of the daemon and its engines, evidence marked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from mtpd.cli import completing
from mtpd.cli.cells import clock_text
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.following import follow as follow_stream
from mtpd.cli.session import Session, connected
from mtpd.log_views import ABOUT, LogLinesView, LogLineView

if TYPE_CHECKING:
    from mtpd.cli.client import StreamEvent

__all__ = ["log_line", "logs"]

EVIDENCE: Final = ("start", "residency", "speculation", "failure")
"""What a verdict on a start rests on."""
MAX_TAIL: Final = 10_000

_WIDTH: Final = max(map(len, ABOUT))
_LEVELS: Final = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_ABOUT: Final = {"failure": "bold red", "unread": "yellow", "acceptance": "", "request": ""}
_DAEMON: Final = "mtpd"
"""How the daemon's own lines are named."""


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
@click.option("-f", "--follow", is_flag=True, help="Go on with the lines that come.")
@click.option(
    "--tail",
    type=click.IntRange(0, MAX_TAIL),
    metavar="N",
    default=50,
    show_default=True,
    help="Begin with so many of the latest lines.",
)
@click.option(
    "--evidence", is_flag=True, help="Only lines that a verdict on an engine's start rests on."
)
@click.option("--about", metavar="LIST", help=f"Only evidence of these: {', '.join(ABOUT)}.")
@click.option(
    "--source", type=click.Choice(["daemon", "engines"]), help="Only of the daemon or the engines."
)
@connected
def logs(
    session: Session,
    *,
    model: str | None,
    follow: bool,
    tail: int,
    evidence: bool,
    about: str | None,
    source: str | None,
) -> None:
    """Print log lines, of all or of MODEL's engine; each marked with what it is evidence of.

    --json prints the answer of the API; with --follow one line of the log per line.
    """
    if evidence and about is not None:
        message = "--evidence and --about exclude each other."
        raise click.UsageError(message)
    if model is not None and source is not None:
        message = "MODEL and --source exclude each other: its lines are those of its engine."
        raise click.UsageError(message)
    query: dict[str, str | int | None] = {
        "model": model,
        "source": source,
        "about": ",".join(EVIDENCE) if evidence else about,
        "tail": tail,
    }
    if follow:
        follow_stream(
            session,
            lambda place: session.client.stream("/logs", {**query, "follow": "true"}, after=place),
            lambda event: _print_event(session, event),
        )
        return
    reply = session.client.get("/logs", query)
    if session.as_json:
        click.echo(reply.text, nl=not reply.text.endswith("\n"))
        return
    for line in decode_all(LogLineView, reply.data, "lines"):
        session.out.print(log_line(line), soft_wrap=True)


def _print_event(session: Session, event: StreamEvent) -> None:
    match event.type, event.data:
        case "stream.reset", dict() as data:
            session.err.print(f"Lines are missing: {data.get('reason')}.")
        case "log.lines", {"lines": [*lines]} if session.as_json:
            for line in lines:
                click.echo(json.dumps(line, ensure_ascii=False))
        case "log.lines", data:
            for one in decode(LogLinesView, data).lines:
                session.out.print(log_line(one), soft_wrap=True)
        case _:
            pass


def log_line(line: LogLineView) -> Text:
    """Time, source, what it is evidence of, and the line; the latter two coloured.

    A line holds what others wrote: it must not steer the terminal.
    """
    about = line.about or ""
    text = "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in line.text)
    mark = f"{about:{_WIDTH}}"
    style = _ABOUT.get(about, "cyan") if about else _LEVELS.get(line.level or "", "")
    return Text.assemble(
        (clock_text(line.at), "dim"), f"  {line.profile or _DAEMON}  ", (mark, style), "  ",
        (text, style),
    )  # fmt: skip
