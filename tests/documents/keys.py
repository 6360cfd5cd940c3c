"""Tables of configuration keys, for docs/configuration.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mtpd.config.reference import SECTIONS

if TYPE_CHECKING:
    from mtpd.config.reference import Key, Section

__all__ = ["BLOCKS"]

_PAGE = re.compile(r"docs/((\w+)\.md)(?:#([\w-]*\w))?")
_DOUBLE = re.compile(r"([\w ]+) \(\[\1\]\(([^)]*)\)\)")
_HOME = "configuration.md"


def linked(text: str) -> str:
    """A meaning with its pages as links, as it stands on the page of the configuration."""

    def link(found: re.Match[str]) -> str:
        page, name, part = found.groups()
        label = (part or name).removesuffix("name").replace("-", " ").replace("_", " ")
        place = "" if page == _HOME else page
        return f"[{label}]({place}{'#' + part if part else ''})"

    return _DOUBLE.sub(r"[\1](\2)", _PAGE.sub(link, text))


def _row(key: Key) -> str:
    cells = (f"`{key.name}`", key.type, key.default, linked(key.meaning))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(section: Section) -> str:
    """Where the keys of a section may stand, and one row for each."""
    head = (f"In {section.where}.", "", "| key | type | default | meaning |", "|---|---|---|---|")
    return "\n".join([*head, *map(_row, section.keys)])


BLOCKS = {f"keys {section.name}": table(section) for section in SECTIONS}
