"""Writes a report as Markdown, with its drawings as files beside it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.report.document import Document, Figure, Section, Table

__all__ = ["markdown"]

_SPECIAL = re.compile(r"([\\|*<>\[\]])")


def markdown(document: Document, picture: Callable[[Figure], str] | None = None) -> str:
    """The text of a Markdown file.

    Args:
        document: What to write.
        picture: The file name of a drawing; None where there are no files beside the text.
    """
    parts = [f"# {_plain(document.title)}", *map(_prose, document.lead)]
    for section in document.sections:
        parts += _section(section, picture)
    return "\n\n".join(parts) + "\n"


def _section(section: Section, picture: Callable[[Figure], str] | None) -> Iterator[str]:
    yield f"{'#' * section.level} {_plain(section.title)}"
    yield from map(_prose, section.paragraphs)
    if section.table is not None:
        yield _table(section.table)
        notes = section.table.notes
        if notes:
            yield "\n".join(f"- ({n}) {_prose(note)}" for n, note in enumerate(notes, start=1))
    if section.remarks:
        yield "\n".join(f"- {_prose(remark)}" for remark in section.remarks)
    if picture is not None:
        for figure in section.figures:
            yield f"![{_plain(figure.caption)}]({quote(picture(figure))})"


def _table(table: Table) -> str:
    lines = [
        _line([column.head for column in table.columns]),
        "|" + "|".join("---:" if column.right else "---" for column in table.columns) + "|",
    ]
    for index, row in enumerate(table.rows):
        cells = [_plain(cell) for cell in row]
        lines.append(_line([f"**{cell}**" for cell in cells] if index in table.strong else cells))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that no Markdown is read from; a line break would end a row."""
    return _inline(text).strip()


def _prose(text: str) -> str:
    """A sentence of ours, in which `commands` stay code."""
    return "`".join(
        part if index % 2 else _inline(part) for index, part in enumerate(text.split("`"))
    )


def _inline(text: str) -> str:
    """As ``_plain``, with the blanks at the ends kept."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))
