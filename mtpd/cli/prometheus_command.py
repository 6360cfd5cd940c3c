"""``mtpd prometheus``: what ships for Prometheus and Grafana, as files."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import click

from mtpd.config.data import prometheus_dir

__all__ = ["prometheus"]

FILES: Final = MappingProxyType({"alerts": "alerts.yml", "dashboard": "grafana.json"})


@click.command()
@click.argument("what", type=click.Choice(tuple(FILES)), metavar="alerts|dashboard")
def prometheus(what: str) -> None:
    """Print the alert rules for Prometheus, or the dashboard for Grafana.

    What each alert means and how to mend it is in docs/runbooks.md; every metric, and how to
    scrape them, in docs/metrics.md.
    """
    click.echo((prometheus_dir() / FILES[what]).read_text(encoding="utf-8"), nl=False)
