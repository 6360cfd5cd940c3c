"""The three drawings of a report: depth curve, acceptance by position, speed and quality. Pure.

A drawing that would have nothing to show is not made: None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.report.svg import HEIGHT, WIDTH, Frame, drawing, element, label, mark, nice
from mtpd.report.text import ALPHA

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mtpd.report_views import MatrixRowView, ReportModelView
    from mtpd.views import IntervalView

__all__ = ["LEGEND", "acceptance", "depth_curve", "speed_quality"]

LEGEND = (
    "Full points lie in device memory (or run on a machine without a device), crossed ones do "
    "not, diamonds are not proven; the ring is what is served; bars are 95 % intervals."
)

_CHARACTER = 7.4
"""Width of a character of the labels, about."""

_LINE = 15.0
_KEY = 250.0
"""Width of the key of models beside a drawing."""

_GAP = 12.0
_FEWEST = 2
"""Points of a curve; one alone says what the table says."""

_Z_95 = 1.96

Box = tuple[float, float, float, float]


def depth_curve(model: ReportModelView) -> str | None:
    """Tokens per second over the draft depth, with intervals and the served depth."""
    points = [(one, one.row.decode_tps) for one in model.depths if one.row.decode_tps is not None]
    if len(points) < _FEWEST:
        return None
    bounds = [one.row.tps_interval for one, _ in points]
    highest = max([tps for _, tps in points] + [b.high for b in bounds if b is not None])
    depths = [one.row.arm.depth for one, _ in points]
    deepest = max(*depths, min(depths) + 1)
    frame = Frame(
        tuple(map(float, range(min(depths), deepest + 1))),
        nice(0.0, 1.05 * highest),
        "draft depth",
        "tok/s",
        inset=0.08,
    )
    parts = [frame.drawn()]
    line = " ".join(f"{frame.x(one.row.arm.depth):.1f},{frame.y(tps):.1f}" for one, tps in points)
    parts.append(element("polyline", class_="trend", points=line))
    for one, tps in points:
        x = frame.x(one.row.arm.depth)
        parts.append(_bar(frame, x, one.row.tps_interval))
        parts.append(mark(x, frame.y(tps), one.row.residency, served=one.served))
        top = tps if one.row.tps_interval is None else one.row.tps_interval.high
        parts.append(label(x, frame.y(top) - _GAP, f"{tps:.1f}", class_=_lead(one.served)))
    said = ", ".join(
        f"depth {one.row.arm.depth}: {tps:.1f} tok/s, {one.row.residency}" for one, tps in points
    )
    return drawing(*parts, title=f"{model.model}: speed by draft depth", description=said)


def acceptance(model: ReportModelView) -> str | None:
    """Conditional acceptance by draft position, of the arm that tells the most positions."""
    rows = [one.row for one in model.depths if one.row.acceptance]
    if not rows:
        return None
    row = max(rows, key=lambda one: len(one.acceptance))
    last = max(2, row.acceptance[-1].position)
    frame = Frame(
        tuple(float(position) for position in range(1, last + 1)),
        nice(0.0, 1.0),
        f"draft position (measured at depth {row.arm.depth})",
        "acceptance, given that all before were accepted",
        inset=0.08,
    )
    places = [(frame.x(one.position), frame.y(one.alpha.mid), one) for one in row.acceptance]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    parts = [frame.drawn(), element("polyline", class_="trend", points=line)]
    for x, y, one in places:
        parts += [_bar(frame, x, one.alpha), mark(x, y, row.residency)]
        said = f"{ALPHA}{one.position} {one.alpha.mid:.1%}"
        parts.append(label(x, frame.y(one.alpha.low) + 1.6 * _GAP, said))
    told = ", ".join(f"position {one.position}: {one.alpha.mid:.1%}" for _, _, one in places)
    return drawing(*parts, title=f"{model.model}: acceptance by position", description=told)


def speed_quality(rows: Sequence[MatrixRowView], served: Collection[str]) -> str | None:
    """Tokens per second over perplexity; rows whose perplexity does not compare are left out.

    Args:
        rows: Of the matrix.
        served: Models that a pool stands for now.
    """
    points = [
        (row, row.quality.perplexity, row.decode_tps)
        for row in rows
        if row.quality is not None
        and row.decode_tps is not None
        and not any(trap.column == "perplexity" for trap in row.traps)
    ]
    if not points:
        return None
    bounds = [_error(row) for row, _, _ in points]
    frame = Frame(
        nice(min(low for low, _ in bounds), max(high for _, high in bounds)),
        nice(0.0, max(tps for _, _, tps in points)),
        "perplexity (lower is better)",
        "tok/s",
        inset=0.02,
        right=_KEY,
    )
    places = [(frame.x(ppl), frame.y(tps)) for _, ppl, tps in points]
    taken: list[Box] = [(x - _GAP, y - _GAP, x + _GAP, y + _GAP) for x, y in places]
    parts = [frame.drawn()]
    for (low, high), (_, y) in zip(bounds, places, strict=True):
        span = {"x1": frame.x(low), "x2": frame.x(high), "y1": y, "y2": y}
        parts.append(element("line", class_="error", **span))
    line = min(_LINE, (HEIGHT - 4 * _LINE) / len(points))
    for number, ((row, _, _), (x, y)) in enumerate(zip(points, places, strict=True), start=1):
        class_ = _lead(row.model in served)
        left, base, box = _room(x, y, str(number), taken)
        taken.append(box)
        parts += [
            mark(x, y, row.residency, served=row.model in served),
            label(left, base, str(number), class_="lead", anchor="start"),
            label(WIDTH - _KEY + 28, line * (number + 1), str(number), class_="lead", anchor="end"),
            label(WIDTH - _KEY + 34, line * (number + 1), row.model, class_=class_, anchor="start"),
        ]
    said = ", ".join(
        f"{row.model}: {tps:.1f} tok/s at {ppl:g}, {row.residency}" for row, ppl, tps in points
    )
    return drawing(*parts, title="Speed and perplexity", description=said)


def _error(row: MatrixRowView) -> tuple[float, float]:
    """The 95 % interval of a perplexity; the value alone where no error is known."""
    if row.quality is None:
        return 0.0, 0.0
    half = _Z_95 * (row.quality.stderr or 0.0)
    return row.quality.perplexity - half, row.quality.perplexity + half


def _room(x: float, y: float, said: str, taken: Sequence[Box]) -> tuple[float, float, Box]:
    """Where a label beside a point begins so that it covers as little as can be."""
    width = _CHARACTER * len(said)
    found: list[tuple[float, float, float, Box]] = []
    for left, base in (
        (x - width / 2, y - _GAP),
        (x - width / 2, y + 1.8 * _GAP),
        (x + _GAP, y - 3),
        (x - _GAP - width, y - 3),
    ):
        box = (left, base - _GAP, left + width, base)
        found.append((sum(_overlap(box, other) for other in taken), left, base, box))
    _, left, base, box = min(found, key=lambda one: one[0])
    return left, base, box


def _overlap(a: Box, b: Box) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, wide) * max(0.0, high)


def _bar(frame: Frame, x: float, interval: IntervalView | None) -> str:
    """A 95 % interval upright, cut at the frame; nothing where there is none."""
    if interval is None:
        return ""
    ends = {"y1": frame.y(max(0.0, interval.low)), "y2": frame.y(interval.high)}
    return element("line", class_="bar", x1=x, x2=x, **ends)


def _lead(served: bool) -> str:  # noqa: FBT001 - the one thing that it turns into a class
    return "lead" if served else ""
