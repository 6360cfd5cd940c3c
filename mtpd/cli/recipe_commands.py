"""``mtpctl recipe``: making a model file smaller, planned first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.text import Text

from mtpd.cli import completing
from mtpd.cli.cells import cell, grid, line, size, table
from mtpd.cli.decode import decode
from mtpd.cli.given import only_with
from mtpd.cli.group import Commands
from mtpd.cli.memory import memory_cells
from mtpd.cli.quality_commands import CHUNKS, CONTEXT
from mtpd.cli.quality_lists import measured
from mtpd.cli.session import Session, connected, connection_options
from mtpd.cli.waiting import DETACH, order
from mtpd.quality_views import RecipeView

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtpd.views import Json, OperationView

__all__ = ["recipe"]

_LONGEST = 600
"""Characters of a command that a terminal still shows in a useful way."""


@click.group(cls=Commands)
@connection_options
def recipe(**_connection: object) -> None:
    """Make a model file smaller: what it is worth, and the file."""


@recipe.command()
@click.argument("model", shell_complete=completing.models)
@click.option("--run", "make", is_flag=True, help="Make the file, beside the original.")
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --run: measure the perplexity before and after over this text.",
)
@CHUNKS
@CONTEXT
@DETACH
@connected
def b2(
    session: Session,
    model: str,
    *,
    make: bool,
    corpus: Path | None,
    chunks: int,
    context: int,
    detach: bool,
) -> None:
    """Requantize MODEL's output tensor to Q4_0: study 000's B2 recipe.

    Says which depths become resident by it; with --run llama-quantize writes the new file
    beside the original (never over anything), and it is looked through: no other tensor may
    differ. Serving goes on meanwhile; with --corpus it then stops while both perplexities are
    measured. The new file has to be added as a model to be served.
    """
    if not make:
        if corpus is not None:
            message = "--corpus measures before and after: it needs --run."
            raise click.UsageError(message)
        only_with("--run", "detach")
        only_with("--run --corpus", "chunks", "context")
        reply = session.client.get("/recipes/b2", {"model": model})
        session.show(reply, lambda: _plan(decode(RecipeView, reply.data)))
        return
    if corpus is None:
        only_with("--corpus", "chunks", "context")
    body: dict[str, Json] = {
        "model": model,
        "corpus": None if corpus is None else str(Path.cwd() / corpus),
        "chunks": chunks,
        "context": context,
    }
    order(session, "/recipes/b2", body, detach=detach, draw=_made)


def _plan(view: RecipeView) -> RenderableType:
    short = len(view.command) <= _LONGEST
    shown = view.command if short else f"{view.command[:_LONGEST]} ... (whole with --json)"
    how = Text(f"mtpctl recipe b2 {view.model} --run makes it with:")
    return Group(*_head(view), Text(""), how, Text(shown), Text(""), *_forbidden(view))


def _made(operation: OperationView) -> RenderableType:
    result = operation.result or {}
    view = decode(RecipeView, result.get("recipe"))
    parts: list[RenderableType] = [*_head(view), Text("")]
    if "rows" in result:
        parts += [measured(result), Text("")]
    serve = (
        f"{view.output} is made. To serve it copy [models.{view.model}] under another name with "
        "this file, then: mtpctl reload, and mtpctl tune with that name."
    )
    return Group(*parts, Text(serve), Text(""), *_forbidden(view))


def _head(view: RecipeView) -> list[RenderableType]:
    made = grid()
    line(made, "file", view.file)
    line(made, "new file", f"{view.output} ({size(view.size_bytes)})")
    line(made, "disk", f"{size(view.free_bytes)} free")
    line(made, "change", f"{view.tensor}: {view.before_type} to {view.after_type}")
    memory = table("memory, predicted", dense=True)
    for head in ("depth", "MiB now", "fits now", "MiB then", "fits then"):
        memory.add_column(head, justify="right")
    for one in view.depths:
        memory.add_row(
            cell(str(one.before.depth)), *memory_cells(one.before), *memory_cells(one.after)
        )
    return [Text(view.reason), made, Text(""), memory]


def _forbidden(view: RecipeView) -> list[RenderableType]:
    return [
        Text("The new file must not be compared with the original by"),
        *(Text(f"- {one}") for one in view.forbids),
    ]
