"""Writes SVG: elements, a frame with axes, marks for residency. Pure.

Drawings are styled by classes alone, so that they may stand in a page whose content security
policy allows one style sheet and nothing else.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

__all__ = [
    "HEIGHT",
    "SHEET",
    "WIDTH",
    "Frame",
    "Scale",
    "drawing",
    "element",
    "label",
    "mark",
    "nice",
    "standalone",
]

WIDTH, HEIGHT = 640.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 24.0, 28.0, 52.0
_TICKS = 6
_RADIUS = 5.0

SHEET = """\
svg.plot{color-scheme:light dark;font:12px system-ui,sans-serif;--ink:#1f2328;--soft:#656d76;\
--line:#d0d7de;--back:#fff;--good:#0969da;--bad:#cf222e;--doubt:#9a6700}
@media (prefers-color-scheme:dark){svg.plot{--ink:#e6edf3;--soft:#8d96a0;--line:#30363d;\
--back:#0d1117;--good:#4493f8;--bad:#ff7b72;--doubt:#d29922}}
.plot .back{fill:var(--back)}
.plot text{fill:var(--ink)}
.plot .tick,.plot .axis{fill:var(--soft)}
.plot .grid{stroke:var(--line)}
.plot .trend{fill:none;stroke:var(--soft);stroke-width:1.5}
.plot .bar{stroke:var(--ink);stroke-width:1.5}
.plot .error{stroke:var(--soft)}
.plot .served{fill:none;stroke:var(--ink);stroke-width:2}
.plot .lead{font-weight:600}
.plot .resident{fill:var(--good);stroke:var(--good)}
.plot .evicted{fill:var(--back);stroke:var(--bad);stroke-width:2}
.plot .unknown{fill:var(--back);stroke:var(--doubt);stroke-width:2}
"""
"""The one style sheet of every drawing, for light and dark."""

_PLACES = {"resident": "resident", "host": "resident", "evicted": "evicted", "spilled": "evicted"}


def element(name: str, *children: str, **attributes: str | float) -> str:
    """An element of escaped attributes; ``class_`` is class, ``text_anchor`` is text-anchor."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_text(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{''.join(children)}</{name}>" if children else f"<{name}{said}/>"


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def label(x: float, y: float, said: str, *, class_: str = "", anchor: str = "middle") -> str:
    """Text at a place."""
    return element("text", html.escape(said), x=x, y=y, class_=class_, text_anchor=anchor)


def drawing(*parts: str, title: str, description: str) -> str:
    """A whole drawing, with its title and description for those who do not see it."""
    return element(
        "svg",
        element("title", html.escape(title)),
        element("desc", html.escape(description)),
        element("rect", class_="back", width=WIDTH, height=HEIGHT),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_="plot",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
    )


def standalone(svg: str) -> str:
    """A drawing as a file of its own, which brings its style sheet."""
    head, rest = svg.split(">", maxsplit=1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{SHEET}</style>{rest}\n'


def nice(low: float, high: float) -> tuple[float, ...]:
    """Round numbers, about six, that enclose a finite range, at least a fiftieth of its end."""
    span = max(high - low, abs(high) * 0.02, 1e-6)
    rough = span / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(i * step, 9) for i in range(first, max(last, first + 1) + 1))


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels, both given by their ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Frame:
    """Axes with round ticks around a plot.

    Attributes:
        x_ticks: At least two, ascending.
        y_ticks: Likewise.
        inset: Share of the width that stays free beside the outer ticks.
        right: Pixels that stay free on the right, for a key.
    """

    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    x_name: str
    y_name: str
    inset: float = 0.0
    right: float = _RIGHT

    @property
    def x(self) -> Scale:
        """Left to right."""
        free = self.inset * (WIDTH - _LEFT - self.right)
        return Scale(self.x_ticks[0], self.x_ticks[-1], _LEFT + free, WIDTH - self.right - free)

    @property
    def y(self) -> Scale:
        """Bottom to top."""
        return Scale(self.y_ticks[0], self.y_ticks[-1], HEIGHT - _BOTTOM, _TOP)

    def drawn(self) -> str:
        """Grid, ticks and names of the axes."""
        parts: list[str] = []
        for value in self.y_ticks:
            at = self.y(value)
            parts.append(
                element("line", class_="grid", x1=_LEFT, x2=WIDTH - self.right, y1=at, y2=at)
            )
            parts.append(label(_LEFT - 8, at + 4, f"{value:g}", class_="tick", anchor="end"))
        parts += [
            label(self.x(value), HEIGHT - _BOTTOM + 18, f"{value:g}", class_="tick")
            for value in self.x_ticks
        ]
        middle = (_LEFT + WIDTH - self.right) / 2
        parts.append(label(middle, HEIGHT - 14, self.x_name, class_="axis"))
        parts.append(label(_LEFT - 50, 16, self.y_name, class_="axis", anchor="start"))
        return "".join(parts)


def mark(x: float, y: float, residency: str, *, served: bool = False) -> str:
    """A point: full in device memory, a cross in a ring out of it, a diamond where unknown."""
    class_ = _PLACES.get(residency, "unknown")
    ring = element("circle", class_="served", cx=x, cy=y, r=_RADIUS + 5) if served else ""
    if class_ == "unknown":
        r = _RADIUS + 1
        corners = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        return ring + element("polygon", class_=class_, points=points)
    disc = element("circle", class_=class_, cx=x, cy=y, r=_RADIUS)
    if class_ == "resident":
        return ring + disc
    arm = _RADIUS * 0.7
    side = f"{2 * arm:.1f}"
    path = f"M{x - arm:.1f} {y - arm:.1f}l{side} {side}m0 -{side}l-{side} {side}"
    return ring + disc + element("path", class_=class_, d=path)
