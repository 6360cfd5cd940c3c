"""``mtpctl report``: everything that was measured, side by side, as a document or as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli import completing
from mtpd.cli.decode import decode
from mtpd.cli.session import Session, connected
from mtpd.errors import MtpdError
from mtpd.report.build import document
from mtpd.report.delimited import delimited
from mtpd.report.markdown import markdown
from mtpd.report.page import page
from mtpd.report.svg import standalone
from mtpd.report_views import ReportView

if TYPE_CHECKING:
    from mtpd.report.document import Figure

__all__ = ["report"]

_FORMATS = {".md": "md", ".csv": "csv", ".json": "json", ".html": "html", ".htm": "html"}


@click.command()
@click.argument(
    "subject", required=False, metavar="[MODEL|POOL]", shell_complete=completing.subjects
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "csv", "json", "html"]),
    help="Else by the ending of --output, else md.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to FILE, with --format md also the drawings beside it.",
)
@connected
def report(session: Session, subject: str | None, *, form: str | None, output: Path | None) -> None:
    """Show what was measured of a pool, a model, or all models.

    The matrix of sizes, perplexities, speeds and acceptance, every pair, the depth tables,
    what a verification row costs, and what the rules recommend. Every row names the stored
    repetitions behind it; what must not be compared is marked with the reason.
    """
    if session.as_json and form not in {None, "json"}:
        message = f"--json and --format {form} exclude each other."
        raise click.UsageError(message)
    kind = "json" if session.as_json else form
    kind = kind or _FORMATS.get("" if output is None else output.suffix.lower(), "md")
    reply = session.client.get("/report", {"subject": subject})
    view = decode(ReportView, reply.data)
    if output is None:
        click.echo(_text(kind, view, reply.text, None), nl=False)
        return
    for path, text in _files(kind, view, reply.text, output).items():
        _write(path, text)
        session.err.print(f"wrote {path}", soft_wrap=True)


def _text(kind: str, view: ReportView, raw: str, beside: Path | None) -> str:
    """The report in one of its forms; with files ``beside`` it, Markdown shows the drawings."""
    match kind:
        case "json":
            return raw if raw.endswith("\n") else f"{raw}\n"
        case "csv":
            return delimited(view)
        case "html":
            return page(document(view))
        case _:
            told = document(view)
            return markdown(told, None if beside is None else lambda one: _name(beside, one))


def _files(kind: str, view: ReportView, raw: str, output: Path) -> dict[Path, str]:
    """What to write where, the drawings first, so that a text never lacks what it shows."""
    drawings: dict[Path, str] = {}
    if kind == "md":
        drawings = {
            output.with_name(_name(output, one)): standalone(one.svg)
            for one in document(view).figures
        }
    return {**drawings, output: _text(kind, view, raw, output)}


def _name(output: Path, figure: Figure) -> str:
    return f"{output.stem}-{figure.name}.svg"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise MtpdError(message, hint="name another file with --output") from None
