"""Cells, grids and units of the tables; text from outside is never taken for markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from mtpd.report.text import ALPHA, NONE, number, percent, ranges, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtpd.views import ArmView

__all__ = [
    "ALPHA",
    "NONE",
    "WIDTH",
    "arm_label",
    "arm_text",
    "cell",
    "clock_text",
    "duration",
    "finished",
    "grid",
    "line",
    "number",
    "percent",
    "ranges",
    "size",
    "state",
    "table",
]

WIDTH = 80
"""Every table fits this many columns."""

_RFC3339_SECONDS = len("2026-11-29T22:44:27")
_STYLES = {
    "resident": "green",
    "host": "green",
    "ready": "green",
    "done": "green",
    "evicted": "red",
    "spilled": "red",
    "failed": "red",
    "wedged": "red",
    "vram_unrecovered": "red",
    "gpu_failed": "red",
    "unknown": "yellow",
    "backoff": "yellow",
    "cancelled": "yellow",
}


def table(title: str, *, dense: bool = False) -> Table:
    """An empty table in the house style; a dense one has one space between columns."""
    return Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0 if dense else 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )


def finished(made: Table, empty: str) -> RenderableType:
    """A table; a sentence in its place if it has no rows, which says how to get some."""
    return made if made.row_count else Text(empty)


def grid() -> Table:
    """An empty grid of names and values."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(min_width=10)
    made.add_column(overflow="fold")
    return made


def line(to: Table, name: str, value: str | Text) -> None:
    """Add a name and its value to a grid."""
    to.add_row(Text(f"  {name}", style="dim"), value if isinstance(value, Text) else Text(value))


def cell(text: str) -> Text:
    """Plain text."""
    return Text(text)


def state(name: str) -> Text:
    """A state in the colour of its meaning."""
    return Text(name, style=_STYLES.get(name, ""))


def arm_label(arm: ArmView) -> str:
    """``model@depth``, as in every log line."""
    return arm_text(arm.profile, arm.depth)


def arm_text(profile: str, depth: int | None) -> str:
    """The same of a profile and its depth, which may not be known."""
    return profile if depth is None else f"{profile}@{depth}"


def clock_text(text: str) -> str:
    """An RFC 3339 time in UTC without year and fraction: ``11-29 22:44:27``."""
    if len(text) <= _RFC3339_SECONDS:
        return text
    return text[len("2026-") : _RFC3339_SECONDS].replace("T", " ")


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    named = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next((index for index, (count, _) in enumerate(named) if count), len(named) - 1)
    shown = [f"{count} {unit}" for count, unit in named[first : first + 2] if count]
    return " ".join(shown) or "0 s"
