"""``mtpctl ppl`` and ``mtpctl bench``: quality and kernel-level speed of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli import completing
from mtpd.cli.client import segment
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.given import only_with
from mtpd.cli.quality_lists import baseline_report, baseline_table, measured, told
from mtpd.cli.session import Session, connected
from mtpd.cli.waiting import DETACH, order
from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView
from mtpd.views import ModelView

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtpd.views import Json, OperationView

__all__ = ["CHUNKS", "COMMANDS", "CONTEXT"]

_PAIR = 2
CHUNKS = click.option(
    "--chunks",
    type=click.IntRange(1, 100_000),
    metavar="N",
    default=32,
    show_default=True,
    help="Measure so many chunks; only equal counts compare.",
)
CONTEXT = click.option(
    "--context",
    type=click.IntRange(32, 1_048_576),
    metavar="N",
    default=512,
    show_default=True,
    help="Tokens per chunk.",
)


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL [VARIANT]]", shell_complete=completing.models)
@click.option(
    "--corpus",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Measure over this text; else what is stored is shown.",
)
@CHUNKS
@CONTEXT
@DETACH
@connected
def ppl(
    session: Session,
    models: tuple[str, ...],
    *,
    corpus: Path | None,
    chunks: int,
    context: int,
    detach: bool,
) -> None:
    """Measure the perplexity of MODEL, or of MODEL and a VARIANT and their difference.

    Runs llama-perplexity of llama.cpp over --corpus, e.g. WikiText-2's wiki.test.raw; no text
    is downloaded. Without --corpus: the stored rows of MODEL, or of all; with two models, the
    newest comparable pair. Two results compare only with equal text, chunk count, context and
    flags; pairing by chunk finds differences far below the printed error.

    While it measures every engine is stopped and requests wait, each at most [server]
    queue_timeout_s, then they get 503; what served comes back.
    """
    if len(models) > _PAIR:
        message = "One model, or a base and its variant."
        raise click.UsageError(message)
    if corpus is None:
        only_with("--corpus", "chunks", "context", "detach")
        _stored(session, models)
        return
    if not models:
        message = "Which model is to be measured?"
        raise click.UsageError(message)
    if not corpus.is_absolute():
        corpus = Path.cwd() / corpus
    body: dict[str, Json] = {
        "models": list(models),
        "corpus": str(corpus),
        "chunks": chunks,
        "context": context,
    }
    order(session, "/perplexity", body, detach=detach, draw=_measured, waits=True)


@click.command()
@click.argument("model", required=False, shell_complete=completing.models)
@click.option(
    "--prompt-tokens",
    type=click.IntRange(0, 1_048_576),
    metavar="N",
    default=512,
    show_default=True,
    help="Time processing a prompt of this length; 0 leaves it out.",
)
@click.option(
    "--gen-tokens",
    type=click.IntRange(0, 65_536),
    metavar="N",
    default=128,
    show_default=True,
    help="Time generating so many tokens; 0 leaves it out.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, 100),
    metavar="N",
    default=5,
    show_default=True,
    help="Of each test.",
)
@DETACH
@connected
def bench(
    session: Session,
    model: str | None,
    *,
    prompt_tokens: int,
    gen_tokens: int,
    repetitions: int,
    detach: bool,
) -> None:
    """Time MODEL's body alone with llama-bench: no server, no slots, no drafts.

    The result stands beside what serving reaches. Without MODEL: the stored runs.

    While it measures every engine is stopped and requests wait, each at most [server]
    queue_timeout_s, then they get 503; what served comes back.
    """
    if model is None:
        only_with("MODEL", "prompt_tokens", "gen_tokens", "repetitions", "detach")
        reply = session.client.get("/bench")
        session.show(
            reply, lambda: baseline_table(decode_all(BaselineView, reply.data, "baselines"))
        )
        return

    def draw(operation: OperationView) -> RenderableType:
        baseline = decode(BaselineView, (operation.result or {}).get("baseline"))
        # Its profile: a model with several drafters has more than one.
        shown = session.client.get(f"/models/{segment(baseline.model)}")
        return baseline_report(baseline, decode(ModelView, shown.data))

    body: dict[str, Json] = {
        "model": model,
        "prompt_tokens": prompt_tokens,
        "gen_tokens": gen_tokens,
        "repetitions": repetitions,
    }
    order(session, "/bench", body, detach=detach, draw=draw, waits=True)


COMMANDS: tuple[click.Command, ...] = (ppl, bench)


def _stored(session: Session, models: tuple[str, ...]) -> None:
    if len(models) == _PAIR:
        both = {"base": models[0], "variant": models[1]}
        pair = session.client.get("/perplexity/comparison", both)

        def compared() -> RenderableType:
            view = decode(PplComparisonView, pair.data)
            return told((view.base, view.variant), view)

        session.show(pair, compared)
        return
    asked = models[0] if models else None
    reply = session.client.get("/perplexity", {"model": asked})
    session.show(
        reply,
        lambda: told(decode_all(PerplexityView, reply.data, "perplexities"), None, asked=asked),
    )


def _measured(operation: OperationView) -> RenderableType:
    return measured(operation.result or {})
