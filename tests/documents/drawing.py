"""States and the ways between them as SVG: boxes on a grid, arrows that bend.

What leads to a state is told by the table beside a drawing, and by the arrow's own title.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Drawing"]

BOX = (140.0, 34.0)
STEP = (178.0, 110.0)
MARGIN = 26.0
BEND = 0.12
STYLE = (
    "text{font:14px sans-serif;text-anchor:middle;fill:#1b1b1b}"
    "rect{fill:#f3f4f6;stroke:#6b7280;stroke-width:1.4}"
    "rect.good{fill:#d9f2e3;stroke:#15803d}rect.bad{fill:#fde8e4;stroke:#b42318}"
    "path.way{fill:none;stroke:#6b7280;stroke-width:1.3}"
    "path.tip{fill:#6b7280}"
    ".paper{fill:#ffffff;stroke:none}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A machine's states with their places.

    Attributes:
        title: For readers who cannot see it.
        places: Column and row of each state.
        good: States that are wanted.
        bad: States that are not.
    """

    title: str
    places: Mapping[str, tuple[int, int]]
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    def svg(self, edges: Mapping[tuple[str, str], set[str]]) -> str:
        """The picture; every state of an edge needs a place.

        Raises:
            KeyError: One has none.
        """
        columns = max(x for x, _ in self.places.values())
        rows = max(y for _, y in self.places.values())
        width = 2 * MARGIN + columns * STEP[0] + BOX[0]
        height = 2 * MARGIN + rows * STEP[1] + BOX[1]
        view = f'viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {view} aria-label="{escape(self.title)}">',
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
            f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        ]
        lines += [self._arrow(old, new, edges[old, new]) for old, new in sorted(edges)]
        lines += [self._box(name) for name in self.places]
        return "\n".join([*lines, "</svg>", ""])

    def _middle(self, name: str) -> tuple[float, float]:
        column, row = self.places[name]
        return MARGIN + BOX[0] / 2 + column * STEP[0], MARGIN + BOX[1] / 2 + row * STEP[1]

    def _box(self, name: str) -> str:
        x, y = self._middle(name)
        kind = "good" if name in self.good else "bad" if name in self.bad else "plain"
        return (
            f'<rect class="{kind}" x="{x - BOX[0] / 2:.1f}" y="{y - BOX[1] / 2:.1f}" '
            f'width="{BOX[0]:.0f}" height="{BOX[1]:.0f}" rx="8"/>'
            f'<text x="{x:.1f}" y="{y + 5:.1f}">{escape(name)}</text>'
        )

    def _arrow(self, old: str, new: str, events: set[str]) -> str:
        """A way that bends to its left, so that the way back does not lie upon it."""
        start, end = self._middle(old), self._middle(new)
        across, down = end[0] - start[0], end[1] - start[1]
        bend = BEND if self._free(old, new) else 3 * BEND
        control = (
            (start[0] + end[0]) / 2 + bend * down,
            (start[1] + end[1]) / 2 - bend * across,
        )
        begin, tip = _border(start, control), _border(end, control)
        angle = math.atan2(tip[1] - control[1], tip[0] - control[0])
        wings = [
            (tip[0] - 9 * math.cos(angle + side), tip[1] - 9 * math.sin(angle + side))
            for side in (-0.4, 0.4)
        ]
        head = " L".join(f"{x:.1f} {y:.1f}" for x, y in (tip, *wings))
        told = escape(f"{old} to {new}: {', '.join(sorted(events))}")
        return (
            f'<g><title>{told}</title><path class="way" d="M{begin[0]:.1f} {begin[1]:.1f} '
            f'Q{control[0]:.1f} {control[1]:.1f} {tip[0]:.1f} {tip[1]:.1f}"/>'
            f'<path class="tip" d="M{head} Z"/></g>'
        )

    def _free(self, old: str, new: str) -> bool:
        """Whether no other box lies on the straight way."""
        (x1, y1), (x2, y2) = self.places[old], self.places[new]
        for name, (x, y) in self.places.items():
            on_line = (x - x1) * (y2 - y1) == (y - y1) * (x2 - x1)
            within = min(x1, x2) <= x <= max(x1, x2) and min(y1, y2) <= y <= max(y1, y2)
            if name not in {old, new} and on_line and within:
                return False
        return True


def _border(middle: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box leaves it."""
    across, down = towards[0] - middle[0], towards[1] - middle[1]
    scale = min(
        BOX[0] / 2 / abs(across) if across else math.inf,
        BOX[1] / 2 / abs(down) if down else math.inf,
    )
    return middle[0] + across * scale, middle[1] + down * scale
