"""``mtpd demo``: a daemon that needs no configuration, and its report."""

from __future__ import annotations

import functools
import os
import signal

import click

from mtpd import logs
from mtpd.cli.daemon_commands import run
from mtpd.cli.demo_report import show_progress, show_report
from mtpd.cli.signals import end_as_ctrl_c_does

__all__ = ["demo"]


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", default=8080, show_default=True,
    help="Port to serve on; 0 picks a free one.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="End after the report instead of serving.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option(
    "--threads", type=click.IntRange(1, 256), metavar="N", default=1, show_default=True,
    help="Engine threads; more than there are free cores makes every number worthless.",
)  # fmt: skip
@click.option("--verbose", is_flag=True, help="Print the daemon's log too.")
def demo(port: int, *, once: bool, as_json: bool, threads: int, verbose: bool) -> None:
    """Measure two bundled tiny models here, choose model and depth, say why, and serve.

    Needs no configuration and no GPU: it starts the embedded engine (the real llama.cpp
    server) with each model at draft depths 0 to 3, measures acceptance per position and
    tokens per second, prints both tables and the choice, then serves it until Ctrl-C.
    Everything is kept in a temporary directory that is removed at the end.
    """
    logs.configure(json=False, level="info" if verbose else "error")
    end_as_ctrl_c_does(signal.SIGTERM, signal.SIGHUP)
    from mtpd.demo import Demo, run_demo  # noqa: PLC0415  # see the module

    wanted = Demo(port=port, threads=threads)
    run(
        run_demo,
        wanted,
        path_env=os.environ.get("PATH", os.defpath),
        on_progress=functools.partial(show_progress, quiet=as_json),
        on_report=functools.partial(show_report, as_json=as_json, once=once),
        stay=not once,
    )
