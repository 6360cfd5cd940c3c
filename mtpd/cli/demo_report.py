"""Prints the demo's report: the two tables, the sentence, the forecast, the address."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from mtpd.cli.cells import WIDTH
from mtpd.cli.render import alpha_table, depth_table
from mtpd.cli.session import console
from mtpd.views import encode
from tuner.pools import NOISE_HIDES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from mtpd.demo import Forecast, Report
    from mtpd.views import ProgressView

__all__ = ["show_progress", "show_report"]


_BODY = """{"model": "demo", "messages": [
      {"role": "user", "content": "What does os.path.join do?"}]}"""


def show_progress(progress: ProgressView, *, quiet: bool) -> None:
    """One line that replaces itself on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        return
    total = "" if progress.total is None else f"/{progress.total}"
    click.echo(f"\r\033[K{progress.done}{total} {progress.note}", err=True, nl=False)


def show_report(report: Report, *, as_json: bool, once: bool) -> None:
    """Print the report, for people or for programs."""
    if as_json:
        click.echo(json.dumps(encode(report), ensure_ascii=False))
        return
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    out = console(sys.stdout)
    out.print(f"Measured on this machine: {report.engine}, {_threads(report.threads)}.")
    for model in report.models:
        chosen = model.choice.arm if model.choice is not None else None
        out.print()
        out.print(depth_table(model.depths, chosen=chosen, title=model.id))
    out.print()
    out.print(alpha_table([row for model in report.models for row in model.depths]))
    _warnings(out, report.warnings)
    _decisions(out, report)
    _forecasts(out, report.forecast)
    _address(out, report, once=once)


def _warnings(out: Console, warnings: tuple[str, ...]) -> None:
    if warnings:
        out.print()
    for warning in warnings:
        out.print(f"Warning: {warning}.", style="yellow")


def _decisions(out: Console, report: Report) -> None:
    out.print()
    for decision in report.decisions:
        out.print(f"{decision.subject}: {decision.reason}")
    final = report.decisions[-1] if report.decisions else None
    if final is not None and final.arm is not None:
        out.print()
        doubts = [one for one in final.evidence if one.startswith(NOISE_HIDES)]
        said = [f"Chosen: {final.arm.profile} at depth {final.arm.depth}."]
        said += [f"{doubt[0].upper()}{doubt[1:]}." for doubt in doubts]
        out.print(" ".join(said), style="bold")


def _forecasts(out: Console, forecasts: tuple[Forecast, ...]) -> None:
    if not forecasts:
        return
    first = forecasts[0]
    table = Table(title=f"FORECAST, not measured: this acceptance on {first.hardware}", box=None)
    table.add_column("model")
    depths = max(len(f.ratios) for f in forecasts)
    for depth in range(depths):
        table.add_column(f"depth {depth}", justify="right")
    table.add_column("best")
    for forecast in forecasts:
        cells = [f"{ratio.mid:.2f}x" for ratio in forecast.ratios]
        cells += [""] * (depths - len(cells))
        table.add_row(forecast.model, *cells, f"depth {forecast.best_depth}")
    out.print()
    out.print(table)
    out.print(
        f"Speed relative to depth 0: E / (1 + {first.row_cost:g} x depth), where E is the tokens "
        "per step that the measured acceptance gives; the cost of a verification row is "
        f"{first.source}."
    )


def _address(out: Console, report: Report, *, once: bool) -> None:
    out.print()
    out.print(f"Measured and chosen in {report.seconds:.1f} s.")
    if once:
        return
    out.print(f"Serving on {report.url} until Ctrl-C, which leaves nothing behind. Try:")
    out.print()
    for command in (
        (
            f"curl {report.url}/v1/chat/completions",
            "-H 'Content-Type: application/json'",
            f"-d '{_BODY}'",
        ),
        (_mtpctl(), f"--socket {report.control_socket}", "explain"),
    ):
        out.print(_pasted(command), soft_wrap=True)


def _pasted(parts: Sequence[str]) -> str:
    """A command for a shell, on one line where that fits."""
    line = f"  {' '.join(parts)}"
    fits = len(line) <= WIDTH and "\n" not in line
    return line if fits else "  " + " \\\n    ".join(parts)


def _mtpctl() -> str:
    """The ``mtpctl`` beside this program, as it can be run; its folder may not be on the PATH."""
    beside = Path(sys.argv[0]).with_name("mtpctl")
    return shlex.quote(str(beside)) if beside.is_file() else "mtpctl"


def _threads(count: int) -> str:
    return "1 engine thread" if count == 1 else f"{count} engine threads"
