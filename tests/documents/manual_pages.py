"""The manual pages, as they are installed."""

from __future__ import annotations

from mtpd.cli.manual import pages
from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd

__all__ = ["FILES"]

FILES = {f"docs/man/{path}": text for path, text in pages({"mtpd": mtpd, "mtpctl": mtpctl}).items()}
