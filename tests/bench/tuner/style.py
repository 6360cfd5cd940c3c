"""How the plots of the documentation look, and how they are written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

__all__ = ["COLOURS", "INK", "MUTED", "plot"]

INK: Final = "#1f2328"
MUTED: Final = "#6e7781"
_PAPER: Final = "#ffffff"
_GRID: Final = "#d8dee4"

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

_LOOK: Final[dict[RcKeyType, Any]] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": _PAPER,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.facecolor": _PAPER,
    "font.size": 9.0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.facecolor": _PAPER,
    "svg.hashsalt": "mtpd",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@contextlib.contextmanager
def plot(path: Path, width_in: float, height_in: float) -> Iterator[Axes]:
    """Draw on an opaque background, so that it reads in light and dark, then write the file.

    The format follows from the suffix; equal drawings give equal files. Needs no display.
    """
    with mpl.rc_context(_LOOK):
        drawn = Figure(figsize=(width_in, height_in), layout="constrained")
        yield drawn.add_subplot()
        vector = path.suffix == ".svg"
        drawn.savefig(path, metadata={"Creator": None, "Date": None} if vector else None)
