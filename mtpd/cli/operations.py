"""The ``mtpctl`` commands that start, list and cancel operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.text import Text

from mtpd.cli import completing, lists, render
from mtpd.cli.cells import grid, line, size
from mtpd.cli.client import segment
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.group import Commands
from mtpd.cli.memory import memory_parts, need_sentence
from mtpd.cli.numbers import MAX_DEPTH, Depths
from mtpd.cli.quality_lists import quality_lines
from mtpd.cli.session import Session, connected
from mtpd.cli.short_ids import whole_id
from mtpd.cli.waiting import DETACH, order
from mtpd.views import ConfigValueView, DecisionView, DepthRowView, ModelView, OperationView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from mtpd.views import ArmView, Json

__all__ = ["COMMANDS", "model_report", "operation_report"]

_SAID = re.compile(r"cut short by |depth \d+: .* (measured|predicted)$")
"""Evidence that belongs to a report: which limit ended it, and the speeds of a probe."""
_POOL_KEY = re.compile(r'pools\.("?)(?P<name>.+)\1\.members')


LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=20,
    show_default=True,
    help="Rows at most.",
)
DEPTHS = click.option(
    "--depths", type=Depths(), metavar="RANGE", help="E.g. 0-3 or 0,2,4; else all."
)


@click.command()
@click.argument("model", shell_complete=completing.models)
@click.option(
    "--depth", type=click.IntRange(0, MAX_DEPTH), metavar="N", help="Instead of the chosen one."
)
@click.option(
    "--force", is_flag=True, help="Cut running requests; serve it even if it does not fit."
)
@click.option("--measured", is_flag=True, help="Go back from a set depth to the measured choice.")
@DETACH
@connected
def switch(
    session: Session, model: str, *, depth: int | None, force: bool, measured: bool, detach: bool
) -> None:
    """Serve MODEL, at its chosen depth unless told otherwise.

    A depth that is named holds until MODEL is tuned, until --measured, or until mtpd ends.
    """
    if measured and depth is not None:
        message = "--depth and --measured exclude each other."
        raise click.UsageError(message)
    body: dict[str, Json] = {"model": model, "depth": depth, "force": force}
    if measured:
        body["measured"] = True
    order(session, "/switch", body, detach=detach, draw=operation_report)


@click.command()
@click.argument("model", shell_complete=completing.models)
@DETACH
@connected
def load(session: Session, model: str, *, detach: bool) -> None:
    """Start MODEL's engine at its chosen depth."""
    order(session, "/load", {"model": model}, detach=detach, draw=operation_report)


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
@DETACH
@connected
def unload(session: Session, model: str | None, *, detach: bool) -> None:
    """Stop MODEL's engine, or every engine."""
    order(session, "/unload", {"model": model}, detach=detach, draw=operation_report)


LIMITS = (
    click.option(
        "--max-starts", type=click.IntRange(1, 1000), metavar="N", help="Engine starts at most."
    ),
    click.option(
        "--max-minutes",
        type=click.FloatRange(0, min_open=True),
        metavar="M",
        help="Minutes at most.",
    ),
    click.option(
        "--max-cells", type=click.IntRange(1), metavar="N", help="Arms times prompts at most."
    ),
    click.option(
        "--max-joules",
        type=click.FloatRange(0, min_open=True),
        metavar="J",
        help="Joules at most; needs a card whose power can be read.",
    ),
)


def limited(command: Callable[..., None]) -> Callable[..., None]:
    """Add the limits of a measurement."""
    for option in reversed(LIMITS):
        command = option(command)
    return command


@click.command()
@click.argument("subject", required=False, shell_complete=completing.subjects)
@click.option(
    "--method",
    type=click.Choice(["model-based", "sweep"]),
    default="model-based",
    show_default=True,
    help="Measure what decides, or every depth.",
)
@DEPTHS
@limited
@click.option("--no-apply", is_flag=True, help="Measure and choose, but change nothing.")
@DETACH
@connected
def tune(
    session: Session,
    /,
    subject: str | None,
    *,
    method: str,
    depths: tuple[int, ...] | None,
    no_apply: bool,
    detach: bool,
    **limits: float | None,
) -> None:
    """Measure SUBJECT (a pool or a model) and serve what the measurements choose.

    Without SUBJECT the pool named "default" is meant, else the only pool, else the
    only model. The limits are for the whole of it; reaching one ends the measurement
    with a choice among what was measured, and what stands gives way only to a faster arm.
    With --depths only these are compared, and the best of them is served.

    Requests wait until it ends, each at most [server] queue_timeout_s, then they get 503;
    --max-minutes bounds it, to the end of the start that is under way.
    """
    body: dict[str, Json] = {
        "subject": subject or _only_subject(session),
        "method": method,
        "depths": None if depths is None else list(depths),
        **limits,
        "apply": not no_apply,
    }
    order(session, "/tune", body, detach=detach, draw=operation_report, waits=True)


@click.command()
@click.argument("model", shell_complete=completing.models)
@DEPTHS
@limited
@DETACH
@connected
def sweep(
    session: Session,
    /,
    model: str,
    *,
    depths: tuple[int, ...] | None,
    detach: bool,
    **limits: float | None,
) -> None:
    """Measure MODEL at every depth and print the table; changes nothing.

    Requests wait until it ends, each at most [server] queue_timeout_s, then they get 503;
    --max-minutes bounds it, to the end of the start that is under way.
    """
    body: dict[str, Json] = {
        "subject": model,
        "method": "sweep",
        "depths": None if depths is None else list(depths),
        **limits,
        "apply": False,
    }
    order(session, "/tune", body, detach=detach, draw=operation_report, waits=True)


@click.command()
@click.argument("model", shell_complete=completing.models)
@click.option(
    "--depth",
    type=click.IntRange(1, MAX_DEPTH),
    metavar="N",
    default=2,
    show_default=True,
    help="Draft positions.",
)
@DETACH
@connected
def probe(session: Session, model: str, *, depth: int, detach: bool) -> None:
    """Say in minutes, from one prompt, whether MODEL's --depth pays.

    Measures how often drafts are accepted, position by position; what a verification row costs,
    where the engine lets single steps be timed, else by a second start at depth 0; and says from
    both what the depth earns over depth 0: yes, no or too close to call. Nothing is chosen.

    Requests wait until it ends, one or two engine starts, each at most [server]
    queue_timeout_s, then they get 503.
    """
    order(
        session,
        "/probe",
        {"model": model, "depth": depth},
        detach=detach,
        draw=operation_report,
        waits=True,
    )


@click.group(cls=Commands, invoke_without_command=True)
@LIMIT
@click.pass_context
@connected
def operations(session: Session, context: click.Context, *, limit: int) -> None:
    """List operations, newest first; or show or cancel one."""
    if context.invoked_subcommand is None:
        _list(session, limit)


@operations.command("list")
@LIMIT
@connected
def list_operations(session: Session, *, limit: int) -> None:
    """List operations, newest first."""
    _list(session, limit)


@operations.command()
@click.argument("operation", metavar="ID", shell_complete=completing.operations)
@connected
def show(session: Session, operation: str) -> None:
    """Show one operation; the first four characters of its ID will do."""
    reply = session.client.get(f"/operations/{segment(whole_id(session, operation))}")
    session.show(reply, lambda: lists.operation_grid(decode(OperationView, reply.data)))


@operations.command()
@click.argument("operation", metavar="ID", shell_complete=completing.operations)
@connected
def cancel(session: Session, operation: str) -> None:
    """Ask an operation to end; what it has measured is kept.

    The first four characters of its ID will do.
    """
    path = f"/operations/{segment(whole_id(session, operation))}"
    before = decode(OperationView, session.client.get(path).data)
    reply = session.client.delete(path)
    session.show(reply, lambda: _cancelled(before, decode(OperationView, reply.data)))


def _cancelled(before: OperationView, now: OperationView) -> RenderableType:
    if before.ended_at is not None:
        said = f"It had ended before: {before.state}. Nothing was cancelled."
    elif now.ended_at is not None:
        said = "It has ended."
    else:
        said = "It ends as soon as what it runs has been stopped."
    return Group(Text(said), lists.operation_grid(now))


COMMANDS: tuple[click.Command, ...] = (
    switch,
    load,
    unload,
    tune,
    sweep,
    probe,
    operations,
)


def model_report(model: ModelView) -> RenderableType:
    """A model's depth table, its acceptance, what was chosen, its file and its memory."""
    memory = [Text(""), *memory_parts(model.memory)]
    if not model.depths:
        unmeasured = Text(f"{model.id} has not been measured: mtpctl tune {model.id}")
        return Group(unmeasured, _file(model), quality_lines(model), *memory)
    choice = model.choice
    pinned = choice is not None and choice.pinned
    parts = _tables(
        model.depths, None if choice is None else choice.arm, "set" if pinned else "chosen"
    )
    if choice is not None:
        said = f" {render.choice_origin(choice)}" if pinned else ""
        word = "depth" if pinned else "chosen depth"
        parts.append(Text(f"{word} {choice.arm.depth}{said}: {choice.reason}"))
    return Group(*parts, _file(model), quality_lines(model), *memory)


def _file(model: ModelView) -> RenderableType:
    made = grid()
    if model.variants:
        others = ", ".join(name for name in model.variants if name != model.id)
        line(made, "drafters", f"{model.id} is served; mtpctl models NAME shows {others}")
    line(made, "file", f"{model.model} ({size(model.size_bytes)})")
    line(made, "sha256", model.sha256 or "not known yet")
    if model.need is not None:
        line(made, "takes", need_sentence(model.need))
    return made


def _tables(
    rows: Sequence[DepthRowView], chosen: ArmView | None, mark: str
) -> list[RenderableType]:
    """The depth table and the acceptance of one model's rows."""
    parts: list[RenderableType] = [render.depth_table(rows, chosen=chosen, mark=mark), Text("")]
    if any(row.acceptance for row in rows):
        parts += [render.alpha_table(rows), Text("")]
    return parts


def operation_report(operation: OperationView) -> RenderableType:
    """What an operation measured, by model, and what it decided."""
    result = operation.result or {}
    if "depths" not in result:
        return Text(lists.outcome(operation))
    rows = decode_all(DepthRowView, result, "depths")
    decisions = decode_all(DecisionView, result, "decisions")
    parts: list[RenderableType] = []
    for profile in dict.fromkeys(row.arm.profile for row in rows):
        arms = [one.arm for one in decisions if one.arm and one.arm.profile == profile]
        own = [row for row in rows if row.arm.profile == profile]
        # A probe compares nothing: its decision names the arm that was measured.
        marked = arms[-1] if arms and operation.kind != "probe" else None
        parts += _tables(own, marked, "chosen" if result.get("applied") else "best")
    left = result.get("not_started")
    if isinstance(left, list) and left:
        parts += [*(Text(f"not started: {one}") for one in left), Text("")]
    return Group(*parts, *(Text(line) for one in decisions for line in _said(one)))


def _said(decision: DecisionView) -> list[str]:
    """Why, what a probe compares, and what bounds it."""
    sentence = render.decision_sentence(decision)
    told = [line for line in decision.evidence if _SAID.match(line)]
    return [f"{decision.subject}: {line}" for line in (sentence, *told)]


def _list(session: Session, limit: int) -> None:
    reply = session.client.get("/operations", {"limit": limit})
    session.show(
        reply, lambda: lists.operation_list(decode_all(OperationView, reply.data, "operations"))
    )


def _only_subject(session: Session) -> str:
    values = decode_all(ConfigValueView, session.client.get("/config").data, "config")
    found = (_POOL_KEY.fullmatch(value.key) for value in values)
    pools = [match["name"] for match in found if match is not None]
    if "default" in pools:
        return "default"
    names = pools or [
        model.id for model in decode_all(ModelView, session.client.get("/models").data, "models")
    ]
    if len(names) == 1:
        return names[0]
    message = "Which one? " + (", ".join(names) or "No model is configured.")
    raise click.UsageError(message)
