"""The client's command: ``mtpctl status|models|switch|tune|probe|sweep|...``.

Here are the commands that look; those that change something are in
``mtpd.cli.operations``. Exit codes: 0 done, 1 failed with a reason, 2 usage,
3 daemon not reachable, 78 configuration.
"""

from __future__ import annotations

import sys

import click

from mtpd import __version__
from mtpd.api.filters import OLDEST, parse_position, unknown_types, wants
from mtpd.cli import completing, explaining, lists, operations, quality_commands
from mtpd.cli.client import StreamEvent, segment
from mtpd.cli.completion_command import completion_command
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.doctor_command import doctor
from mtpd.cli.failure import exit_code_of
from mtpd.cli.following import follow as follow_stream
from mtpd.cli.gpu_command import gpu
from mtpd.cli.group import Commands
from mtpd.cli.logs_command import logs
from mtpd.cli.numbers import Ids
from mtpd.cli.quarantine_command import quarantine
from mtpd.cli.recipe_commands import recipe
from mtpd.cli.reload_command import reload
from mtpd.cli.report_command import report
from mtpd.cli.schema_command import schema_command
from mtpd.cli.schemas import MTPCTL
from mtpd.cli.session import Session, connected, connection_options
from mtpd.cli.status_screen import status_panel
from mtpd.cli.top.command import top
from mtpd.explanation_views import ExplanationView
from mtpd.views import (
    ConfigValueView,
    DecisionView,
    MeasurementView,
    ModelView,
    StatusView,
)

__all__ = ["cli", "main"]

LIMIT = click.IntRange(1, 1000)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mtpctl")
@connection_options
def cli(**_connection: object) -> None:
    """Ask and steer a running mtpd over its control socket.

    The socket is found in this order: --socket, $MTPD_SOCKET, the runtime directory
    ($RUNTIME_DIRECTORY, else $XDG_RUNTIME_DIR/mtpd, else run in the state directory),
    /run/mtpd/control.sock, /run/mtpd-control.sock. Exit codes: 0 done, 1 failed with a
    reason, 2 usage, 3 daemon not reachable, 78 configuration.
    """


@cli.command()
@connected
def status(session: Session) -> None:
    """Show the daemon on one screen: resident, at what depth, and why."""
    reply = session.client.get("/status")
    session.show(reply, lambda: status_panel(decode(StatusView, reply.data)))


@cli.command()
@click.argument("model", required=False, shell_complete=completing.models)
@connected
def models(session: Session, model: str | None) -> None:
    """List the models, or show one MODEL with its depth table."""
    if model is None:
        reply = session.client.get("/models")
        session.show(reply, lambda: lists.model_table(decode_all(ModelView, reply.data, "models")))
        return
    one = session.client.get(f"/models/{segment(model)}")
    session.show(one, lambda: operations.model_report(decode(ModelView, one.data)))


@cli.command()
@click.option(
    "--model", metavar="MODEL", shell_complete=completing.models, help="Only of this model."
)
@click.option("--depth", type=click.IntRange(0, 64), metavar="N", help="Only at this depth.")
@click.option(
    "--workload",
    metavar="NAME",
    shell_complete=completing.workloads,
    help="Only of this workload.",
)
@click.option(
    "--operation",
    metavar="ID",
    shell_complete=completing.operations,
    help="Only those that this operation took.",
)
@click.option("--id", "ids", type=Ids(), metavar="IDS", help="Only these, e.g. 1-12,17.")
@click.option("--limit", type=LIMIT, metavar="N", help="Rows at most [default: 50; all of --id].")
@connected
def measurements(
    session: Session,
    *,
    model: str | None,
    depth: int | None,
    workload: str | None,
    operation: str | None,
    ids: tuple[int, ...] | None,
    limit: int | None,
) -> None:
    """List stored repetitions, newest first."""
    reply = session.client.get(
        "/measurements",
        {
            "model": model,
            "depth": depth,
            "workload": workload,
            "operation": operation,
            "id": ids,
            "limit": limit or (50 if ids is None else len(ids)),
        },
    )
    session.show(
        reply,
        lambda: lists.measurement_table(decode_all(MeasurementView, reply.data, "measurements")),
    )


@cli.command()
@click.option(
    "--subject",
    metavar="NAME",
    shell_complete=completing.subjects,
    help="Only about this pool or model.",
)
@click.option(
    "--limit", type=LIMIT, metavar="N", default=20, show_default=True, help="Rows at most."
)
@connected
def decisions(session: Session, *, subject: str | None, limit: int) -> None:
    """List decisions with their reasons, newest first."""
    reply = session.client.get("/decisions", {"subject": subject, "limit": limit})
    session.show(
        reply, lambda: lists.decision_table(decode_all(DecisionView, reply.data, "decisions"))
    )


@cli.command()
@click.argument(
    "decision",
    type=click.IntRange(min=1),
    required=False,
    metavar="[ID]",
    shell_complete=completing.decisions,
)
@click.option(
    "--subject",
    metavar="NAME",
    shell_complete=completing.subjects,
    help="The latest about this pool or model.",
)
@connected
def explain(session: Session, decision: int | None, *, subject: str | None) -> None:
    """Show why: decision ID, or the latest one, with all that it stands on."""
    if decision is not None and subject is not None:
        message = "ID and --subject exclude each other."
        raise click.UsageError(message)
    reply = session.client.get("/explain", {"id": decision, "subject": subject})
    session.show(reply, lambda: explaining.explanation(decode(ExplanationView, reply.data)))


@cli.command()
@connected
def config(session: Session) -> None:
    """Show every configuration value and where it comes from."""
    reply = session.client.get("/config")
    session.show(
        reply, lambda: lists.config_table(decode_all(ConfigValueView, reply.data, "config"))
    )


@cli.command()
@click.option(
    "-f/-n",
    "--follow/--no-follow",
    default=True,
    help="Go on, as by default, or end with the latest event.",
)
@click.option("--since", metavar="ID", help="After this event (BOOT-SEQ); 0: all that are kept.")
@click.option(
    "--types",
    metavar="LIST",
    shell_complete=completing.event_types,
    help="Only these, e.g. decision,engine.transition.",
)
@connected
def events(session: Session, *, follow: bool, since: str | None, types: str | None) -> None:
    """Print events as they happen; --json prints one JSON object per line."""
    if since is not None and parse_position(since) is None:
        message = "an event id looks like BOOT-SEQ; 0 means all that are kept"
        raise click.BadParameter(message, param_hint="--since")
    if (strange := unknown_types(types)) is not None:
        raise click.BadParameter(strange, param_hint="--types")
    if not follow:
        _kept_events(session, since or OLDEST, types)
        return
    follow_stream(
        session,
        lambda place: session.client.events(after=place, types=types),
        lambda event: _print_event(session, event),
        since=since,
    )


def _kept_events(session: Session, since: str, types: str | None) -> None:
    """Print up to the event that was the latest when we asked.

    The filter is applied here: a filtered stream would not show that the end is reached.
    """
    with session.client.events(after=since) as stream:
        last: tuple[str, int] | None = None
        for event in stream:
            match event:
                case StreamEvent(type="stream.open", data={"boot": str(boot), "seq": int(seq)}):
                    last = (boot, seq)
                    place = parse_position(since)
                case _:
                    if wants(types, event.type):
                        _print_event(session, event)
                    place = parse_position(event.id) if event.id else None
            if last is not None and (last[1] == 0 or (place is not None and place >= last)):
                return


def _print_event(session: Session, event: StreamEvent) -> None:
    if session.as_json:
        if not event.type.startswith("stream."):
            click.echo(event.text)
        return
    if event.type != "stream.open":
        session.out.print(lists.event_line(event.type, event.data), soft_wrap=True)


for command in (
    *operations.COMMANDS,
    *quality_commands.COMMANDS,
    doctor,
    logs,
    recipe,
    reload,
    report,
    gpu,
    quarantine,
    top,
    schema_command(lambda: MTPCTL),
    completion_command("mtpctl"),
):
    cli.add_command(command)


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(exit_code_of(cli, name="mtpctl"))
