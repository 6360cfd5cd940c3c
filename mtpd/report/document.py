"""What a report says, apart from how it is written down. Pure.

``mtpd.report.build`` makes it; ``markdown`` and ``page`` write it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Column", "Document", "Figure", "Section", "Table"]


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column; numbers stand on its right, sentences may take several lines."""

    head: str
    right: bool = True
    sentences: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text.

    Attributes:
        strong: Indices of the rows that are in force.
        notes: What the marks ``(1)``, ``(2)`` in its cells stand for, in order.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing.

    Attributes:
        name: Of its file, without the ending.
        caption: What it shows, for those who do not see it, too.
        svg: The drawing without its style sheet.
    """

    name: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A headline with what belongs to it, in this order."""

    title: str
    level: int = 2
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    remarks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All drawings, in order."""
        return tuple(figure for section in self.sections for figure in section.figures)
