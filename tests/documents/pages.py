"""Parts of the documentation that are made from the code.

Such a part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; what lies between
them is written by ``python -m tests.documents``, and a test compares it.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.documents import (
    command_lists,
    json_shapes,
    keys,
    machines,
    manual_pages,
    metric_lists,
    studies,
)

__all__ = ["BLOCKS", "FILES", "ROOT", "blocks_in", "pages", "written"]

ROOT = Path(__file__).parents[2]
BLOCKS = {
    **keys.BLOCKS,
    **command_lists.BLOCKS,
    **metric_lists.BLOCKS,
    **json_shapes.BLOCKS,
    **studies.BLOCKS,
    **machines.BLOCKS,
}
"""Every part by its name."""
FILES = {**machines.FILES, **manual_pages.FILES}
"""Files that the code makes as a whole, by their path in the repository."""
_PART = re.compile(r"<!-- begin ([\w ]+) -->\n(.*?)<!-- end \1 -->", re.DOTALL)


def pages() -> list[Path]:
    """Every page that may have such a part."""
    return sorted((ROOT / "docs").glob("*.md"))


def blocks_in(text: str) -> list[str]:
    """The names of the parts on a page."""
    return [name for name, _ in _PART.findall(text)]


def written(text: str) -> str:
    """A page with its parts as the code has them.

    Raises:
        KeyError: A part's name is not known.
    """

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        return f"<!-- begin {name} -->\n\n{BLOCKS[name]}\n\n<!-- end {name} -->"

    return _PART.sub(part, text)
